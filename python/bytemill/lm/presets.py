"""Named model shapes."""

from __future__ import annotations

from typing import Any

from bytemill.errors import ModelConfigError
from bytemill.lm.model_config import AttentionConfig, ModelConfig
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
        initialization="gpt2",
    )


def _llama(d_model: int, num_layers: int, num_kv_heads: int, d_ff: int, *, tied: bool = True) -> ModelConfig:
    """Return a shape after Llama (Touvron et al. 2023), with heads of width 64 that share keys and values."""
    return ModelConfig(
        vocab_size=32_000,
        context_length=2048,
        d_model=d_model,
        num_layers=num_layers,
        num_heads=d_model // 64,
        attention=AttentionConfig(num_kv_heads=num_kv_heads),
        d_ff=d_ff,
        tied_embeddings=tied,
    )


def _nanochat(depth: int) -> ModelConfig:
    """Return a shape after nanochat (Karpathy 2025), of width 64 · depth, with heads of width 128.

    Unlike nanochat, norms have weights, which start at 1, QK-norm precedes the rotary embedding, no norm follows the
    token embedding, and the initial weights are the textbook's.
    """
    return ModelConfig(
        vocab_size=65_536,
        context_length=2048,
        d_model=64 * depth,
        num_layers=depth,
        num_heads=depth // 2,
        d_ff=256 * depth,
        feed_forward="relu2",
        attention=AttentionConfig(qk_norm=True),
        logit_soft_cap=15.0,
    )


PRESETS: dict[str, ModelConfig] = {
    "tiny": ModelConfig(
        vocab_size=4096, context_length=128, d_model=128, num_layers=4, num_heads=4, d_ff=320
    ),
    "tinystories": ModelConfig(
        vocab_size=10_000, context_length=256, d_model=512, num_layers=4, num_heads=16, d_ff=1344
    ),
    "gpt2": _gpt2(768, 12, 12),
    "gpt2-medium": _gpt2(1024, 24, 16),
    "gpt2-large": _gpt2(1280, 36, 20),
    "gpt2-xl": _gpt2(1600, 48, 25),
    "llama-30m": _llama(384, 12, 2, 1024),
    "llama-60m": _llama(512, 16, 4, 1344),
    "llama-125m": _llama(768, 16, 4, 2048),
    "llama-350m": _llama(1024, 28, 4, 2816),
    "llama-1b": _llama(2048, 22, 4, 5632, tied=False),
    "nanochat-d12": _nanochat(12),
    "nanochat-d20": _nanochat(20),
}
"""Shapes by name. GPT-2's have 124, 355, 774 and 1,558 million parameters."""


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
