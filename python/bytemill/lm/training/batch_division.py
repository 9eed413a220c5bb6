"""Divide the sequences of a step among processes and forward passes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bytemill.errors import RunConfigError
from bytemill.lm.training.batch_ramp import sequences_at

if TYPE_CHECKING:
    from bytemill.lm.training.config import TrainingConfig


def divide_batch(training: TrainingConfig, n_processes: int, step: int | None = None) -> tuple[int, int]:
    """Return the forward passes of each process in a step, and the sequences per pass.

    All passes have the same size, at most `batch_size`.

    Args:
        training: Settings of the batch.
        n_processes: Number of processes; see `check_division`.
        step: Number of the step, from 0; by default one after the batch ramp.

    >>> from bytemill.lm.training.config import TrainingConfig
    >>> divide_batch(TrainingConfig(batch_size=32, accumulation=3), 2)
    (2, 24)
    """
    n_own = sequences_at(training.batch_ramp_steps if step is None else step, training) // n_processes
    n_passes = next(n for n in range(1, n_own + 1) if n_own % n == 0 and n_own // n <= training.batch_size)
    return n_passes, n_own // n_passes


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
