"""Attention: which tokens look where, and what they take from there."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import Module

from bytemill.errors import ModelConfigError
from bytemill.lm.activations import softmax
from bytemill.lm.kernels.attention import causal_attention
from bytemill.lm.kernels.rows import by_hand
from bytemill.lm.layers import Dropout, Linear
from bytemill.lm.rotary import RotaryEmbedding

if TYPE_CHECKING:
    from bytemill.lm.kv_cache import LayerCache
    from bytemill.lm.model_config import AttentionKind

__all__ = [
    "MultiHeadSelfAttention",
    "RotaryEmbedding",
    "causal_mask",
    "fused_attention",
    "scaled_dot_product_attention",
    "softmax",
]


def scaled_dot_product_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, dropout: Module | None = None
) -> Tensor:
    """softmax(q kᵀ / √d_k) v: (..., n_queries, d_k), (..., n_keys, d_k), (..., n_keys, d_v) -> (..., n_queries, d_v).

    `mask` is boolean, of a shape that broadcasts to (..., n_queries, n_keys): True where a query may attend to a key.
    A query that may attend to nothing gets zeros. `dropout` is applied to the weights (Vaswani et al. 2017).
    """
    scores = (q / math.sqrt(q.shape[-1])) @ k.mT
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    weights = softmax(scores, dim=-1)
    if dropout is not None:
        weights = dropout(weights)
    return weights @ v


def fused_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, *, dropout: float = 0.0, causal: bool = False
) -> Tensor:
    """`scaled_dot_product_attention` by torch's kernel, which never holds all the weights at once.

    Shapes are (batch, heads, tokens, d). `causal` stands for the mask of that name and needs none.
    """
    return torch.nn.functional.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=causal
    )


def causal_mask(
    n_queries: int,
    n_keys: int,
    window: int | None = None,
    n_padding: Tensor | None = None,
    device: torch.device | str | None = None,
) -> Tensor:
    """True where a query may attend: to itself and to what stands before it, the queries being the last of the keys.

    With a window only to itself and the window − 1 tokens before. `n_padding` of shape (batch,) hides so many keys at
    the start of each row. The shape is (n_queries, n_keys), or (batch, 1, n_queries, n_keys) with padding.

    >>> causal_mask(2, 3, window=2).int().tolist()
    [[1, 1, 0], [0, 1, 1]]
    """
    keys = torch.arange(n_keys, device=device)
    queries = torch.arange(n_keys - n_queries, n_keys, device=device)[:, None]
    mask = keys <= queries
    if window is not None:
        mask = mask & (keys > queries - window)
    if n_padding is not None:
        mask = mask & (keys >= n_padding.to(keys.device)[:, None, None, None])
    return mask


class MultiHeadSelfAttention(Module):
    """Causal self-attention in `num_heads` heads: (..., n_tokens, d_model) -> the same (Vaswani et al. 2017).

    With `rope`, queries and keys are turned by their positions. With `num_kv_heads`, groups of query heads share keys
    and values (Ainslie et al. 2023).
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        rope: RotaryEmbedding | None = None,
        *,
        num_kv_heads: int | None = None,
        sliding_window: int | None = None,
        dropout: float = 0.0,
        bias: bool = False,
        attention: AttentionKind = "scratch",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.n_heads = num_heads
        self.n_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        if d_model % num_heads or num_heads % self.n_kv_heads:
            raise ModelConfigError(
                f"d_model {d_model}, num_heads {num_heads} and num_kv_heads {self.n_kv_heads} do not fit",
                hint="num_heads has to divide d_model, and num_kv_heads num_heads",
            )
        self.d_head = d_model // num_heads
        self.window = sliding_window
        self.kind: AttentionKind = attention
        self.rope = rope
        d_kv = self.n_kv_heads * self.d_head
        self.q_proj = Linear(d_model, d_model, bias, device=device, dtype=dtype)
        self.k_proj = Linear(d_model, d_kv, bias, device=device, dtype=dtype)
        self.v_proj = Linear(d_model, d_kv, bias, device=device, dtype=dtype)
        self.output_proj = Linear(d_model, d_model, bias, device=device, dtype=dtype)
        self.dropout = Dropout(dropout)

    def forward(
        self,
        x: Tensor,
        token_positions: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        cache: LayerCache | None = None,
    ) -> Tensor:
        """`token_positions` (n_tokens,) or (..., n_tokens) are for the rotary embedding: 0, 1, 2, … by default.

        `mask` replaces the causal one. With a cache, `x` are the tokens behind those in it.
        """
        *batch, n_tokens, d_model = x.shape
        x = x.reshape(math.prod(batch), n_tokens, d_model)
        q = self._heads(self.q_proj(x), self.n_heads)
        k = self._heads(self.k_proj(x), self.n_kv_heads)
        v = self._heads(self.v_proj(x), self.n_kv_heads)
        if self.rope is not None:
            if token_positions is not None and token_positions.ndim > 1:
                # (..., n_tokens) -> (batch, 1, n_tokens): the same for every head.
                token_positions = token_positions.expand(*batch, n_tokens).reshape(-1, 1, n_tokens)
            q, k = self.rope(q, token_positions), self.rope(k, token_positions)
        if cache is not None:
            k, v = cache.extended(k, v)
        if self.n_kv_heads < self.n_heads:
            k, v = (t.repeat_interleave(self.n_heads // self.n_kv_heads, dim=1) for t in (k, v))
        mixed = self._attend(q, k, v, mask)
        return self.output_proj(mixed.transpose(1, 2).reshape(*batch, n_tokens, d_model))

    def _heads(self, x: Tensor, n_heads: int) -> Tensor:
        """(batch, n_tokens, n_heads · d_head) -> (batch, n_heads, n_tokens, d_head)."""
        return x.view(*x.shape[:-1], n_heads, self.d_head).transpose(1, 2)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """(batch, n_heads, n_queries, d_head)."""
        n_queries, n_keys = q.shape[-2], k.shape[-2]
        whole = mask is None and n_queries == n_keys
        if self.kind == "scratch" and whole and by_hand(q) and not (self.training and self.dropout.p):
            return causal_attention(q, k, v, self.window)
        causal = whole and self.window is None
        if mask is None and not causal:
            mask = causal_mask(n_queries, n_keys, self.window, device=q.device)
        if self.kind == "fused":
            return fused_attention(
                q, k, v, mask, dropout=self.dropout.p if self.training else 0.0, causal=causal
            )
        if mask is None:
            mask = causal_mask(n_queries, n_keys, device=q.device)
        return scaled_dot_product_attention(q, k, v, mask, self.dropout)
