"""Attention: scaled dot products, masks, and multi-head self-attention."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import Module

from bytemill.errors import ModelConfigError
from bytemill.lm.activations import softmax
from bytemill.lm.kernels.choice import SCRATCH, Kernels
from bytemill.lm.layers import Dropout, Linear, RMSNorm
from bytemill.lm.rotary import RotaryEmbedding
from bytemill.lm.tensors import narrowed

if TYPE_CHECKING:
    from bytemill.lm.kv_cache import LayerCache

__all__ = [
    "MultiHeadSelfAttention",
    "RotaryEmbedding",
    "causal_mask",
    "scaled_dot_product_attention",
    "softmax",
]


def scaled_dot_product_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, dropout: Module | None = None
) -> Tensor:
    """Compute softmax(q kᵀ / √d_k) v (Vaswani et al. 2017).

    Args:
        q: Queries (..., n_queries, d_k).
        k: Keys (..., n_keys, d_k).
        v: Values (..., n_keys, d_v).
        mask: Boolean, broadcastable to (..., n_queries, n_keys); True where a query may attend to a key.
        dropout: Applied to the attention weights.

    Returns:
        (..., n_queries, d_v); zeros for a query that may attend to no key.
    """
    scores = (q / math.sqrt(q.shape[-1])) @ k.mT
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    weights = softmax(scores, dim=-1)
    if dropout is not None:
        weights = dropout(weights)
    return weights @ v


def causal_mask(
    n_queries: int,
    n_keys: int,
    window: int | None = None,
    *,
    n_padding: Tensor | None = None,
    document_starts: Tensor | None = None,
    device: torch.device | str | None = None,
) -> Tensor:
    """Return the causal mask: True where a query may attend to a key, which is itself or an earlier token.

    Args:
        n_queries: Number of queries; they are the last of the keys.
        n_keys: Number of keys.
        window: Attend only to the token itself and the window − 1 tokens before it.
        n_padding: (batch,), number of keys to hide at the start of each row.
        document_starts: (batch, n_queries), first key of the document of each query, which attends to none before it.
        device: Device of the mask.

    Returns:
        (n_queries, n_keys), or with `n_padding` or `document_starts` (batch, 1, n_queries, n_keys).

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
    if document_starts is not None:
        mask = mask & (keys >= document_starts[:, None, :, None])
    return mask


class MultiHeadSelfAttention(Module):
    """Causal multi-head self-attention (Vaswani et al. 2017): (..., n_tokens, d_model) -> the same shape.

    Args:
        d_model: Width of the input.
        num_heads: Number of query heads.
        rope: Rotary embedding of queries and keys.
        num_kv_heads: Number of key and value heads, shared by groups of query heads (Ainslie et al. 2023).
        sliding_window: Number of most recent tokens that a token attends to, itself included.
        dropout: Dropout rate of the attention weights.
        bias: Add a bias to the projections.
        head_dim: Width of a head; by default d_model / num_heads.
        qkv_bias: Add a bias to queries, keys and values, also without `bias`.
        qk_norm_eps: Normalize each head of queries and keys with RMSNorm, with this eps (Dehghani et al. 2023).
        device: Device of the weights.
        dtype: Type of the weights.

    Raises:
        ModelConfigError: The numbers do not divide each other.
    """

    kernels: Kernels = SCRATCH

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
        head_dim: int | None = None,
        qkv_bias: bool = False,
        qk_norm_eps: float | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.n_heads = num_heads
        self.n_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        if (head_dim is None and d_model % num_heads) or num_heads % self.n_kv_heads:
            raise ModelConfigError(
                f"d_model {d_model}, num_heads {num_heads} and num_kv_heads {self.n_kv_heads} do not divide each other",
                hint="num_heads must divide d_model, and num_kv_heads must divide num_heads",
            )
        self.d_head = d_model // num_heads if head_dim is None else head_dim
        self.window = sliding_window
        self.rope = rope
        d_q, d_kv = self.n_heads * self.d_head, self.n_kv_heads * self.d_head
        self.q_proj = Linear(d_model, d_q, bias or qkv_bias, device=device, dtype=dtype)
        self.k_proj = Linear(d_model, d_kv, bias or qkv_bias, device=device, dtype=dtype)
        self.v_proj = Linear(d_model, d_kv, bias or qkv_bias, device=device, dtype=dtype)
        self.output_proj = Linear(d_q, d_model, bias, device=device, dtype=dtype)
        self.has_qk_norm = qk_norm_eps is not None
        if qk_norm_eps is not None:
            self.q_norm = RMSNorm(self.d_head, qk_norm_eps, device=device, dtype=dtype)
            self.k_norm = RMSNorm(self.d_head, qk_norm_eps, device=device, dtype=dtype)
        self.dropout = Dropout(dropout)

    def forward(
        self,
        x: Tensor,
        token_positions: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        cache: LayerCache | None = None,
        document_starts: Tensor | None = None,
    ) -> Tensor:
        """Attend.

        Args:
            x: (..., n_tokens, d_model).
            token_positions: (n_tokens,) or (..., n_tokens), for the rotary embedding; by default 0, 1, 2, …
            mask: Replaces the causal mask.
            cache: Keys and values of earlier tokens; those of `x` are appended.
            document_starts: (..., n_tokens), position of the first token of each token's document; it attends to none
                before that.
        """
        *batch, n_tokens, d_model = x.shape
        x = narrowed(x.reshape(math.prod(batch), n_tokens, d_model))
        q = self._heads(self.q_proj(x), self.n_heads)
        k = self._heads(self.k_proj(x), self.n_kv_heads)
        v = self._heads(self.v_proj(x), self.n_kv_heads)
        if self.has_qk_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))  # (batch, n_heads, n_tokens, d_head)
        if self.rope is not None:
            if token_positions is not None and token_positions.ndim > 1:
                # (..., n_tokens) -> (batch, 1, n_tokens): equal for all heads.
                token_positions = token_positions.expand(*batch, n_tokens).reshape(-1, 1, n_tokens)
            q, k = self.rope(q, token_positions), self.rope(k, token_positions)
        if cache is not None:
            k, v = cache.append(k, v)
        if document_starts is not None:
            document_starts = document_starts.expand(*batch, n_tokens).reshape(-1, n_tokens)
        mixed = self._attend(q, k, v, mask, document_starts)
        return self.output_proj(mixed.transpose(1, 2).reshape(*batch, n_tokens, -1))

    def _heads(self, x: Tensor, n_heads: int) -> Tensor:
        """(batch, n_tokens, n_heads · d_head) -> (batch, n_tokens, n_heads, d_head)."""
        return x.view(*x.shape[:-1], n_heads, self.d_head)

    def _attend(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, document_starts: Tensor | None = None
    ) -> Tensor:
        """Return (batch, n_heads, n_queries, d_head)."""
        n_queries, n_keys = q.shape[-2], k.shape[-2]
        is_causal = mask is None and n_queries == n_keys
        dropout = self.dropout.p if self.training else 0.0
        if is_causal and not dropout and self.kernels.attention is not None:
            return self.kernels.attention(q, k, v, self.window, document_starts)
        attend = self.kernels.masked_attention
        if attend is not None and is_causal and self.window is None and document_starts is None:
            return attend(q, k, v, dropout=dropout, causal=True)
        if mask is None and n_queries > 1:
            mask = causal_mask(
                n_queries, n_keys, self.window, document_starts=document_starts, device=q.device
            )
        if attend is not None:
            return attend(q, k, v, mask, dropout)
        return self._textbook(q, k, v, mask)

    def _textbook(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """Compute `scaled_dot_product_attention`; the queries of a group of heads become rows of one matrix."""
        n_groups = self.n_heads // self.n_kv_heads
        rows = q.reshape(len(q), self.n_kv_heads, -1, self.d_head)
        if mask is not None and mask.shape[-2] > 1:
            mask = mask.repeat(*[1] * (mask.ndim - 2), n_groups, 1)
        return scaled_dot_product_attention(rows, k, v, mask, self.dropout).reshape(q.shape)
