"""The critical batch size at a checkpoint: up to which size larger batches learn as much from the same tokens.

A step on B tokens improves the loss by about G / (1 + C / B): the gradient of a small batch is mostly noise, that of a
large one hardly differs from the gradient of all data (McCandlish et al. 2018). D tokens are D / B steps, so they
improve the loss by

    G' / (1 + B / C),

which bends at the critical batch size C. `measure_batch_size` branches a run at its checkpoint, trains each branch on
the same tokens with another batch size (Merrill et al. 2025), and fits G' and C to the improvements. Learning rates
grow with the root of the batch, as fits Adam (Malladi et al. 2022), and fall linearly to 0 in a branch, so that the
noise of small batches counts less.
"""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bytemill.errors import RunConfigError
from bytemill.lm.training.branches import branch
from bytemill.lm.training.config import file_layer
from bytemill.lm.training.metrics_log import read_metrics
from bytemill.lm.training.run import rate_share
from bytemill.lm.training.run_checkpoint import MANIFEST, read_checkpoint
from bytemill.lm.training.run_folder import RunFolder
from bytemill.lm.training.trainer import train
from bytemill.system.atomic_files import make_folder, write_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from bytemill.lm.training.config import Layer
    from bytemill.lm.training.metrics_log import OnRecord
    from bytemill.lm.training.run_checkpoint import RunCheckpoint

RESULT = "batch_size.json"
N_BOOTSTRAP = 1000
_LEAST_SIZES = 4


@dataclass(frozen=True)
class Bend:
    """The fit of improvements by batch size."""

    critical: float
    """Critical batch size C, in tokens."""
    low: float
    high: float
    """95 % interval of C, from a bootstrap over repetitions; infinite where larger batches lose nothing."""
    gain: float
    """Improvement G' of small batches, in bits per byte."""

    def improvement(self, batch_tokens: float) -> float:
        """Return the fitted improvement of a batch size."""
        return self.gain / (1 + batch_tokens / self.critical)


@dataclass(frozen=True)
class BatchSizes:
    """What the branches of a checkpoint reached."""

    run: str
    step: int
    n_tokens: int
    """Tokens of each branch."""
    before: float
    """Bits per byte on the validation data at the checkpoint."""
    batch_tokens: list[int]
    learning_rates: list[float]
    bits_per_byte: list[list[float]]
    """By batch size, one per repetition."""
    bend: Bend

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON; an infinite bound is None."""
        values = asdict(self)
        for name, value in values["bend"].items():
            values["bend"][name] = value if math.isfinite(value) else None
        return values


def measure_batch_size(
    run: str | Path,
    folder: str | Path,
    *,
    batch_sizes: Sequence[int] = (),
    tokens: int | None = None,
    repetitions: int = 3,
    on_record: OnRecord | None = None,
    on_branch: Callable[[int, int], None] | None = None,
) -> BatchSizes:
    """Train branches of a checkpoint at several batch sizes, and fit the critical one.

    The branches are run folders in `folder`. A second call with the same arguments resumes them, and reads the results
    of those that are finished.

    Args:
        run: Folder of a run with validation data, of which the newest checkpoint is used, or one of its checkpoints.
        folder: Folder for the branches.
        batch_sizes: Sequences per step, at least four; by default the run's times ¼, ½, 1, 2, 4 and 8.
        tokens: Tokens of each branch, rounded to whole steps of the largest batch; by default a tenth of those that the
            run has seen, but at least 16 such steps.
        repetitions: Branches of each batch size, on different parts of the data.
        on_record: Called with every record of every branch.
        on_branch: Called with the number of finished branches and of all.

    Raises:
        RunConfigError: There are too few batch sizes, one does not divide the largest, the run has no validation data,
            or `folder` holds branches of another checkpoint.
        CheckpointError: The run has no checkpoint.
    """
    checkpoint, settings = _checkpoint(Path(run))
    training, length = checkpoint.config.training, checkpoint.config.model.context_length
    own = training.batch_size * training.accumulation
    sizes = sorted(set(batch_sizes)) or _default_sizes(own)
    if len(sizes) < _LEAST_SIZES or sizes[0] < 1:
        raise RunConfigError(
            f"{len(sizes)} batch sizes show no bend",
            hint=f"name at least {_LEAST_SIZES}: --batch-sizes 8 16 32 64",
        )
    if not checkpoint.shards["validation"]:
        raise RunConfigError(f"{run} has no validation data", hint="train it with --data.validation DIR")
    seen = checkpoint.trainer_state()["n_tokens"]
    largest = sizes[-1] * length
    n_tokens = max(16 * largest, seen // 10) if tokens is None else tokens
    n_tokens = max(1, round(n_tokens / largest)) * largest
    if uneven := [size for size in sizes if n_tokens % (size * length)]:
        raise RunConfigError(
            f"{n_tokens:,} tokens are no whole number of steps of {uneven[0]} sequences of {length:,} tokens",
            hint="choose batch sizes of which each divides the largest",
        )
    _claim(Path(folder), {"weights": checkpoint.weights_sha256, "step": checkpoint.step, "tokens": n_tokens})
    n_sequences = n_tokens // length

    def score(name: str, changes: Mapping[str, Any], skipped: int = 0) -> float:
        return _score(checkpoint, settings, Path(folder, name), changes, skipped=skipped, on_record=on_record)

    before = score("start", {"training.steps": checkpoint.step})
    results: dict[tuple[int, int], float] = {}
    for number in range(repetitions):
        for size in sizes:
            if on_branch:
                on_branch(len(results), repetitions * len(sizes))
            changes = {
                **_passes(size, training.batch_size),
                "training.steps": checkpoint.step + n_sequences // size,
                "optimizer.learning_rate": _rate(checkpoint, size / own),
            }
            results[size, number] = score(f"batch_{size}_{number}", changes, number * n_sequences)
    bits = [[results[size, number] for number in range(repetitions)] for size in sizes]
    batch_tokens = [size * length for size in sizes]
    measured = BatchSizes(
        run=str(run),
        step=checkpoint.step,
        n_tokens=n_tokens,
        before=before,
        batch_tokens=batch_tokens,
        learning_rates=[_rate(checkpoint, size / own) for size in sizes],
        bits_per_byte=bits,
        bend=fit_bend(batch_tokens, before - np.array(bits)),
    )
    write_text(Path(folder, RESULT), json.dumps(measured.to_dict(), indent=2) + "\n")
    return measured


def _checkpoint(path: Path) -> tuple[RunCheckpoint, Layer]:
    """Return the checkpoint that a path names, and the settings of its run."""
    if (path / MANIFEST).exists():
        checkpoint = read_checkpoint(path)
        checkpoint.verify(weights_only=False)
        return checkpoint, file_layer(path.parent.parent)
    found = RunFolder(path).load_newest()
    if found is None:
        raise RunConfigError(f"{path} has no checkpoint", hint=f"train it first: bytemill lm train {path}")
    return found.checkpoint, file_layer(path)


def _default_sizes(own: int) -> list[int]:
    return sorted({max(1, own // 4), max(1, own // 2), own, 2 * own, 4 * own, 8 * own})


def _rate(checkpoint: RunCheckpoint, ratio: float) -> float:
    """Return the first learning rate of a branch whose batch is `ratio` times the run's."""
    share = rate_share(min(checkpoint.step, checkpoint.config.training.steps - 1), checkpoint.config)
    return checkpoint.config.optimizer.learning_rate * share * math.sqrt(ratio)


def _passes(size: int, largest_pass: int) -> dict[str, int]:
    """Divide a batch into the fewest equal passes of at most `largest_pass` sequences."""
    n_passes = next(n for n in range(1, size + 1) if size % n == 0 and size // n <= largest_pass)
    return {"training.batch_size": size // n_passes, "training.accumulation": n_passes}


def _claim(folder: Path, source: Mapping[str, Any]) -> None:
    """Record where the branches in a folder begin. Raises RunConfigError if they began elsewhere."""
    path = folder / "source.json"
    if path.exists() and json.loads(path.read_bytes()) != source:
        raise RunConfigError(
            f"{folder} holds branches of another checkpoint, or of another length",
            hint="use another folder: -o DIR",
        )
    make_folder(folder)
    write_text(path, json.dumps(source) + "\n")


def _score(
    checkpoint: RunCheckpoint,
    settings: Layer,
    folder: Path,
    changes: Mapping[str, Any],
    *,
    skipped: int,
    on_record: OnRecord | None,
) -> float:
    """Train a branch, unless it is finished, and return its bits per byte on the validation data at the end."""
    steps, own = changes["training.steps"], RunFolder(folder)
    if (found := _last_score(own, steps)) is not None:
        return found
    changes = {
        "schedule.name": "wsd",
        "schedule.warmup_steps": 0,
        "schedule.min_share": 0.0,
        "schedule.decay_steps": max(1, steps - checkpoint.step),
        "training.batch_ramp_steps": 0,
        "training.batch_ramp_start": 0,
        "run.validate_every": steps,
        "run.sample_every": 0,
        "run.hellaswag": "",
        "run.keep_every": 0,
        "run.folder": str(folder),
        **changes,
    }
    train(branch(checkpoint, settings, changes, skipped_sequences=skipped), on_record=on_record)
    found = _last_score(own, steps)
    if found is None:
        raise RunConfigError(f"the validation data of {folder} has no bytes to score", hint="use other data")
    shutil.rmtree(own.checkpoints, ignore_errors=True)
    return found


def _last_score(folder: RunFolder, steps: int) -> float | None:
    scores = read_metrics(folder.metrics, "validation") if folder.metrics.exists() else []
    return next((each["bits_per_byte"] for each in reversed(scores) if each["step"] == steps), None)


def fit_bend(batch_tokens: Sequence[int], improvements: NDArray[np.float64], seed: int = 0) -> Bend:
    """Fit improvement = G / (1 + B / C) by least squares, with a bootstrap over repetitions.

    Sizes below the best one are left out: they suffer from the noise of their steps, of which the curve knows nothing.
    Where no bend is seen, C is infinite.

    Args:
        batch_tokens: Batch sizes B, in tokens.
        improvements: (n_sizes, n_repetitions).
        seed: Seed of the bootstrap.
    """
    n = improvements.shape[1]
    best = min(int(improvements.mean(1).argmax()), len(batch_tokens) - 2)
    improvements = improvements[best:]
    sizes = np.array(batch_tokens[best:], dtype=np.float64)
    means = improvements.mean(1)
    critical = float(_critical(sizes, means[None])[0])
    shape = 1 / (1 + sizes / critical)
    gain = float(shape @ means / (shape @ shape))
    if n == 1:
        return Bend(critical, math.nan, math.nan, gain)
    # Each batch size draws repetitions of its own: the branches of a repetition share data, but not their noise.
    chosen = np.random.default_rng(seed).integers(n, size=(N_BOOTSTRAP, len(sizes), n))
    drawn = np.take_along_axis(improvements[None], chosen, axis=2).mean(2)
    found = np.sort(_critical(sizes, drawn))
    low, high = (float(found[round(share * (N_BOOTSTRAP - 1))]) for share in (0.025, 0.975))
    return Bend(critical, low, high, gain)


_SPAN = 1000.0
"""Critical sizes are searched up to this factor beyond the measured sizes; above it, there is no bend."""
_N_GRID = 2000


def _critical(sizes: NDArray[np.float64], improvements: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the critical size that fits each row of improvements best, (n_rows,).

    For curves u of norm 1, the squared error is ‖I‖² − (u · I)²: the best one has the largest product with I. It is
    found on a grid of log C, and refined by the parabola through the products beside it.
    """
    grid = np.linspace(math.log(sizes[0] / _SPAN), math.log(sizes[-1] * _SPAN), _N_GRID)
    curves = 1 / (1 + sizes / np.exp(grid)[:, None])
    curves /= np.linalg.norm(curves, axis=1, keepdims=True)
    products = curves @ improvements.T
    best = products.argmax(0)
    inner = best.clip(1, _N_GRID - 2)
    before, at, after = (products[inner + shift, np.arange(len(improvements))] for shift in (-1, 0, 1))
    bend = before - 2 * at + after
    step = np.where(bend < 0, (before - after) / np.where(bend < 0, 2 * bend, 1), 0).clip(-1, 1)
    found = np.exp(grid[inner] + step * (grid[1] - grid[0]))
    return np.where(best == _N_GRID - 1, math.inf, found)
