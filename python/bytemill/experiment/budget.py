"""Budgets: the number of steps of each model, and what is held equal between vocabularies."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from bytemill.errors import RunConfigError
from bytemill.lm.planning import flops_per_token, n_parameters

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bytemill.lm.model_config import ModelConfig

_MULTIPLE = 64
_WIDTH_STEP = 8


@dataclass(frozen=True)
class Allowance:
    """What a model is trained on."""

    n_steps: int
    n_tokens: int
    n_bytes: int
    """Bytes of text; for budgets other than bytes, an estimate from the tokenizer's bytes per token."""
    flops: float
    """With the output layer."""


def padded_sizes(n_ids: Mapping[str, int], rule: Literal["multiple", "alike"]) -> dict[str, int]:
    """Return the size of each vocabulary as the model has it.

    >>> padded_sizes({"a": 1000, "b": 2000}, "multiple"), padded_sizes({"a": 1000, "b": 2000}, "alike")
    ({'a': 1024, 'b': 2048}, {'a': 2048, 'b': 2048})
    """
    sizes = {name: -(-n // _MULTIPLE) * _MULTIPLE for name, n in n_ids.items()}
    return sizes if rule == "multiple" else dict.fromkeys(sizes, max(sizes.values()))


def with_equal_parameters(shapes: Mapping[str, ModelConfig]) -> dict[str, ModelConfig]:
    """Lower the feed-forward widths, so that every model has about as many parameters as the smallest.

    Widths are multiples of 8. Depth, width of the stream and heads stay, so that the models differ in one number.

    Raises:
        RunConfigError: A vocabulary alone has more parameters than the smallest model.
    """
    target = min(n_parameters(shape) for shape in shapes.values())
    result: dict[str, ModelConfig] = {}
    for name, shape in shapes.items():
        per_step = n_parameters(shape.replace(d_ff=shape.d_ff + _WIDTH_STEP)) - n_parameters(shape)
        n_fewer = round((n_parameters(shape) - target) / per_step)
        d_ff = shape.d_ff - _WIDTH_STEP * n_fewer
        if d_ff < _WIDTH_STEP:
            raise RunConfigError(
                f"{name} has {n_parameters(shape):,} parameters, and no feed-forward width brings it to the {target:,} "
                "of the smallest model",
                hint='use larger models or smaller vocabularies, or budget.parameters = "non-embedding"',
            )
        result[name] = shape.replace(d_ff=d_ff)
    return result


def allowance(
    rule: Literal["bytes", "tokens", "flops", "time"],
    amount: float,
    shape: ModelConfig,
    batch_size: int,
    bytes_per_token: float,
    *,
    n_tokens: int | None = None,
    tokens_per_second: float | None = None,
) -> Allowance:
    """Return what a model may be trained on.

    Steps are whole: a model stays at most one step below the budget.

    Args:
        rule: What is equal.
        amount: How much of it.
        shape: Shape of the model.
        batch_size: Sequences per step.
        bytes_per_token: Of the tokenizer on the training text.
        n_tokens: For bytes, the number of tokens that the bytes have become; by default the estimate.
        tokens_per_second: For time, the speed of training.

    Raises:
        RunConfigError: The budget is below one step.
    """
    per_token = flops_per_token(shape)
    tokens = {
        "bytes": amount / bytes_per_token if n_tokens is None else n_tokens,
        "tokens": amount,
        "flops": amount / per_token,
        "time": amount * (tokens_per_second or math.nan),
    }[rule]
    per_step = batch_size * shape.context_length
    if not tokens >= per_step:
        raise RunConfigError(
            f"the budget of {amount:,.0f} {'seconds' if rule == 'time' else rule} is {tokens:,.0f} tokens, fewer than "
            f"the {per_step:,} of one step",
            hint="raise budget.amount, or lower train.training.batch_size or the context length of the models",
        )
    n_steps = int(tokens // per_step)
    used = n_steps * per_step
    return Allowance(n_steps, used, round(used * bytes_per_token), used * per_token)
