"""Named model shapes."""

from __future__ import annotations

from typing import Any

from bytemill.errors import ModelConfigError
from bytemill.lm.model_config import ModelConfig
from bytemill.lm.settings import suggestion


def _gpt2(d_model: int, num_layers: int, num_heads: int) -> ModelConfig:
    """Return a shape of GPT-2 (Radford et al. 2019)."""
    return ModelConfig(
        vocab_size=50_257,
        context_length=1024,
        d_model=d_model,
        num_layers=num_layers,
        num_heads=num_heads,
        d_ff=4 * d_model,
        norm="layer",
        position="learned",
        feed_forward="gelu",
        tied_embeddings=True,
        bias=True,
    )


PRESETS: dict[str, ModelConfig] = {
    "tiny": ModelConfig(
        vocab_size=4096, context_length=128, d_model=128, num_layers=4, num_heads=4, d_ff=320
    ),
    "tinystories": ModelConfig(
        vocab_size=10_000, context_length=256, d_model=512, num_layers=4, num_heads=16, d_ff=1344
    ),
    "gpt2-124m": _gpt2(768, 12, 12),
    "gpt2-355m": _gpt2(1024, 24, 16),
    "gpt2-774m": _gpt2(1280, 36, 20),
    "gpt2-xl": _gpt2(1600, 48, 25),
}


def preset(name: str, **overrides: Any) -> ModelConfig:
    """Return a named model shape, with some fields replaced.

    >>> preset("tinystories", vocab_size=32_000).vocab_size
    32000

    Raises:
        ModelConfigError: The preset or a field is unknown, or the fields contradict each other.
    """
    if name not in PRESETS:
        raise ModelConfigError(f"unknown preset {name!r}", hint=suggestion(name, PRESETS))
    return PRESETS[name].replace(**overrides)
