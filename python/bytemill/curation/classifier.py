"""Classifiers of documents: quality, toxicity, topic, or whatever the examples of their labels show.

A document is the set of its word n-grams, hashed to 2^bits buckets; words are those of near duplicates. Its score for a
label is a probability, the logistic function of the mean weight of its buckets times √(number of buckets). Models of
fastText are read by the same class.

>>> import numpy as np
>>> model = LinearModel(("short", "long"), np.full((1, 2), -2.0), np.array([3.0]), Features(1, 1))
>>> model.scores(["one", "one two three four five"]).round(2).tolist()
[[0.73, 0.27], [0.19, 0.81]]
"""

from __future__ import annotations

import importlib
import json
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from bytemill._core import sketch_texts
from bytemill.curation.documents import Batch, packed
from bytemill.errors import CurationError
from bytemill.system.atomic_files import AtomicFile
from bytemill.system.extras import import_library

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

MAX_N = 8
MAX_BITS = 26
_FASTTEXT_SUFFIXES = {".bin", ".ftz"}
_LABEL_PREFIX = "__label__"
_ALL = -1.0
"""A threshold of probability below 0, with which fastText names all labels."""
_FORMAT = "bytemill classifier"
_VERSION = 1
_PROBE = "The quick brown fox, naïve; 東京 2026."
"""A text whose buckets a model keeps: they change if another version hashes words differently."""


@dataclass(frozen=True)
class Features:
    """How a text becomes buckets.

    Raises:
        CurationError: If a number is out of range.
    """

    n: int = 2
    """Words of the longest n-grams; shorter ones count too."""
    bits: int = 20
    """Binary logarithm of the number of buckets."""

    def __post_init__(self) -> None:
        for name, value, most in (("n", self.n, MAX_N), ("bits", self.bits, MAX_BITS)):
            if not 1 <= value <= most:
                raise CurationError(f"{name} is {value}; it must be 1 to {most}")

    def rows(self, batch: Batch, num_threads: int | None = None) -> Rows:
        """Return the buckets of each document."""
        found = [sketch_texts(batch.data, batch.ends, n, num_threads)[1:] for n in range(1, self.n + 1)]
        counts = [np.diff(ends.astype(np.int64), prepend=0) for _, ends in found]
        totals: NDArray[np.int64] = np.sum(counts, axis=0)
        ends = np.cumsum(totals)
        buckets = np.empty(int(totals.sum()), np.int32)
        at = ends - totals
        for (grams, gram_ends), own in zip(found, counts, strict=True):
            # The grams of a document go to consecutive elements, from `at` on.
            shift = np.repeat(at - (gram_ends.astype(np.int64) - own), own)
            buckets[shift + np.arange(len(grams))] = grams >> np.uint64(64 - self.bits)
            at = at + own
        return Rows(buckets, ends)


@dataclass(frozen=True)
class Rows:
    """A sparse matrix: documents by buckets, with 1/√n in each of the n buckets of a document."""

    buckets: NDArray[np.int32]
    ends: NDArray[np.int64]
    """End of each document in `buckets`, shape (n_documents,)."""
    counts: NDArray[np.int64] = field(init=False)
    scale: NDArray[np.float64] = field(init=False)

    def __post_init__(self) -> None:
        counts = np.diff(self.ends, prepend=0)
        object.__setattr__(self, "counts", counts)
        object.__setattr__(self, "scale", 1 / np.sqrt(np.maximum(counts, 1)))

    def times(self, weights: NDArray[Any]) -> NDArray[np.float64]:
        """Return the product with a column, shape (n_documents,)."""
        sums, filled = np.zeros(len(self.ends)), self.counts > 0
        if filled.any():
            starts = (self.ends - self.counts)[filled]
            sums[filled] = np.add.reduceat(weights[self.buckets], starts, dtype=np.float64)
        return sums * self.scale

    def transposed_times(self, values: NDArray[np.float64], n_buckets: int) -> NDArray[np.float64]:
        """Return the product of the transposed matrix with a column, shape (n_buckets,)."""
        weights = np.repeat(values * self.scale, self.counts)
        return np.bincount(self.buckets, weights, n_buckets).astype(np.float64, copy=False)

    def only(self, chosen: NDArray[np.bool_]) -> Rows:
        """Return the rows of some documents."""
        return Rows(self.buckets[np.repeat(chosen, self.counts)], np.cumsum(self.counts[chosen]))


class QualityModel(ABC):
    """A classifier of documents."""

    labels: tuple[str, ...]
    """Names of the labels."""

    @abstractmethod
    def batch_scores(self, batch: Batch) -> NDArray[np.float64]:
        """Return the scores of packed documents, as `scores`."""

    def scores(self, texts: Iterable[str]) -> NDArray[np.float64]:
        """Return the probability of each label for each text, shape (n_texts, n_labels), columns as in `labels`."""
        return self.batch_scores(packed(texts))

    def column(self, label: str) -> int:
        """Return the column of a label in `scores`.

        Raises:
            CurationError: If the model has no such label.
        """
        if label not in self.labels:
            raise CurationError(
                f"the classifier has no label {label!r}", hint=f"choose one of {', '.join(self.labels)}"
            )
        return self.labels.index(label)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> QualityModel:
        """Read a model of `train_classifier`, or one of fastText (`.bin`, `.ftz`). No code in it is executed.

        Raises:
            CurationError: If the file cannot be read, or is none of these.
            MissingExtraError: If a library that reads it is not installed.
        """
        path = Path(path)
        if not path.is_file():
            raise CurationError(f"there is no classifier {path}")
        return FastTextModel(path) if path.suffix in _FASTTEXT_SUFFIXES else _load_linear(path)


@dataclass(frozen=True)
class LinearModel(QualityModel):
    """Logistic regression over hashed n-grams."""

    labels: tuple[str, ...]
    weights: NDArray[np.float32]
    """A row for each label, or only for the first of two, shape (n_rows, 2^bits)."""
    biases: NDArray[np.float64]
    """Shape (n_rows,)."""
    features: Features = field(default_factory=Features)
    details: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What is known of the training, for people."""
    num_threads: int | None = None

    def batch_scores(self, batch: Batch) -> NDArray[np.float64]:
        return self.row_scores(self.features.rows(batch, self.num_threads))

    def row_scores(self, rows: Rows) -> NDArray[np.float64]:
        """Return the scores of documents by their buckets."""
        own = [
            sigmoid(rows.times(weights) + bias)
            for weights, bias in zip(self.weights, self.biases, strict=True)
        ]
        scores = np.stack([*own, 1 - own[0]] if len(own) == 1 else own, axis=1)
        return scores / scores.sum(axis=1, keepdims=True)

    def word_weights(self, different: Iterable[str], label: str) -> dict[str, float]:
        """Return how much each of some words speaks for a label: the weight of its bucket."""
        chosen = list(different)
        sign = -1.0 if len(self.weights) == 1 and self.column(label) == 1 else 1.0
        weights = self.weights[min(self.column(label), len(self.weights) - 1)]
        rows = Features(1, self.features.bits).rows(packed(chosen), self.num_threads)
        found = rows.times(weights) * np.sqrt(np.maximum(rows.counts, 1))
        return dict(zip(chosen, (sign * found).tolist(), strict=True))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model; equal models give equal bytes.

        Raises:
            OutputError: If the file cannot be written.
            MissingExtraError: If safetensors is not installed.
        """
        header = {
            "format": _FORMAT,
            "version": _VERSION,
            "labels": self.labels,
            "n": self.features.n,
            "bits": self.features.bits,
            "biases": self.biases.tolist(),
            "probe": _probe(self.features),
            "details": dict(self.details),
        }
        # One entry: the library does not keep the order of several.
        metadata = {"bytemill": json.dumps(header, ensure_ascii=False)}
        import_library("safetensors", "a classifier")
        library = importlib.import_module("safetensors.numpy")
        data = library.save({"weights": np.ascontiguousarray(self.weights)}, metadata)
        with AtomicFile(path) as file:
            file.write(data)


def sigmoid(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the logistic function, without overflow."""
    return 0.5 + 0.5 * np.tanh(0.5 * values)


def _probe(features: Features) -> list[int]:
    return features.rows(packed([_PROBE]), 1).buckets.tolist()


def _load_linear(path: Path) -> LinearModel:
    library = import_library("safetensors", "a classifier")
    try:
        with library.safe_open(str(path), "np") as file:
            header = json.loads(cast("dict[str, str]", file.metadata() or {}).get("bytemill", "{}"))
            weights = file.get_tensor("weights") if header.get("format") == _FORMAT else None
    except (OSError, ValueError, AttributeError, library.SafetensorError) as error:
        raise CurationError(f"cannot read the classifier {path}: {error}") from error
    if weights is None:
        raise CurationError(
            f"{path} is no classifier", hint="train one: bytemill data classifier train GOOD BAD -o FILE"
        )
    if header["version"] != _VERSION:
        raise CurationError(f"{path} has the version {header['version']}; this one reads {_VERSION}")
    try:
        features = Features(header["n"], header["bits"])
        model = LinearModel(
            tuple(header["labels"]), weights, np.array(header["biases"]), features, header["details"]
        )
        n_rows = len(model.labels) if len(model.labels) > 2 else 1
        is_whole = weights.shape == (n_rows, 1 << features.bits) and model.biases.shape == (n_rows,)
    except (KeyError, TypeError, CurationError) as error:
        raise CurationError(f"the classifier {path} is damaged: {error!r}") from error
    if not is_whole or not np.isfinite(weights).all() or not np.isfinite(model.biases).all():
        raise CurationError(
            f"the classifier {path} is damaged: its weights have another shape, or are not finite"
        )
    if header["probe"] != _probe(features):
        raise CurationError(
            f"the classifier {path} was trained by a version that hashes words differently",
            hint="train it again",
        )
    return model


class FastTextModel(QualityModel):
    """A supervised model of fastText, which reads a document as one line."""

    def __init__(self, path: Path) -> None:
        library = import_library("fasttext", "a model of fastText")
        try:
            self._model: Any = library.load_model(str(path))
            labels, _ = self._model.predict("", k=-1, threshold=_ALL)
        except (ValueError, RuntimeError, MemoryError) as error:
            raise CurationError(f"cannot read the model of fastText {path}: {error}") from error
        self.labels = tuple(sorted(label.removeprefix(_LABEL_PREFIX) for label in labels))
        self._columns = {label: column for column, label in enumerate(self.labels)}

    def batch_scores(self, batch: Batch) -> NDArray[np.float64]:
        scores = np.zeros((len(batch.ends), len(self.labels)))
        for row, text in enumerate(batch.texts()):
            labels, probabilities = self._model.predict(text.replace("\n", " "), k=-1, threshold=_ALL)
            columns = [self._columns[label.removeprefix(_LABEL_PREFIX)] for label in labels]
            scores[row, columns] = probabilities
        return scores


def threshold_at(scores: NDArray[np.float64], share: float) -> float:
    """Return the score that a share of documents reaches: the percentile 100 · (1 − share).

    >>> threshold_at(np.array([0.1, 0.9, 0.4, 0.7]), 0.5)
    0.7

    Raises:
        CurationError: If there are no scores, or the share is not above 0 and at most 1.
    """
    if not len(scores) or not 0 < share <= 1:
        raise CurationError(f"no threshold keeps the share {share:g} of {len(scores):,} documents")
    return float(np.sort(scores)[len(scores) - math.ceil(share * len(scores))])
