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


def windowed_attention(q: Tensor, k: Tensor, v: Tensor, window: int | None = None) -> Tensor:
    """Compute causal attention; with a window, a token attends to itself and the window − 1 tokens before it."""
    if window is None:
        return sdpa(q, k, v, causal=True)
    if q.device.type == "cuda":
        return flex_attention(q, k, v, window)
    positions = torch.arange(q.shape[-2], device=q.device)
    distance = positions[:, None] - positions
    return sdpa(q, k, v, (distance >= 0) & (distance < window))


def flex_attention(q: Tensor, k: Tensor, v: Tensor, window: int) -> Tensor:
    """Compute attention under a sliding window by FlexAttention, which skips blocks outside the window."""
    # The compiler does not look into a cache; it computes the mask in the graph.
    make_mask = _window_mask.__wrapped__ if torch.compiler.is_compiling() else _window_mask
    mask = make_mask(q.shape[-2], window, q.device)
    kernel = _flex() if q.device.type == "cuda" and not torch.compiler.is_compiling() else _uncompiled_flex()
    return cast("Tensor", kernel(q, k, v, block_mask=mask, enable_gqa=q.shape[1] > k.shape[1]))


@cache
def _window_mask(n_tokens: int, window: int, device: torch.device) -> Any:
    from torch.nn.attention.flex_attention import create_block_mask

    def is_visible(_batch: Tensor, _head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (query >= key) & (query - key < window)

    return create_block_mask(is_visible, None, None, n_tokens, n_tokens, device=device)  # pyright: ignore[reportArgumentType]


def _uncompiled_flex() -> Callable[..., Any]:
    from torch.nn.attention.flex_attention import flex_attention as kernel

    return kernel


@cache
def _flex() -> Callable[..., Any]:
    return torch.compile(_uncompiled_flex())
