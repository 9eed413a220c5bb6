"""The attention of `model`, under its own name."""

from bytemill.lm.model import (
    MultiHeadSelfAttention,
    RotaryEmbedding,
    causal_mask,
    scaled_dot_product_attention,
    softmax,
)

__all__ = [
    "MultiHeadSelfAttention",
    "RotaryEmbedding",
    "causal_mask",
    "scaled_dot_product_attention",
    "softmax",
]
