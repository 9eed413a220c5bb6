"""Divide the sequences of a step among processes and forward passes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bytemill.errors import RunConfigError
from bytemill.lm.training.batch_ramp import sequences_at

if TYPE_CHECKING:
    from bytemill.lm.training.config import TrainingConfig


def divide_batch(training: TrainingConfig, n_processes: int) -> tuple[int, int]:
    """Return the forward passes of each process in a step after the batch ramp, and the sequences per pass.

    All passes have the same size, at most `batch_size`.

    Args:
        training: Settings of the batch.
        n_processes: Number of processes; see `check_division`.

    >>> from bytemill.lm.training.config import TrainingConfig
    >>> divide_batch(TrainingConfig(batch_size=32, accumulation=3), 2)
    (2, 24)
    """
    n_own = training.batch_size * training.accumulation // n_processes
    n_passes = next(n for n in range(1, n_own + 1) if n_own % n == 0 and n_own // n <= training.batch_size)
    return n_passes, n_own // n_passes


def pass_sizes(training: TrainingConfig, n_processes: int, step: int) -> list[int]:
    """Return the sequences of each forward pass of a process in a step, the largest first.

    Steps of a batch ramp are divided into passes of few different sizes, each twice the one before: torch.compile
    makes code for every size.

    Args:
        training: Settings of the batch.
        n_processes: Number of processes.
        step: Number of the step, from 0.

    >>> from bytemill.lm.training.config import TrainingConfig
    >>> ramp = TrainingConfig(batch_size=32, batch_ramp_start=4, batch_ramp_steps=8)
    >>> [pass_sizes(ramp, 1, step) for step in (0, 4, 7, 8)]
    [[4], [16], [16, 8, 4], [32]]
    """
    n_passes, n_sequences = divide_batch(training, n_processes)
    rest = sequences_at(step, training) // n_processes
    if rest == n_passes * n_sequences:
        return [n_sequences] * n_passes
    passes: list[int] = []
    for size in _ramp_sizes(training, n_processes):
        passes += [size] * (rest // size)
        rest %= size
    return passes


def n_pass_sizes(training: TrainingConfig, n_processes: int) -> int:
    """Return the number of different sizes of forward passes in a run."""
    sizes = _ramp_sizes(training, n_processes) if training.batch_ramp_start else []
    return len({*sizes, divide_batch(training, n_processes)[1]})


def _ramp_sizes(training: TrainingConfig, n_processes: int) -> list[int]:
    """Return the sizes of passes of a ramp, the largest first; all are multiples of the last."""
    start = training.batch_ramp_start // n_processes
    sizes = [next(size for size in range(min(start, training.batch_size), 0, -1) if start % size == 0)]
    while 2 * sizes[0] <= training.batch_size:
        sizes.insert(0, 2 * sizes[0])
    return sizes


def check_division(training: TrainingConfig, n_processes: int) -> None:
    """Raise RunConfigError if the sequences of a step cannot be divided evenly among the processes."""
    if training.batch_ramp_start % n_processes:  # divides the sequences of every step; 0 without a ramp
        raise RunConfigError(
            f"training.batch_ramp_start is {training.batch_ramp_start:,}, which cannot be divided evenly among "
            f"{n_processes} processes",
            hint=f"start {_divisors(training.batch_ramp_start)}, or change --training.batch-ramp-start",
        )
    n_sequences = training.batch_size * training.accumulation
    if n_sequences % n_processes:
        raise RunConfigError(
            f"the {n_sequences:,} sequences of a step (training.batch_size {training.batch_size:,} × "
            f"training.accumulation {training.accumulation:,}) cannot be divided evenly among {n_processes} processes",
            hint=f"start {_divisors(n_sequences)}, or change --training.batch-size",
        )


def _divisors(n_sequences: int) -> str:
    """Describe the numbers of processes that divide `n_sequences`."""
    *smaller, largest = [str(n) for n in range(1, min(n_sequences, 64) + 1) if n_sequences % n == 0]
    return f"{', '.join(smaller)} or {largest} processes" if smaller else "1 process"
