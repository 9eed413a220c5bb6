"""Training of classifiers: logistic regression by L-BFGS, calibrated and measured on pages that it has not seen.

A hash of its text puts a document into one of three parts: 80 % train the weights, 10 % calibrate the probabilities
(Platt 1999), 10 % measure them. Copies of a document are in the same part. The result depends on the documents, their
order and the settings, not on the number of threads.
"""

from __future__ import annotations

import hashlib
from collections import deque
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bytemill.analysis.intervals import share_interval
from bytemill.curation.classifier import Features, LinearModel, Rows, sigmoid, threshold_at
from bytemill.curation.documents import Documents, whole_documents
from bytemill.errors import CurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    Objective = Callable[[NDArray[np.float64]], tuple[float, NDArray[np.float64]]]

SHARES = (0.05, 0.1, 0.25, 0.5, 0.75)
"""Shares of documents to keep, whose thresholds are measured."""
_TRAIN, _CALIBRATE, _TEST = range(3)
_PART_NAMES = ("training", "calibration", "held-out pages")
_MIN_DOCUMENTS = 10
"""Least number of documents of a label in each part."""
_N_BINS = 10
_TOLERANCE = 1e-3
"""Further steps changed the accuracy on held-out pages by less than its interval."""
_HISTORY = 10
"""Steps from which L-BFGS estimates curvature."""


@dataclass(frozen=True)
class ThresholdQuality:
    """What a threshold keeps of the held-out pages."""

    label: str
    share: float | None
    """Share of the pages that reach the threshold by design; None for the threshold 0.5."""
    threshold: float
    n_kept: int
    precision: float | None
    """Pages of the label among those kept; None if none is kept."""
    precision_interval: tuple[float, float] | None
    recall: float
    """Pages of the label that are kept, of all of them."""
    recall_interval: tuple[float, float]


@dataclass(frozen=True)
class HeldOut:
    """A classifier on pages that it has not seen."""

    n_documents: tuple[int, ...]
    """By label."""
    accuracy: float
    """Share of the pages whose most likely label is theirs."""
    accuracy_interval: tuple[float, float]
    calibration_error: float
    """Mean distance of the probability of a label from how often it is right, in ten groups of equal size."""
    thresholds: tuple[ThresholdQuality, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class _Block:
    """The documents of a batch."""

    rows: Rows
    parts: NDArray[np.int8]
    label: int


def train_classifier(
    texts: Mapping[str, Documents],
    features: Features | None = None,
    *,
    penalty: float = 1e-6,
    num_threads: int | None = None,
    progress: Callable[[str, int], None] | None = None,
) -> tuple[LinearModel, HeldOut]:
    """Train a classifier.

    Args:
        texts: Examples of each label: a corpus or texts. Probabilities are those of a mixture like the examples.
        features: How a text becomes buckets; None for the defaults.
        penalty: Weight of Σ weights² / 2 beside the mean loss of a document.
        num_threads: Number of threads; None for all cores.
        progress: Called with a step and how many documents or iterations are done.

    Returns:
        The model, and what it does on the held-out pages.

    Raises:
        CurationError: If there are fewer than two labels, or too few documents of one.
    """
    if len(texts) < 2:
        raise CurationError(f"a classifier needs examples of two labels or more, not {len(texts)}")
    if not penalty > 0:
        raise CurationError(f"the penalty is {penalty:g}; it must be above 0", hint="try 1e-6")
    features = features or Features()
    report = progress or _silent
    blocks = list(_blocks(texts, features, num_threads, report))
    labels = tuple(texts)
    _check_parts(blocks, labels)
    data = [[_part(blocks, part, label) for label in range(len(labels))] for part in range(3)]
    weights: list[NDArray[np.float32]] = []
    biases: list[float] = []
    for label in range(len(labels) if len(labels) > 2 else 1):
        own, bias = _fit(data[_TRAIN], label, 1 << features.bits, penalty, report)
        slope, offset = _calibration(data[_CALIBRATE], label, own, bias)
        weights.append((slope * own).astype(np.float32))
        biases.append(slope * bias + offset)
    details: dict[str, Any] = {
        "n_documents": [[len(rows.ends) for rows in part] for part in data],
        "penalty": penalty,
    }
    model = LinearModel(labels, np.stack(weights), np.array(biases), features, details)
    held_out = measure(model, data[_TEST])
    details["held_out"] = held_out.to_dict()
    return model, held_out


def _silent(step: str, n_done: int) -> None:
    _ = step, n_done


def _blocks(
    texts: Mapping[str, Documents],
    features: Features,
    num_threads: int | None,
    report: Callable[[str, int], None],
) -> Iterable[_Block]:
    n_documents = 0
    for label, documents in enumerate(texts.values()):
        for batch in whole_documents(documents):
            starts = [0, *batch.ends[:-1].tolist()]
            spans = zip(starts, batch.ends.tolist(), strict=True)
            parts = np.array([_part_of(batch.data[start:end]) for start, end in spans], np.int8)
            yield _Block(features.rows(batch, num_threads), parts, label)
            n_documents += len(batch.ends)
            report("reading", n_documents)


def _part_of(text: bytes | memoryview) -> int:
    digit = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") % 10
    return (_CALIBRATE, _TEST)[digit] if digit < 2 else _TRAIN


def _check_parts(blocks: Sequence[_Block], labels: Sequence[str]) -> None:
    for label, name in enumerate(labels):
        for part, purpose in enumerate(_PART_NAMES):
            n = sum(int((block.parts == part).sum()) for block in blocks if block.label == label)
            if n < _MIN_DOCUMENTS:
                raise CurationError(
                    f"{name}: {n} documents for {purpose}, at least {_MIN_DOCUMENTS} are needed",
                    hint="a tenth of the documents measures; pass 200 of each label or more, without copies",
                )


def _part(blocks: Sequence[_Block], part: int, label: int) -> Rows:
    """Return the documents of a part and a label."""
    chosen = [block.rows.only(block.parts == part) for block in blocks if block.label == label]
    counts = np.concatenate([rows.counts for rows in chosen])
    return Rows(np.concatenate([rows.buckets for rows in chosen]), np.cumsum(counts))


def _fit(
    train: Sequence[Rows], label: int, n_buckets: int, penalty: float, report: Callable[[str, int], None]
) -> tuple[NDArray[np.float64], float]:
    """Return the weights and the bias that tell a label from the others."""
    n_documents = sum(len(rows.ends) for rows in train)
    n_calls = 0

    def objective(values: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        nonlocal n_calls
        weights, gradient = values[:-1], penalty * values
        gradient[-1] = 0  # the bias is free
        loss = 0.5 * penalty * float((weights * weights).sum())
        for other, rows in enumerate(train):
            logits = rows.times(weights) + values[-1]
            sign = 1.0 if other == label else -1.0
            loss += float(np.logaddexp(0, -sign * logits).sum()) / n_documents
            residual = (sigmoid(logits) - (other == label)) / n_documents
            gradient[:-1] += rows.transposed_times(residual, n_buckets)
            gradient[-1] += residual.sum()
        n_calls += 1
        report("training", n_calls)
        return loss, gradient

    found = minimize(objective, np.zeros(n_buckets + 1), tolerance=_TOLERANCE)
    return found[:-1], float(found[-1])


def _calibration(
    parts: Sequence[Rows], label: int, weights: NDArray[np.float64], bias: float
) -> tuple[float, float]:
    """Return the slope and offset of logits with which the probabilities of a label are right (Platt 1999)."""
    logits = np.concatenate([rows.times(weights) + bias for rows in parts])
    own = np.repeat([other == label for other in range(len(parts))], [len(rows.ends) for rows in parts])
    n_own = int(own.sum())
    # Not 0 and 1, so that few documents that are all told apart give no infinite slope.
    targets = np.where(own, (n_own + 1) / (n_own + 2), 1 / (len(own) - n_own + 2))

    def objective(values: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        calibrated = values[0] * logits + values[1]
        loss = np.logaddexp(0, calibrated) - targets * calibrated
        residual = sigmoid(calibrated) - targets
        return float(loss.mean()), np.array([(residual * logits).mean(), residual.mean()])

    slope, offset = minimize(objective, np.array([1.0, 0.0])).tolist()
    return max(slope, 0.0), offset


def minimize(
    objective: Objective, start: NDArray[np.float64], *, max_steps: int = 200, tolerance: float = 1e-6
) -> NDArray[np.float64]:
    """Return a minimum of a convex function by L-BFGS (Nocedal & Wright 2006, algorithm 7.4).

    Sums do not use BLAS, whose results depend on its number of threads.

    Args:
        objective: Returns a value and the gradient.
        start: Where to start.
        max_steps: Maximum number of steps.
        tolerance: Stop at a step that lowers the value by less than this share.
    """
    x, (value, gradient) = start, objective(start)
    history: deque[tuple[NDArray[np.float64], NDArray[np.float64], float]] = deque(maxlen=_HISTORY)
    for _ in range(max_steps):
        direction = -_inverse_curvature(history, gradient)
        slope = _dot(direction, gradient)
        if not slope < 0:
            break
        step = 1.0 if history else min(1.0, 1 / np.sqrt(-slope))
        while True:
            new_x = x + step * direction
            new_value, new_gradient = objective(new_x)
            if new_value <= value + 1e-4 * step * slope:
                break
            step /= 2
            if step < 1e-12:
                return x
        moved, bent = new_x - x, new_gradient - gradient
        if (curvature := _dot(moved, bent)) > 0:
            history.append((moved, bent, curvature))
        decrease = value - new_value
        x, value, gradient = new_x, new_value, new_gradient
        if decrease <= tolerance * abs(value):
            break
    return x


def _inverse_curvature(
    history: Sequence[tuple[NDArray[np.float64], NDArray[np.float64], float]], gradient: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the gradient times the estimated inverse of the Hessian."""
    found = gradient.copy()
    factors: list[float] = []
    for moved, bent, curvature in reversed(history):
        factors.append(_dot(moved, found) / curvature)
        found -= factors[-1] * bent
    if history:
        moved, bent, curvature = history[-1]
        found *= curvature / _dot(bent, bent)
    for (moved, bent, curvature), factor in zip(history, reversed(factors), strict=True):
        found += (factor - _dot(bent, found) / curvature) * moved
    return found


def _dot(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    return float((a * b).sum())


def measure(model: LinearModel, parts: Sequence[Rows]) -> HeldOut:
    """Measure a model on documents of each label."""
    scores = np.concatenate([model.row_scores(rows) for rows in parts])
    sizes = [len(rows.ends) for rows in parts]
    truth = np.repeat(np.arange(len(parts)), sizes)
    n_right = int((scores.argmax(axis=1) == truth).sum())
    thresholds: list[ThresholdQuality] = []
    for label in range(len(parts) if len(parts) > 2 else 1):
        own = scores[:, label]
        thresholds.append(_quality(model.labels[label], None, 0.5, own, truth == label))
        for share in SHARES:
            threshold = threshold_at(own, share)
            thresholds.append(_quality(model.labels[label], share, threshold, own, truth == label))
    return HeldOut(
        tuple(sizes),
        n_right / len(truth),
        share_interval(n_right, len(truth)),
        float(np.mean([_calibration_error(scores[:, k], truth == k) for k in range(len(parts))])),
        tuple(thresholds),
    )


def _quality(
    label: str, share: float | None, threshold: float, scores: NDArray[np.float64], is_own: NDArray[np.bool_]
) -> ThresholdQuality:
    kept = scores >= threshold
    n_kept, n_own, n_right = int(kept.sum()), int(is_own.sum()), int((kept & is_own).sum())
    return ThresholdQuality(
        label,
        share,
        threshold,
        n_kept,
        n_right / n_kept if n_kept else None,
        share_interval(n_right, n_kept) if n_kept else None,
        n_right / n_own,
        share_interval(n_right, n_own),
    )


def _calibration_error(scores: NDArray[np.float64], is_own: NDArray[np.bool_]) -> float:
    order = np.argsort(scores, kind="stable")
    groups = [group for group in np.array_split(order, _N_BINS) if len(group)]
    return sum(len(group) * abs(scores[group].mean() - is_own[group].mean()) for group in groups) / len(order)
