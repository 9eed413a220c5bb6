"""The operations of one decoding step, a new token for each row, on a cache of fixed capacity.

A step consists of `embed_next`, in each block `project`, `attend` and three times `project`, then `project` to logits,
and `choose`. Positions are read from a tensor, so one CUDA graph serves every length. These are torch's versions: the
reference of `kernels.triton.decoding`, and what runs without Triton.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from bytemill.lm.kernels.attention import sdpa, windowed_attention

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor


@dataclass(frozen=True)
class Norm:
    """LayerNorm if `centred`, else RMSNorm, over the last dimension, in float32."""

    weight: Tensor
    bias: Tensor | None
    eps: float
    centred: bool


@dataclass(frozen=True)
class Projection:
    """activation(weight norm(x) + bias)."""

    weight: Tensor
    """(n_out, n_in), in the type of the decoder. With the activation "swiglu" its first half are the gates."""
    bias: Tensor | None = None
    """(n_out,) in float32."""
    norm: Norm | None = None
    activation: str | None = None
    """Name in `ModelConfig.feed_forward`."""
    soft_cap: float | None = None

    @property
    def n_results(self) -> int:
        return len(self.weight) // (2 if self.activation == "swiglu" else 1)


@dataclass(frozen=True)
class Heads:
    """The heads of one layer and their cache."""

    n_heads: int
    n_kv_heads: int
    width: int
    window: int | None
    """A token attends to itself and the window − 1 tokens before it; None: to all."""
    rotations: Tensor | None
    """cos and sin of each position, (n_positions, width / 2, 2) in float32."""
    q_norm: Tensor | None
    """Weight of the RMSNorm of each query head; None: no norm of queries and keys."""
    k_norm: Tensor | None
    eps: float
    keys: Tensor
    """(n_rows, n_kv_heads, capacity, width); zeros, or any other finite numbers, after a row's position."""
    values: Tensor


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": partial(functional.gelu, approximate="tanh"),
    "gelu_exact": functional.gelu,
    "relu": torch.relu,
    "relu2": lambda x: torch.relu(x).square(),
}


prompt_attention = windowed_attention
"""(q, k, v, window) -> causal attention of `attend_to_prompt`."""


def normalize(x: Tensor, norm: Norm) -> Tensor:
    """Return the norm of each row of `x`, in float32."""
    width = (x.shape[-1],)
    if norm.centred:
        return functional.layer_norm(x.float(), width, norm.weight, norm.bias, norm.eps)
    return functional.rms_norm(x.float(), width, norm.weight, norm.eps)


def embed(ids: Tensor, positions: Tensor, table: Tensor, position_table: Tensor | None) -> Tensor:
    """Return the sum of token and position embeddings, (…, d_model) in float32; an id below 0 reads the first row."""
    x = functional.embedding(ids.clamp_min(0), table).float()
    return x if position_table is None else x + functional.embedding(positions, position_table).float()


def embed_next(ids: Tensor, state: Tensor, table: Tensor, position_table: Tensor | None) -> Tensor:
    """Return the embeddings of a new token of each row.

    Args:
        ids: (n_rows,).
        state: (2, n_rows), the position of the last token, and the index of the last random number; both grow by 1.
        table: See `embed`, also for `position_table`.
    """
    state.add_(1)
    return embed(ids, state[0], table, position_table)


def project(
    x: Tensor, projection: Projection, residual: Tensor | None = None, out: Tensor | None = None
) -> Tensor:
    """Compute a projection of each row.

    Args:
        x: (…, n_in).
        projection: The weights.
        residual: Added to the result, in float32; of projections without activation.
        out: Receives the result, in float32.

    Returns:
        (…, n_results): float32 with `residual` or `out`, else the type of the weights.
    """
    weight, bias = projection.weight, projection.bias
    if projection.norm is not None:
        x = normalize(x, projection.norm)
    x = x.to(weight.dtype)
    if out is not None:  # logits: a narrow type would round different ones to the same number
        x, weight = x.float(), weight.float()
    y = functional.linear(x, weight, None if bias is None else bias.to(weight.dtype))
    if projection.activation == "swiglu":
        gate, y = y.chunk(2, dim=-1)
        y = functional.silu(gate) * y
    elif projection.activation is not None:
        y = ACTIVATIONS[projection.activation](y)
    if projection.soft_cap is not None:
        y = projection.soft_cap * torch.tanh(y / projection.soft_cap)
    if residual is not None:
        y = residual + y
    return y if out is None else out.copy_(y)


def attend(qkv: Tensor, heads: Heads, positions: Tensor) -> Tensor:
    """Add a token to the cache of each row, and attend to it and to those before it.

    Args:
        qkv: Queries, keys and values of the new tokens, (n_rows, (n_heads + 2 n_kv_heads) · width).
        heads: The heads; their cache changes.
        positions: (n_rows,), the number of tokens in the cache of each row.

    Returns:
        (n_rows, n_heads · width).
    """
    q, k, v = _heads_of(qkv[:, None], heads, positions[:, None])
    rows = torch.arange(len(qkv), device=qkv.device)
    heads.keys[rows, :, positions] = k[:, :, 0]
    heads.values[rows, :, positions] = v[:, :, 0]
    distances = positions[:, None] - torch.arange(heads.keys.shape[2], device=qkv.device)
    is_visible = (distances >= 0) & (distances < (heads.window or math.inf))
    return sdpa(q, heads.keys, heads.values, is_visible[:, None, None]).flatten(1)


def attend_to_prompt(qkv: Tensor, heads: Heads, attention: Callable[..., Tensor]) -> Tensor:
    """Write the first tokens of each row to the cache, and attend causally.

    Args:
        qkv: Queries, keys and values, (n_rows, n_tokens, …); with one row, it is that of all rows of the cache.
        heads: The heads; their cache changes.
        attention: See `prompt_attention`.

    Returns:
        (n_rows, n_tokens, n_heads · width).
    """
    n_tokens = qkv.shape[1]
    q, k, v = _heads_of(qkv, heads, torch.arange(n_tokens, device=qkv.device)[None])
    heads.keys[:, :, :n_tokens] = k
    heads.values[:, :, :n_tokens] = v
    return attention(q, k, v, heads.window).transpose(1, 2).flatten(2)


def _heads_of(qkv: Tensor, heads: Heads, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return normalized and rotated queries and keys, and values, (n_rows, n_heads, n_tokens, width)."""
    n_rows, n_tokens, _ = qkv.shape
    joined = qkv.view(n_rows, n_tokens, -1, heads.width)
    n_heads, n_all = heads.n_heads, heads.n_heads + heads.n_kv_heads
    q, k, v = joined[:, :, :n_heads], joined[:, :, n_heads:n_all], joined[:, :, n_all:]
    if heads.q_norm is not None and heads.k_norm is not None:
        q = normalize(q, Norm(heads.q_norm, None, heads.eps, centred=False))
        k = normalize(k, Norm(heads.k_norm, None, heads.eps, centred=False))
    if heads.rotations is not None:
        rotations = heads.rotations[positions][:, :, None]
        q, k = _rotated(q, rotations), _rotated(k, rotations)
    q, k, v = (part.to(heads.keys.dtype).transpose(1, 2) for part in (q, k, v))
    return q, k, v


def _rotated(x: Tensor, rotations: Tensor) -> Tensor:
    cos, sin = rotations.unbind(-1)
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)


def choose(
    logits: Tensor,
    uniforms: Tensor | None,
    indices: Tensor,
    temperature: float,
    allowed: Tensor | None,
    *,
    is_cut: bool = False,
    out: Tensor,
) -> None:
    """Choose the id of each row, as `sampling.draw` does; −1 if the row has logits that are not finite.

    Args:
        logits: (n_rows, vocab_size) in float32.
        uniforms: Numbers from 0 to 1 that decide, (n_rows, n) in float64; None: take the most likely ids.
        indices: (n_rows,), the number of each row that decides.
        temperature: Divides the logits.
        allowed: (vocab_size,), False for ids that are never chosen.
        is_cut: The logits are a result of `cut_off`, and −∞ marks ids that were cut off.
        out: Receives the ids, (n_rows,).
    """
    is_wrong = torch.isnan(logits) | (logits == math.inf if is_cut else torch.isinf(logits))
    x = logits if allowed is None else logits.masked_fill(~allowed, -math.inf)
    if uniforms is None:
        ids = x.argmax(-1)
    else:
        weights = ((x - x.amax(-1, keepdim=True)) / temperature).exp()
        sums = weights.double().cumsum(-1)
        targets = sums[:, -1:] * uniforms.gather(1, indices[:, None])
        last = weights.shape[-1] - 1 - (weights > 0).flip(-1).int().argmax(-1)
        ids = torch.minimum((sums <= targets).sum(-1), last)  # rounded sums may stay below the target
    out.copy_(ids.masked_fill(is_wrong.any(-1), -1))


def cut_off(
    logits: Tensor, temperature: float, allowed: Tensor | None, *, top_k: int, top_p: float, min_p: float
) -> Tensor:
    """Return the logits divided by the temperature, with −∞ for ids that are cut off, as `next_log_probabilities` does.

    Args:
        logits: (n_rows, vocab_size) in float32; a row with NaN or infinities becomes NaN.
        temperature: See `SamplingParameters`.
        allowed: (vocab_size,), False for ids that are never chosen.
        top_k: See `SamplingParameters`, also for `top_p` and `min_p`.
    """
    is_wrong = ~torch.isfinite(logits).all(-1, keepdim=True)
    x = logits if allowed is None else logits.masked_fill(~allowed, -math.inf)
    x = (x - x.amax(-1, keepdim=True)) / temperature
    if 0 < top_k < x.shape[-1]:
        least = x.topk(top_k, dim=-1).values[:, -1:]
        is_tied = x == least
        n_left = top_k - (x > least).sum(-1, keepdim=True)
        # Of equal logits, those of the lowest ids are kept.
        x = x.masked_fill(~((x > least) | (is_tied & (is_tied.cumsum(-1) <= n_left))), -math.inf)
    if top_p < 1:
        ordered, order = x.sort(dim=-1, descending=True, stable=True)
        probabilities = ordered.softmax(-1)
        is_kept = probabilities.cumsum(-1) - probabilities < top_p
        is_kept[:, 0] = True  # also with a top_p that is 0 in float32
        x = x.masked_fill(~torch.empty_like(is_kept).scatter_(-1, order, is_kept), -math.inf)
    if min_p > 0:
        x = x.masked_fill(x < math.log(min_p), -math.inf)
    return x.masked_fill(is_wrong, math.nan)
