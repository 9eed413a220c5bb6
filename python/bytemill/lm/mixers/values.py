"""Attention whose values have an embedding of the token itself added (Zhou et al. 2024, modded-nanogpt, nanochat).

    v = W_V x + 2 σ(W_G x₁…₃₂) ⊙ E[id]

The embedding E is the block's own. The gate has a number per key and value head, computed from the first 32 numbers of
x; a new gate is 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

from bytemill.lm.attention_options import OptionalAttention
from bytemill.lm.model import Embedding, Linear
from bytemill.lm.tensors import narrowed

if TYPE_CHECKING:
    from bytemill.lm.model import RotaryEmbedding
    from bytemill.lm.model_config import ModelConfig

_GATE_INPUTS = 32


class ValueAttention(OptionalAttention):
    """Multi-head attention with value embeddings: (..., n_tokens, d_model) -> the same shape."""

    takes_ids = True
    """Whether `forward` needs the ids of the tokens."""
    value_gate: Linear
    value_embedding: Embedding

    @classmethod
    def of(
        cls,
        config: ModelConfig,
        rope: RotaryEmbedding | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> Self:
        """Build the attention of a model."""
        self = super().of(config, rope, device, dtype)
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        self.value_gate = Linear(self.n_gate_inputs(config), self.n_kv_heads, **place)
        self.value_gate.weight.data.zero_()
        d_kv = self.n_kv_heads * self.d_head
        # As large as W_V x for a normalized x.
        self.value_embedding = Embedding(config.vocab_size, d_kv, config.d_model**-0.5, **place)
        return self

    @staticmethod
    def n_gate_inputs(config: ModelConfig) -> int:
        """Return how many numbers of a token its gate reads."""
        return min(_GATE_INPUTS, config.d_model)

    def forward(
        self, x: Tensor, token_positions: Tensor | None = None, *, ids: Tensor | None = None, **options: Any
    ) -> Tensor:
        """Attend; `ids` are those of the tokens, (..., n_tokens), the other arguments those of other attention."""
        if ids is None:
            raise ValueError("value embeddings need the ids of the tokens")
        gate = 2 * torch.sigmoid(self.value_gate(narrowed(x)[..., : self.value_gate.weight.shape[1]]))
        values = self._heads(self.value_embedding(ids), self.n_kv_heads)
        added = (gate[..., None] * values).flatten(-2)
        return super().forward(x, token_positions, added_values=added, **options)
