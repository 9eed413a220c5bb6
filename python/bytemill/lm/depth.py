"""One number for a whole run: the shape, the learning rate, the batch and the tokens of a model of a given depth.

The idea is nanochat's (Karpathy 2025): width and heads follow from the depth, the tokens from the parameters, and the
batch and the learning rate from these. The rules, in the order in which they are applied:

- width 64 · depth, one head per 64 numbers, SwiGLU, QK-norm, an output layer of its own;
- tokens: `tokens_per_parameter` for each parameter, 20 by default (Hoffmann et al. 2022);
- FLOPs C of the whole run, from which follow, as Bi et al. 2024 ("DeepSeek LLM") have fitted them for AdamW,
  0.2920 · C^0.3271 tokens per step, rounded to a power of two, and the learning rate 0.3118 · C^−0.1250.
"""

from __future__ import annotations

import math
from typing import Any

from bytemill.errors import ModelConfigError
from bytemill.lm.model_config import AttentionConfig, ModelConfig, swiglu_width
from bytemill.lm.planning import TOKENS_PER_PARAMETER, flops_per_token, n_parameters
from bytemill.lm.presets import PRESETS

WIDTH_PER_LAYER = 64
_LARGEST_PASS = 2**14
"""Tokens of a forward pass; larger steps are accumulated."""


def depth_shape(depth: int) -> ModelConfig:
    """Return the shape of a model with this many blocks; the vocabulary and the context are those of nanochat.

    >>> shape = depth_shape(8)
    >>> shape.d_model, shape.num_heads, shape.d_ff
    (512, 8, 1344)

    Raises:
        ModelConfigError: The depth is below 1.
    """
    if depth < 1:
        raise ModelConfigError(f"depth is {depth}", hint="choose a number of at least 1")
    width = WIDTH_PER_LAYER * depth
    return PRESETS["nanochat-d12"].replace(
        d_model=width,
        num_layers=depth,
        num_heads=depth,
        d_ff=swiglu_width(width),
        feed_forward="swiglu",
        attention=AttentionConfig(qk_norm=True),
        logit_soft_cap=None,
    )


def depth_settings(
    config: ModelConfig,
    tokens_per_parameter: float = TOKENS_PER_PARAMETER,
    *,
    batch_size: int | None = None,
    accumulation: int | None = None,
) -> dict[str, Any]:
    """Return the settings of training that follow from a shape.

    Args:
        config: The shape, usually a result of `depth_shape` with the vocabulary and the context of the run.
        tokens_per_parameter: Training tokens per parameter.
        batch_size: Sequences of a forward pass, if the user has chosen them.
        accumulation: Passes of a step, if the user has chosen them.

    Returns:
        `optimizer.learning_rate`, `training.batch_size`, `training.accumulation` and `training.steps`.
    """
    n_tokens = tokens_per_parameter * n_parameters(config)
    flops = n_tokens * flops_per_token(config)
    wanted = 0.2920 * flops**0.3271
    sequences = max(1, round(2 ** round(math.log2(wanted)) / config.context_length))
    if batch_size is None:
        most = max(1, _LARGEST_PASS // config.context_length)
        batch_size = max(1, sequences // accumulation) if accumulation else min(most, sequences)
    if accumulation is None:
        accumulation = max(1, round(sequences / batch_size))
    per_step = batch_size * accumulation * config.context_length
    return {
        "optimizer.learning_rate": float(f"{0.3118 * flops**-0.1250:.2g}"),
        "training.batch_size": batch_size,
        "training.accumulation": accumulation,
        "training.steps": max(1, round(n_tokens / per_step)),
    }
