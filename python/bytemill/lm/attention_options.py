"""Attention whose scores are scaled, capped or joined by sinks, or whose queries and keys are normed over all heads."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor
from torch.nn import Parameter

from bytemill.lm.model import MultiHeadSelfAttention, RMSNorm, causal_mask, soft_capped, softmax

if TYPE_CHECKING:
    from bytemill.lm.model import RotaryEmbedding
    from bytemill.lm.model_config import ModelConfig


class AllHeadsNorm(RMSNorm):
    """RMSNorm over the numbers of all heads together (OLMo 2): (…, n_heads, d_head) -> the same shape."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.flatten(-2)).view_as(x)


class OptionalAttention(MultiHeadSelfAttention):
    """Multi-head attention with the options of `AttentionConfig` that change scores or the norm of queries and keys."""

    scale: float | None = None
    """Factor of the scores; None: 1 / √d_head."""
    soft_cap: float | None = None
    """Bound of the scores' absolute values."""
    sinks: Parameter | None
    """(n_heads,), score of a key without a value, to which each query of the head attends (OpenAI 2025)."""

    @classmethod
    def of(
        cls,
        config: ModelConfig,
        rope: RotaryEmbedding | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> Self:
        """Build the attention of a model."""
        self = cls.from_config(config, rope, device, dtype)
        options = config.attention
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        self.scale, self.soft_cap = options.scale, options.soft_cap
        sinks = Parameter(torch.zeros(config.num_heads, **place)) if options.sinks else None
        self.register_parameter("sinks", sinks)
        self.takes_kernels = self.soft_cap is None and self.sinks is None
        if options.qk_norm and options.qk_norm_over == "all":
            self.q_norm, self.k_norm = (
                AllHeadsNorm(n * self.d_head, config.norm_eps, **place)
                for n in (self.n_heads, self.n_kv_heads)
            )
        return self

    def _attend(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, document_starts: Any = None
    ) -> Tensor:
        if self.scale is not None:
            q = q * (self.scale * math.sqrt(self.d_head))
        if self.takes_kernels:
            return super()._attend(q, k, v, mask, document_starts)
        n_queries, n_keys = q.shape[-2], k.shape[-2]
        if mask is None and n_queries > 1:
            mask = causal_mask(
                n_queries, n_keys, self.window, document_starts=document_starts, device=q.device
            )
        rows = q.reshape(len(q), self.n_kv_heads, -1, self.d_head)
        scores = (rows / math.sqrt(self.d_head)) @ k.mT
        if self.soft_cap is not None:
            scores = soft_capped(scores, self.soft_cap)
        # (batch, n_kv_heads, n_groups, n_queries, n_keys)
        scores = scores.view(len(q), self.n_kv_heads, -1, n_queries, n_keys)
        if mask is not None:
            scores = scores.masked_fill(~(mask if mask.ndim == 2 else mask.unsqueeze(-3)), -math.inf)
        if self.sinks is not None:
            sinks = self.sinks.to(scores.dtype).view(self.n_kv_heads, -1, 1, 1)
            scores = torch.cat((scores, sinks.expand(*scores.shape[:-1], 1)), dim=-1)
        weights = softmax(scores, dim=-1)[..., :n_keys]
        weights = self.dropout(weights.reshape(len(q), self.n_kv_heads, -1, n_keys))
        return (weights @ v).reshape(q.shape)
