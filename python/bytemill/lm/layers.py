"""The layers of `model`, under their own name."""

from bytemill.lm.model import (
    Dropout,
    Embedding,
    FeedForward,
    LayerNorm,
    Linear,
    RMSNorm,
    SwiGLU,
    gated,
    gelu,
    layer_norm,
    relu,
    rms_norm,
    silu,
    swiglu_width,
)

__all__ = [
    "Dropout",
    "Embedding",
    "FeedForward",
    "LayerNorm",
    "Linear",
    "RMSNorm",
    "SwiGLU",
    "gated",
    "gelu",
    "layer_norm",
    "relu",
    "rms_norm",
    "silu",
    "swiglu_width",
]
