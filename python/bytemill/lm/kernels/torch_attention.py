"""torch's attention kernels, which never store all weights at once."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, cast

import torch
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor


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
    q: Tensor, k: Tensor, v: Tensor, window: int | None = None, document_starts: Tensor | None = None
) -> Tensor:
    """Compute causal attention.

    Args:
        q: Queries (batch, n_heads, n_tokens, d).
        k: Keys (batch, n_kv_heads, n_tokens, d).
        v: Values, of the shape of the keys.
        window: A token attends to itself and the window − 1 tokens before it.
        document_starts: (batch, n_tokens), position of the first token of each token's document; it attends to none
            before that.
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
    q: Tensor, k: Tensor, v: Tensor, window: int | None, document_starts: Tensor | None = None
) -> Tensor:
    """Compute `windowed_attention` by FlexAttention, which skips blocks that are masked as a whole."""
    n_tokens = q.shape[-2]
    if document_starts is not None:
        mask = _block_mask(n_tokens, window or n_tokens, q.device, document_starts)
    elif torch.compiler.is_compiling():  # the compiler does not look into a cache
        mask = _block_mask(n_tokens, window or n_tokens, q.device)
    else:
        mask = _cached_block_mask(n_tokens, window or n_tokens, q.device)
    kernel = _flex() if q.device.type == "cuda" and not torch.compiler.is_compiling() else _uncompiled_flex()
    return cast("Tensor", kernel(q, k, v, block_mask=mask, enable_gqa=q.shape[1] > k.shape[1]))


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
