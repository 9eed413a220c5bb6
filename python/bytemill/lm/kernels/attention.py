"""Attention, block by block, and by torch's kernels; none stores all weights at once.

For the backward pass, log Σ exp of each row of scores is saved, and the weights are computed again (Dao et al. 2022).
This costs one more matrix product, and saves n_tokens² numbers per head.
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from bytemill.lm.tensors import narrowed, widened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


# Queries per block, and scores per batch of blocks. On the CPU, 2¹⁸ scores are 1 MB, which stays in cache: one sequence
# of 256 tokens and 16 heads, or several smaller ones that share the cost of a call.
_QUERIES_CPU, _SCORES_CPU = 64, 2**18
_QUERIES, _SCORES = 512, 2**27


def causal_attention(
    q: Tensor, k: Tensor, v: Tensor, window: int | None = None, document_starts: Tensor | None = None
) -> Tensor:
    """Compute softmax(q kᵀ / √d + causal mask) v.

    Under autocast, the products are in its type; scores and their sums are float32.

    Args:
        q: Queries (batch, n_heads, n_tokens, d).
        k: Keys (batch, n_kv_heads, n_tokens, d); groups of query heads share them.
        v: Values, of the shape of the keys.
        window: A token attends to itself and the window − 1 tokens before it; by default to all.
        document_starts: (batch, n_tokens), position of the first token of each token's document; it attends to none
            before that. The positions of a row never decrease.
    """
    q, k, v = narrowed(q), narrowed(k), narrowed(v)
    return cast("Tensor", _CausalAttention.apply(q, k, v, window, document_starts))  # pyright: ignore[reportUnknownMemberType]


class _CausalAttention(torch.autograd.Function):
    @staticmethod
    def forward(  # noqa: PLR0917 - autograd passes positional arguments
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, window: int | None, starts: Tensor | None
    ) -> Tensor:
        result, log_sums = attend(q, k, v, window, starts)
        ctx.save_for_backward(q, k, v, result, log_sums)
        ctx.window, ctx.starts = window, starts
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        q, k, v, result, log_sums = ctx.saved_tensors
        gradients = attend_backward(gradient, q, k, v, result, log_sums, ctx.window, ctx.starts)
        return *gradients, None, None


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    window: int | None = None,
    starts: Tensor | None = None,
    *,
    is_causal: bool = True,
) -> tuple[Tensor, Tensor]:
    """Compute attention, without a graph.

    Args:
        q: Queries (batch, n_heads, n_tokens, d).
        k: Keys (batch, n_kv_heads, n_tokens, d).
        v: Values, of the shape of the keys.
        window: See `causal_attention`.
        starts: See `causal_attention`.
        is_causal: A token attends to none after it.

    Returns:
        The result, of the shape of `q`, and log Σ exp of the scores of each query, (batch, n_heads, n_tokens, 1).
    """
    with torch.autocast(q.device.type, enabled=False):
        batch, n_heads, n_tokens, d = q.shape
        # (batch, n_tokens, n_heads, d) in memory, so that joining the heads needs no copy.
        result = torch.empty(batch, n_tokens, n_heads, d, device=q.device, dtype=q.dtype).transpose(1, 2)
        dtype = widened(q[:0]).dtype
        log_sums = torch.empty(batch, n_heads, n_tokens, 1, device=q.device, dtype=dtype)
        for rows in _batches(q):
            for queries, keys, mask in _blocks(q, k, window, starts, rows, is_causal=is_causal):
                q_block = _grouped(q[rows, :, queries], k)
                scores = _scores(q_block, k[rows, :, keys].flatten(0, 1), mask)
                maximum = scores.amax(-1, keepdim=True)
                total = scores.sub_(maximum).exp_().sum(-1, keepdim=True)
                mixed = torch.bmm(scores.to(v.dtype), v[rows, :, keys].flatten(0, 1))
                shape = (-1, n_heads, queries.stop - queries.start)
                result[rows, :, queries] = (mixed / total).view(*shape, d)
                log_sums[rows, :, queries] = total.log_().add_(maximum).view(*shape, 1)
        return result, log_sums


def attend_backward(  # noqa: PLR0917 - in the order of what `attend` takes and gives
    gradient: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    result: Tensor,
    log_sums: Tensor,
    window: int | None = None,
    starts: Tensor | None = None,
    *,
    is_causal: bool = True,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of q, k and v, from that of the result; see `attend`."""
    d_q, d_k, d_v = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    n_heads, scale = q.shape[1], 1 / math.sqrt(q.shape[-1])
    for rows in _batches(q):
        sums_k = torch.zeros(len(k[rows]) * k.shape[1], *k.shape[2:], device=q.device, dtype=log_sums.dtype)
        sums_v = torch.zeros_like(sums_k)
        for queries, keys, mask in _blocks(q, k, window, starts, rows, is_causal=is_causal):
            k_block, v_block = k[rows, :, keys].flatten(0, 1), v[rows, :, keys].flatten(0, 1)
            q_block, g, y = (_grouped(t[rows, :, queries], k) for t in (q, gradient, result))
            weights = _scores(q_block, k_block, mask)
            weights.sub_(_grouped(log_sums[rows, :, queries], k)).exp_()
            # Σⱼ wᵢⱼ (gᵢ·vⱼ) = gᵢ·yᵢ, so the gradient of the scores is w ⊙ (g vᵀ − g·y).
            along = (widened(g) * y).sum(-1, keepdim=True)
            sums_v[:, keys] += torch.bmm(weights.to(g.dtype).mT, g)
            d_scores = widened(torch.bmm(g, v_block.mT)).sub_(along).mul_(weights).to(q.dtype)
            d_q[rows, :, queries] = (
                torch.bmm(d_scores, k_block)
                .mul_(scale)
                .view(-1, n_heads, queries.stop - queries.start, q.shape[-1])
            )
            sums_k[:, keys] += torch.bmm(d_scores.mT, q_block)
        d_k[rows] = sums_k.mul_(scale).view(-1, *k.shape[1:])
        d_v[rows] = sums_v.view(-1, *k.shape[1:])
    return d_q, d_k, d_v


def _batches(q: Tensor) -> Iterator[slice]:
    """Yield slices of sequences to process together."""
    batch, n_heads, n_tokens, _ = q.shape
    queries, scores = (_QUERIES_CPU, _SCORES_CPU) if q.device.type == "cpu" else (_QUERIES, _SCORES)
    step = max(1, scores // (n_heads * min(n_tokens, queries) * n_tokens))
    for start in range(0, batch, step):
        yield slice(start, min(start + step, batch))


def _grouped(block: Tensor, k: Tensor) -> Tensor:
    """(batch, n_heads, n, d) -> (batch · n_kv_heads, n_groups · n, d): heads that share keys become rows."""
    return block.reshape(len(block) * k.shape[1], -1, block.shape[-1])


def _blocks(
    q: Tensor, k: Tensor, window: int | None, starts: Tensor | None, rows: slice, *, is_causal: bool
) -> Iterator[tuple[slice, slice, Tensor]]:
    """Yield a block of queries, the keys that some of `rows` attend to, and their mask: −∞ where forbidden, else 0.

    The mask is (n_groups · n_queries, n_keys), and with document starts (n_rows · n_kv_heads, …).
    """
    n_tokens, n_groups = q.shape[2], q.shape[1] // k.shape[1]
    step = _QUERIES_CPU if q.device.type == "cpu" else _QUERIES
    for start in range(0, n_tokens, step):
        end = min(start + step, n_tokens)
        if not is_causal:
            shape = (n_groups * (end - start), n_tokens)
            yield slice(start, end), slice(0, n_tokens), q.new_zeros(shape, dtype=widened(q[:0]).dtype)
            continue
        first = 0 if window is None else max(0, start - window + 1)
        if starts is not None:
            first = max(first, int(starts[rows, start].min()))
        positions = torch.arange(first, end, device=q.device)
        distance = positions[start - first :, None] - positions
        is_visible = distance >= 0 if window is None else (distance >= 0) & (distance < window)
        if starts is not None:
            is_visible = is_visible & (positions >= starts[rows, start:end, None])
        mask = torch.zeros_like(is_visible, dtype=widened(q[:0]).dtype).masked_fill_(~is_visible, -math.inf)
        mask = mask.repeat(*[1] * (mask.ndim - 2), n_groups, 1)
        yield (
            slice(start, end),
            slice(first, end),
            mask if starts is None else mask.repeat_interleave(k.shape[1], 0),
        )


def _scores(q: Tensor, k: Tensor, mask: Tensor) -> Tensor:
    """Compute q kᵀ / √d + mask, in float32 or wider."""
    scale = 1 / math.sqrt(q.shape[-1])
    if q.dtype == mask.dtype:
        return torch.baddbmm(mask, q, k.mT, alpha=scale)
    return widened(torch.bmm(q * scale, k.mT)).add_(mask)


def sdpa(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, dropout: float = 0.0, *, causal: bool = False
) -> Tensor:
    """Compute `attention.scaled_dot_product_attention`; groups of query heads share keys and values without copies.

    Args:
        q: Queries (batch, n_heads, n_queries, d_k).
        k: Keys (batch, n_kv_heads, n_keys, d_k).
        v: Values (batch, n_kv_heads, n_keys, d_v).
        mask: Boolean, broadcastable to (batch, n_heads, n_queries, n_keys); True where a query may attend to a key.
        dropout: Dropout rate of the attention weights.
        causal: Apply the causal mask; `mask` must be None then.
    """
    options: dict[str, Any] = {"attn_mask": mask, "dropout_p": dropout, "is_causal": causal}
    n_groups = q.shape[1] // k.shape[1]
    if n_groups == 1 or q.device.type == "cuda":
        return functional.scaled_dot_product_attention(q, k, v, enable_gqa=n_groups > 1, **options)
    # On other devices, enable_gqa copies keys and values for each query head.
    heads = q.view(len(q), k.shape[1], n_groups, *q.shape[2:])
    mixed = [
        functional.scaled_dot_product_attention(heads[:, :, group], k, v, **options)
        for group in range(n_groups)
    ]
    return torch.stack(mixed, dim=2).flatten(1, 2)


def windowed_attention(
    q: Tensor, k: Tensor, v: Tensor, window: int | None = None, document_starts: Any = None
) -> Tensor:
    """Compute causal attention.

    Args:
        q: Queries (batch, n_heads, n_tokens, d).
        k: Keys (batch, n_kv_heads, n_tokens, d).
        v: Values, of the shape of the keys.
        window: A token attends to itself and the window − 1 tokens before it.
        document_starts: (batch, n_tokens), position of the first token of each token's document; it attends to none
            before that. Or the result of `flex_mask` for them.
    """
    if window is None and document_starts is None:
        return sdpa(q, k, v, causal=True)
    if q.device.type == "cuda":
        return flex_attention(q, k, v, window, document_starts)
    positions = torch.arange(q.shape[-2], device=q.device)
    distance = positions[:, None] - positions
    mask = distance >= 0 if window is None else (distance >= 0) & (distance < window)
    if document_starts is not None:
        mask = mask & (positions >= document_starts[:, None, :, None])
    return sdpa(q, k, v, mask)


def flex_attention(
    q: Tensor, k: Tensor, v: Tensor, window: int | None, document_starts: Any = None
) -> Tensor:
    """Compute `windowed_attention` by FlexAttention, which skips blocks that are masked as a whole."""
    n_tokens = q.shape[-2]
    if document_starts is not None:
        is_mask = not isinstance(document_starts, Tensor)
        mask = document_starts if is_mask else flex_mask(document_starts, window)
    elif torch.compiler.is_compiling():  # the compiler does not look into a cache
        mask = _block_mask(n_tokens, window or n_tokens, q.device)
    else:
        mask = _cached_block_mask(n_tokens, window or n_tokens, q.device)
    kernel = _flex() if q.device.type == "cuda" and not torch.compiler.is_compiling() else _uncompiled_flex()
    return cast("Tensor", kernel(q, k, v, block_mask=mask, enable_gqa=q.shape[1] > k.shape[1]))


def flex_mask(document_starts: Tensor, window: int | None) -> Any:
    """Return the mask of documents for FlexAttention, which all layers share."""
    n_tokens = document_starts.shape[1]
    return _block_mask(n_tokens, window or n_tokens, document_starts.device, document_starts)


def _block_mask(
    n_tokens: int, window: int, device: torch.device, document_starts: Tensor | None = None
) -> Any:
    from torch.nn.attention.flex_attention import create_block_mask

    def is_visible(batch: Tensor, _head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        in_window = (query >= key) & (query - key < window)
        return in_window if document_starts is None else in_window & (key >= document_starts[batch, query])

    n_rows = None if document_starts is None else len(document_starts)
    return create_block_mask(is_visible, n_rows, None, n_tokens, n_tokens, device=device)  # pyright: ignore[reportArgumentType]


_cached_block_mask = cache(_block_mask)


def _uncompiled_flex() -> Callable[..., Any]:
    from torch.nn.attention.flex_attention import flex_attention as kernel

    return kernel


@cache
def _flex() -> Callable[..., Any]:
    return torch.compile(_uncompiled_flex())
