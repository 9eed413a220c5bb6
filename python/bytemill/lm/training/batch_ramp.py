"""Number of sequences in each step of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bytemill.lm.training.config import TrainingConfig


def sequences_at(step: int, config: TrainingConfig) -> int:
    """Return the number of sequences of step `step` (from 0), over all batches and processes.

    Large batches help little while gradients still agree (McCandlish et al. 2018), so a ramp saves tokens early in a
    run. With the full number N = K n₀ and a ramp of R steps, step t has n₀ (1 + ⌊(K − 1) t / R⌋) sequences for t < R,
    and N afterwards.

    >>> from bytemill.lm.training.config import TrainingConfig
    >>> ramp = TrainingConfig(batch_size=8, accumulation=2, batch_ramp_start=4, batch_ramp_steps=6)
    >>> [sequences_at(step, ramp) for step in range(8)]
    [4, 4, 8, 8, 12, 12, 16, 16]
    """
    full, start, n_ramp = (
        config.batch_size * config.accumulation,
        config.batch_ramp_start,
        config.batch_ramp_steps,
    )
    if step >= n_ramp:
        return full
    return start * (1 + (full // start - 1) * step // n_ramp)


def n_sequences(n_steps: int, config: TrainingConfig) -> int:
    """Return the number of sequences of the first `n_steps` steps.

    >>> from bytemill.lm.training.config import TrainingConfig
    >>> n_sequences(8, TrainingConfig(batch_size=8, accumulation=2, batch_ramp_start=4, batch_ramp_steps=6))
    80
    """
    n_in_ramp = min(n_steps, config.batch_ramp_steps)
    in_ramp = sum(sequences_at(step, config) for step in range(n_in_ramp))
    return in_ramp + (n_steps - n_in_ramp) * config.batch_size * config.accumulation
