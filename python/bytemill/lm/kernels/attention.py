"""Causal attention block by block: a block of queries sees only the keys that it may, and no weights are kept.

For the backward pass it is enough to keep log Σ exp of each row of scores, from which the weights are made anew (Dao et
al. 2022). That is one matrix product more, and saves (tokens × tokens) numbers a head. Blocks above the diagonal are
never computed.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bytemill.lm.tensors import widened

if TYPE_CHECKING:
    from collections.abc import Iterator

# Queries of a block, and scores that are treated together. On the CPU 2¹⁸ scores are 1 MB, which stays in cache: one
# sequence of 256 tokens and 16 heads, whose heads need no copy, or several smaller ones, which share a call's cost.
_QUERIES_CPU, _SCORES_CPU = 64, 2**18
_QUERIES, _SCORES = 512, 2**27


def causal_attention(q: Tensor, k: Tensor, v: Tensor, window: int | None = None) -> Tensor:
    """softmax(q kᵀ / √d + causal mask) v, each (batch, heads, n_tokens, d) -> the same.

    With a window, a token sees itself and the window − 1 tokens before it.
    """
    return cast("Tensor", _CausalAttention.apply(q, k, v, window))  # pyright: ignore[reportUnknownMemberType]


class _CausalAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, window: int | None) -> Tensor:
        with torch.autocast(q.device.type, enabled=False):
            batch, n_heads, n_tokens, d = q.shape
            # In memory (batch, tokens, heads, d), so that joining the heads is no copy.
            result = torch.empty(batch, n_tokens, n_heads, d, device=q.device, dtype=q.dtype).transpose(1, 2)
            dtype = widened(q[:0]).dtype
            normalizers = torch.empty(batch, n_heads, n_tokens, 1, device=q.device, dtype=dtype)
            for rows in _batches(q):
                for queries, keys, hidden in _blocks(q, window):
                    q_block = q[rows, :, queries].flatten(0, 1)
                    scores = _scores(q_block, k[rows, :, keys].flatten(0, 1), hidden)
                    greatest = scores.amax(-1, keepdim=True)
                    total = scores.sub_(greatest).exp_().sum(-1, keepdim=True)
                    mixed = torch.bmm(scores.to(v.dtype), v[rows, :, keys].flatten(0, 1))
                    shape = (-1, n_heads, mixed.shape[1])
                    result[rows, :, queries] = (mixed / total).view(*shape, d)
                    normalizers[rows, :, queries] = total.log_().add_(greatest).view(*shape, 1)
            ctx.save_for_backward(q, k, v, result, normalizers)
            ctx.window = window
            return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        q, k, v, result, normalizers = ctx.saved_tensors
        d_q, d_k, d_v = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        n_heads, scale = q.shape[1], 1 / math.sqrt(q.shape[-1])
        for rows in _batches(q):
            shape = (-1, n_heads, *q.shape[2:])
            sums_k = torch.zeros(
                len(q[rows]) * n_heads, *q.shape[2:], device=q.device, dtype=normalizers.dtype
            )
            sums_v = torch.zeros_like(sums_k)
            for queries, keys, hidden in _blocks(q, ctx.window):
                q_block, k_block, v_block, g = (
                    t.flatten(0, 1)
                    for t in (
                        q[rows, :, queries],
                        k[rows, :, keys],
                        v[rows, :, keys],
                        gradient[rows, :, queries],
                    )
                )
                weights = _scores(q_block, k_block, hidden)
                weights.sub_(normalizers[rows, :, queries].flatten(0, 1)).exp_()
                # Σⱼ wᵢⱼ (gᵢ·vⱼ) = gᵢ·yᵢ, so the gradient of the scores is w ⊙ (g vᵀ − g·y).
                along = (g * result[rows, :, queries].flatten(0, 1)).sum(-1, keepdim=True)
                sums_v[:, keys] += torch.bmm(weights.to(g.dtype).mT, g)
                d_scores = widened(torch.bmm(g, v_block.mT)).sub_(along).mul_(weights).to(q.dtype)
                d_q[rows, :, queries] = (
                    torch.bmm(d_scores, k_block).mul_(scale).view(-1, n_heads, *q_block.shape[1:])
                )
                sums_k[:, keys] += torch.bmm(d_scores.mT, q_block)
            d_k[rows] = sums_k.mul_(scale).view(shape)
            d_v[rows] = sums_v.view(shape)
        return d_q, d_k, d_v, None


def _batches(q: Tensor) -> Iterator[slice]:
    """Sequences to treat together."""
    batch, n_heads, n_tokens, _ = q.shape
    queries, scores = (_QUERIES_CPU, _SCORES_CPU) if q.device.type == "cpu" else (_QUERIES, _SCORES)
    step = max(1, scores // (n_heads * min(n_tokens, queries) * n_tokens))
    for start in range(0, batch, step):
        yield slice(start, min(start + step, batch))


def _blocks(q: Tensor, window: int | None) -> Iterator[tuple[slice, slice, Tensor]]:
    """Queries, the keys that any of them may see, and −∞ where a query of the block may not see a key (else 0)."""
    n_tokens = q.shape[2]
    step = _QUERIES_CPU if q.device.type == "cpu" else _QUERIES
    for start in range(0, n_tokens, step):
        end = min(start + step, n_tokens)
        first = 0 if window is None else max(0, start - window + 1)
        positions = torch.arange(first, end, device=q.device)
        distance = positions[start - first :, None] - positions
        seen = distance >= 0 if window is None else (distance >= 0) & (distance < window)
        hidden = torch.zeros_like(distance, dtype=widened(q[:0]).dtype).masked_fill_(~seen, -math.inf)
        yield slice(start, end), slice(first, end), hidden


def _scores(q: Tensor, k: Tensor, hidden: Tensor) -> Tensor:
    """q kᵀ / √d + hidden, in float32 at least."""
    scale = 1 / math.sqrt(q.shape[-1])
    if q.dtype == hidden.dtype:
        return torch.baddbmm(hidden, q, k.mT, alpha=scale)
    return widened(torch.bmm(q * scale, k.mT)).add_(hidden)
