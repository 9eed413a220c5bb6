"""What happens inside a model on a text: attention weights, residual norms, and the logit lens."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import torch

from bytemill.errors import RunConfigError
from bytemill.lm.model import softmax
from bytemill.lm.tensors import not_finite

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor
    from torch.nn import Module

    from bytemill.lm.model import TransformerLM

_BLOCK = 64
"""Positions whose logits are held at a time."""


@dataclass(frozen=True)
class Trace:
    """The inner values of a model for one sequence of ids. All are on the CPU, in float32."""

    ids: list[int]
    attention: list[Tensor]
    """By layer, (n_heads, n_tokens, n_tokens): how much each token (row) attends to each token (column)."""
    residual_norms: Tensor
    """(n_layers + 1, n_tokens): Euclidean norm of the residual stream, after the embedding and after each block."""
    lens_ids: Tensor
    """(n_layers + 1, n_tokens, k): the most likely next tokens, if the output layer were applied there."""
    lens_probabilities: Tensor
    """Their probabilities, of the same shape (nostalgebraist 2020)."""


def trace(
    model: TransformerLM,
    ids: Sequence[int],
    *,
    n_best: int = 5,
    excluded_ids: Sequence[int] = (),
    check: Callable[[], None] | None = None,
) -> Trace:
    """Run the textbook kernels on `ids`, and keep what they compute.

    The model itself is not changed, so other threads may use it.

    Args:
        model: The model.
        ids: At least one id, and at most the context length.
        n_best: Number of tokens of the logit lens.
        excluded_ids: These ids have the probability 0 in the logit lens.
        check: Called before each layer; an exception that it raises ends the computation.

    Raises:
        RunConfigError: There are no ids, or more than the context length.
        NotFiniteError: The weights are not finite, or what they compute is not.
    """
    if not 1 <= len(ids) <= model.config.context_length:
        raise RunConfigError(
            f"{len(ids)} tokens cannot be traced", hint=f"give 1 to {model.config.context_length} tokens"
        )
    own = _with_shared_weights(model).eval().use_kernels("scratch")
    attention: list[Tensor] = []
    residual: list[Tensor] = []

    def keep_input(_: Module, inputs: tuple[Any, ...]) -> None:
        if check is not None:
            check()
        if not residual:
            residual.append(inputs[0])

    def keep_output(_: Module, __: Any, output: Tensor) -> None:
        residual.append(output)

    def keep_weights(_: Module, inputs: tuple[Any, ...]) -> None:
        # (1, n_kv_heads, group · n_tokens, n_tokens): the heads of a group are one after the other.
        attention.append(inputs[0].reshape(model.config.num_heads, len(ids), len(ids)).float().cpu())

    for layer in own.layers:
        layer.register_forward_pre_hook(keep_input)
        layer.register_forward_hook(keep_output)
        # Dropout is the last step that sees the attention weights; in evaluation it returns them unchanged.
        cast("Any", layer).attn.dropout.register_forward_pre_hook(keep_weights)
    with torch.inference_mode():
        own.hidden(torch.tensor([list(ids)], device=next(model.parameters()).device))
        stream = torch.stack([x[0] for x in residual])  # (n_layers + 1, n_tokens, d_model)
        lens_ids, lens_probabilities = _logit_lens(own, stream, n_best, excluded_ids, check)
        if not all(bool(torch.isfinite(values).all()) for values in (stream, lens_probabilities)):
            raise not_finite(model)
        norms = stream.float().square().sum(-1).sqrt().cpu()
    return Trace(list(ids), attention, norms, lens_ids, lens_probabilities)


def _logit_lens(
    model: TransformerLM,
    stream: Tensor,
    n_best: int,
    excluded_ids: Sequence[int],
    check: Callable[[], None] | None,
) -> tuple[Tensor, Tensor]:
    n_best = min(n_best, model.config.vocab_size - len(excluded_ids))
    excluded = torch.tensor(excluded_ids, dtype=torch.int64, device=stream.device)
    found_ids: list[list[Tensor]] = []
    found: list[list[Tensor]] = []
    for x in stream:
        found_ids.append([])
        found.append([])
        for start in range(0, len(x), _BLOCK):
            rows = x[start : start + _BLOCK]
            if check is not None:
                check()
            normed: Tensor = model.ln_final(rows) if model.config.norm_position == "pre" else rows
            logits = model.logits(normed).float().index_fill(-1, excluded, -torch.inf)
            best = softmax(logits, -1).topk(n_best)
            found_ids[-1].append(best.indices.cpu())
            found[-1].append(best.values.cpu())
    return torch.stack([torch.cat(own) for own in found_ids]), torch.stack([torch.cat(own) for own in found])


def _with_shared_weights(model: TransformerLM) -> TransformerLM:
    """Return a model of its own modules, whose tensors are those of `model`."""
    tensors = [*model.parameters(), *model.buffers()]
    return copy.deepcopy(model, {id(tensor): tensor for tensor in tensors})
