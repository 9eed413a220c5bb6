"""The distribution of the next token after each step of sampling."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import numpy as np

from bytemill.lm.generation.sampling import SamplingParameters, next_log_probabilities

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor


@dataclass(frozen=True)
class SamplingStage:
    """A distribution of the next token."""

    name: str
    """The step of `SamplingParameters` that led to it; "model" for the first."""
    is_active: bool
    """Whether the step can change anything."""
    n_kept: int
    """Number of tokens with a probability above 0."""
    entropy_bits: float
    probabilities: NDArray[np.float64]
    """(vocab_size,)."""


def sampling_stages(
    logits: Tensor, parameters: SamplingParameters, history: Sequence[int] = ()
) -> list[SamplingStage]:
    """Return the distribution of the model, and after each step that `parameters` describe, in their order.

    The last one is what the next token is sampled from.

    Args:
        logits: (vocab_size,), from the model.
        parameters: How to sample.
        history: Ids so far, including the prompt.
    """
    applied = SamplingParameters()
    stages = [_stage("model", logits, applied, history, is_active=True)]
    for step in fields(SamplingParameters):
        value = getattr(parameters, step.name)
        applied = replace(applied, **{step.name: value})
        stages.append(_stage(step.name, logits, applied, history, is_active=value != step.default))
    return stages


def _stage(
    name: str, logits: Tensor, parameters: SamplingParameters, history: Sequence[int], *, is_active: bool
) -> SamplingStage:
    p = np.exp(next_log_probabilities(logits, parameters, history).double().numpy())
    kept = p[p > 0]
    return SamplingStage(name, is_active, len(kept), float(-(kept * np.log2(kept)).sum()), p)
