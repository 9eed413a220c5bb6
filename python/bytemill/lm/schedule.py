"""Learning-rate schedules as functions of the step t, counted from 0."""

from __future__ import annotations

import math
from typing import Literal

DecayShape = Literal["linear", "1-sqrt"]


def constant(t: int, max_lr: float, warmup_steps: int = 0) -> float:
    """Linear warm-up, then constant.

    >>> [constant(t, 1.0, warmup_steps=2) for t in range(4)]
    [0.0, 0.5, 1.0, 1.0]
    """
    return max_lr * t / warmup_steps if t < warmup_steps else max_lr


def cosine_with_warmup(t: int, max_lr: float, min_lr: float, warmup_steps: int, cycle_steps: int) -> float:
    """Linear warm-up, cosine decay to `min_lr` at `cycle_steps`, then constant (Touvron et al. 2023, LLaMA).

    t / T_w · α_max for t < T_w; α_min + ½ (1 + cos(π (t − T_w) / (T_c − T_w))) (α_max − α_min) for T_w ≤ t ≤ T_c;
    α_min afterwards.

    Args:
        t: Step, from 0.
        max_lr: Peak learning rate α_max.
        min_lr: Final learning rate α_min.
        warmup_steps: Length T_w of the warm-up.
        cycle_steps: Step T_c at which the decay ends.

    >>> [round(cosine_with_warmup(t, 1.0, 0.1, warmup_steps=2, cycle_steps=6), 3) for t in range(8)]
    [0.0, 0.5, 1.0, 0.868, 0.55, 0.232, 0.1, 0.1]
    """
    if t < warmup_steps:
        return max_lr * t / warmup_steps
    if t > cycle_steps:
        return min_lr
    # A cycle without decay ends at its peak.
    progress = (t - warmup_steps) / (cycle_steps - warmup_steps) if cycle_steps > warmup_steps else 0.0
    return min_lr + 0.5 * (1 + math.cos(math.pi * progress)) * (max_lr - min_lr)


def warmup_stable_decay(
    t: int,
    max_lr: float,
    min_lr: float,
    *,
    warmup_steps: int,
    decay_steps: int,
    total_steps: int,
    decay_shape: DecayShape = "linear",
) -> float:
    """Linear warm-up, constant, then decay at the end of the run (Hu et al. 2024, MiniCPM).

    With u, the share of the decay that is done, the rate is α_min + (1 − u) (α_max − α_min) for "linear", and
    α_min + (1 − √u) (α_max − α_min) for "1-sqrt" (Hägele et al. 2024, "Scaling laws and compute-optimal training
    beyond fixed training durations"). The length of the run need not be known before the decay starts.

    Args:
        t: Step, from 0.
        max_lr: Peak learning rate.
        min_lr: Learning rate from `total_steps` on.
        warmup_steps: Length of the warm-up.
        decay_steps: Length of the decay, which ends at `total_steps`.
        total_steps: Length of the run.
        decay_shape: "linear" or "1-sqrt".

    >>> schedule = dict(warmup_steps=2, decay_steps=2, total_steps=6)
    >>> [round(warmup_stable_decay(t, 1.0, 0.1, **schedule), 3) for t in range(8)]
    [0.0, 0.5, 1.0, 1.0, 1.0, 0.55, 0.1, 0.1]
    >>> round(warmup_stable_decay(5, 1.0, 0.1, **schedule, decay_shape="1-sqrt"), 3)
    0.364
    """
    if t < warmup_steps:
        return max_lr * t / warmup_steps
    if t >= total_steps:
        return min_lr
    remaining = total_steps - t
    if remaining >= decay_steps:
        return max_lr
    share = remaining / decay_steps
    if decay_shape == "1-sqrt":
        share = 1 - math.sqrt(1 - share)
    return min_lr + (max_lr - min_lr) * share
