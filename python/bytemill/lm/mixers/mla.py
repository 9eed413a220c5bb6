"""Multi-head latent attention (DeepSeek-AI 2024): keys and values of all heads from one compressed vector per token.

    c = RMSNorm(W_c x),    kₕ = [W_Kₕ c ; r],    vₕ = W_Vₕ c,    r = rotated(W_r x)

The cache holds c and r: kv_rank + rope_dim numbers per token, for any number of heads. A new token attends without
computing keys and values again: since qᵀ W_K c = (W_Kᵀ q)ᵀ c, its queries are mapped into the space of c, and the
weighted sum of the c is mapped by W_V once.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor
from torch.nn import Module

from bytemill.errors import ModelConfigError
from bytemill.lm.mixers.state import divided, in_heads, saved_numbers
from bytemill.lm.model import (
    Dropout,
    LayerCache,
    Linear,
    RMSNorm,
    RotaryEmbedding,
    causal_mask,
    scaled_dot_product_attention,
)
from bytemill.lm.tensors import narrowed

if TYPE_CHECKING:
    from bytemill.lm.model_config import ModelConfig


class LatentCache(LayerCache):
    """The compressed vectors of one layer, (batch_size, 1, capacity, kv_rank), and its rotated keys.

    They take the place of keys and values in `LayerCache`.
    """

    def __init__(
        self,
        batch_size: int,
        capacity: int,
        widths: tuple[int, int],
        device: torch.device | str | None,
        dtype: torch.dtype,
    ) -> None:
        super().__init__((batch_size, 1, capacity, widths[0]), device, dtype)
        self.values = torch.empty(batch_size, 1, capacity, widths[1], device=device, dtype=dtype)


class LatentAttention(Module):
    """Multi-head latent attention: (..., n_tokens, d_model) -> the same shape.

    Args:
        config: Shape of the model.
        device: Device of the weights.
        dtype: Type of the weights.
    """

    def __init__(
        self,
        config: ModelConfig,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        d, bias, eps = config.d_model, config.bias, config.norm_eps
        self.n_heads, self.d_head = config.num_heads, config.d_head
        self.q_rank, self.kv_rank, self.d_rope = ranks(config)
        d_query = self.n_heads * (self.d_head + self.d_rope)
        if self.q_rank is not None:
            self.q_down = Linear(d, self.q_rank, bias, device=device, dtype=dtype)
            self.q_norm = RMSNorm(self.q_rank, eps, device=device, dtype=dtype)
        self.q_proj = Linear(self.q_rank or d, d_query, bias, device=device, dtype=dtype)
        self.kv_down = Linear(d, self.kv_rank + self.d_rope, bias, device=device, dtype=dtype)
        self.kv_norm = RMSNorm(self.kv_rank, eps, device=device, dtype=dtype)
        self.k_up = Linear(self.kv_rank, self.n_heads * self.d_head, device=device, dtype=dtype)
        self.v_up = Linear(self.kv_rank, self.n_heads * self.d_head, device=device, dtype=dtype)
        self.output_proj = Linear(self.n_heads * self.d_head, d, bias, device=device, dtype=dtype)
        self.rope = None
        if config.position == "rotary":
            self.rope = RotaryEmbedding(config.rope.theta, self.d_rope, config.context_length, device)
        self.dropout = Dropout(config.dropout)

    @classmethod
    def of(
        cls,
        config: ModelConfig,
        rope: RotaryEmbedding | None = None,  # noqa: ARG003
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> Self:
        """Build the mixer of a model. Its rotary embedding has a width of its own."""
        return cls(config, device=device, dtype=dtype)

    @staticmethod
    def new_cache(
        config: ModelConfig, batch_size: int, device: torch.device | str | None, dtype: torch.dtype
    ) -> LayerCache:
        """Return an empty cache of a layer."""
        return LatentCache(batch_size, config.context_length, ranks(config)[1:], device, dtype)

    def forward(
        self,
        x: Tensor,
        token_positions: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        cache: LayerCache | None = None,
        document_starts: Tensor | None = None,
    ) -> Tensor:
        """Attend; the arguments are those of `MultiHeadSelfAttention.forward`."""
        *batch, n_tokens, d_model = x.shape
        x = narrowed(x.reshape(math.prod(batch), n_tokens, d_model))
        if token_positions is not None and token_positions.ndim > 1:
            token_positions = token_positions.expand(*batch, n_tokens).reshape(-1, 1, n_tokens)
        q = self.q_proj(x if self.q_rank is None else self.q_norm(self.q_down(x)))
        q, q_rotated = divided(in_heads(q, self.n_heads), (self.d_head, self.d_rope))
        latent, k_rotated = divided(self.kv_down(x)[:, None], (self.kv_rank, self.d_rope))
        latent = self.kv_norm(latent)
        if self.rope is not None:
            q_rotated, k_rotated = (self.rope(each, token_positions) for each in (q_rotated, k_rotated))
        if cache is not None:
            latent, k_rotated = cache.append(latent, k_rotated)
        if mask is None and n_tokens > 1:
            if document_starts is not None:
                document_starts = document_starts.expand(*batch, n_tokens).reshape(-1, n_tokens)
            n_keys = latent.shape[2]
            mask = causal_mask(n_tokens, n_keys, document_starts=document_starts, device=x.device)
        attend = self._compressed if cache is not None and n_tokens == 1 else self._expanded
        mixed = attend(q, q_rotated, latent, k_rotated, mask)
        return self.output_proj(mixed.transpose(1, 2).flatten(2)).reshape(*batch, n_tokens, d_model)

    def _expanded(
        self, q: Tensor, q_rotated: Tensor, latent: Tensor, k_rotated: Tensor, mask: Tensor | None
    ) -> Tensor:
        """Attend with keys and values of all heads, (batch, n_heads, n_tokens, d_head)."""
        k, v = (in_heads(up(latent[:, 0]), self.n_heads) for up in (self.k_up, self.v_up))
        k = torch.cat((k, k_rotated.expand(-1, self.n_heads, -1, -1)), dim=-1)
        return scaled_dot_product_attention(torch.cat((q, q_rotated), dim=-1), k, v, mask, self.dropout)

    def _compressed(
        self, q: Tensor, q_rotated: Tensor, latent: Tensor, k_rotated: Tensor, mask: Tensor | None
    ) -> Tensor:
        """Attend to the compressed vectors themselves."""
        k_up, v_up = (
            up.weight.to(q.dtype).view(self.n_heads, -1, self.kv_rank) for up in (self.k_up, self.v_up)
        )
        # The scores are divided by √(kv_rank + d_rope) there, and by √(d_head + d_rope) here.
        scale = math.sqrt((self.kv_rank + self.d_rope) / (self.d_head + self.d_rope))
        queries = torch.cat((q @ k_up, q_rotated), dim=-1) * scale
        keys = torch.cat((latent, k_rotated), dim=-1)
        return scaled_dot_product_attention(queries, keys, latent, mask, self.dropout) @ v_up.mT

    @staticmethod
    def check(config: ModelConfig) -> None:
        """Raise ModelConfigError if the rotary embedding does not fit."""
        d_rope = ranks(config)[2]
        if config.position == "rotary" and d_rope % 2:
            raise ModelConfigError(
                f"position 'rotary' needs an even width, but mla.rope_dim is {d_rope}",
                hint="set mla.rope_dim to an even number",
            )
        if config.position == "rotary" and config.rope.scaling is not None:
            raise ModelConfigError(
                f"mixer 'mla' has no rope.scaling {config.rope.scaling!r}", hint="leave rope.scaling out"
            )

    @staticmethod
    def matrices(config: ModelConfig) -> int:
        """Return the number of parameters in its matrices."""
        q_rank, kv_rank, d_rope = ranks(config)
        d, d_v = config.d_model, config.num_heads * config.d_head
        d_query = d_v + config.num_heads * d_rope
        queries = d * d_query if q_rank is None else q_rank * (d + d_query)
        return queries + d * (kv_rank + d_rope) + 2 * kv_rank * d_v + d_v * d

    @staticmethod
    def vectors(config: ModelConfig) -> int:
        """Return the number of its other parameters."""
        q_rank, kv_rank, d_rope = ranks(config)
        d_query = config.num_heads * (config.d_head + d_rope)
        biases = (q_rank or 0) + d_query + kv_rank + d_rope + config.d_model if config.bias else 0
        return (q_rank or 0) + kv_rank + biases

    @staticmethod
    def flops(config: ModelConfig, n_tokens: int) -> dict[str, int]:
        """Return the FLOPs of a forward pass over one sequence, by step."""
        d_v, d_rope = config.num_heads * config.d_head, config.num_heads * ranks(config)[2]
        return {
            "latent attention projections": 2 * n_tokens * LatentAttention.matrices(config),
            "attention scores": 2 * n_tokens * n_tokens * (d_v + d_rope),
            "weighted values": 2 * n_tokens * n_tokens * d_v,
        }

    @classmethod
    def saved(cls, config: ModelConfig) -> int:
        """Return the numbers per token that the forward pass saves."""
        return saved_numbers(cls.of(config, device="meta"), config)


def ranks(config: ModelConfig) -> tuple[int | None, int, int]:
    """Return the widths of compressed queries, of compressed keys and values, and of what is rotated."""
    own = config.mla
    return own.q_rank, own.kv_rank or 4 * config.d_head, own.rope_dim or max(2, 2 * (config.d_head // 4))
