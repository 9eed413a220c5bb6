"""Gemma 2 and 3 (Gemma Team 2024, 2025): norms around each sub-layer, GeGLU, windows in most layers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from bytemill.lm.interchange.families.base import (
    COMMON_DEFAULTS,
    COMMON_REQUIRED,
    NAMES,
    Family,
    read_sizes,
    write_sizes,
)
from bytemill.lm.interchange.layer_kinds import read_windows, window_theta, write_windows
from bytemill.lm.interchange.rope import read_rope
from bytemill.lm.model_config import ModelConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

_DEFAULTS: dict[str, Any] = {
    **COMMON_DEFAULTS,
    "vocab_size": 256_000,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
    "final_logit_softcapping": 30.0,
    "attn_logit_softcapping": 50.0,
}
_REQUIRED: dict[str, tuple[Any, ...]] = {
    **COMMON_REQUIRED,
    "hidden_activation": ("gelu_pytorch_tanh",),
    "attention_bias": (False,),
    "use_bidirectional_attention": (None, False),
}
_NAMES = {
    **NAMES,
    "layers.{0}.ln1_out": "layers.{0}.post_attention_layernorm",
    "layers.{0}.ln2": "layers.{0}.pre_feedforward_layernorm",
    "layers.{0}.ln2_out": "layers.{0}.post_feedforward_layernorm",
}


def _read(values: Mapping[str, Any], location: str, *, is_3: bool) -> ModelConfig:
    rope = read_rope(values, location, kind_of_layer="full_attention")
    sizes = read_sizes(values, rope, location)
    pattern = values.get("sliding_window_pattern") or values.get("_sliding_window_pattern") or 6
    windows = read_windows(values, location, full_every=pattern if is_3 else 2)
    attention: Any = {
        **sizes.pop("attention"),
        "scale": _scale(values["query_pre_attn_scalar"], values["head_dim"]),
        "soft_cap": values["attn_logit_softcapping"],
        "qk_norm": is_3,
    }
    if is_3:
        own = window_theta(values, values.get("rope_local_base_freq") or 10_000.0)
        sizes["rope"] = {**sizes["rope"], "window_theta": own}
    return ModelConfig(
        **sizes,
        **windows,
        attention=attention,
        norm_eps=values["rms_norm_eps"],
        norm_position="sandwich",
        feed_forward="geglu",
        embedding_scale=math.sqrt(values["hidden_size"]),
        logit_soft_cap=values["final_logit_softcapping"],
    )


def _scale(scalar: float, d_head: int) -> float | None:
    return None if scalar == d_head else scalar**-0.5


def _write(config: ModelConfig, *, is_3: bool) -> dict[str, Any]:
    scale = config.attention.scale
    scalar = config.d_head if scale is None else 1 / scale**2
    local = {"rope_local_base_freq": config.rope.window_theta or config.rope.theta} if is_3 else {}
    return {
        **write_sizes(config),
        **write_windows(config),
        **local,
        "rms_norm_eps": config.norm_eps,
        # whole in all published models
        "query_pre_attn_scalar": round(scalar) if _scale(round(scalar), config.d_head) == scale else scalar,
        "attn_logit_softcapping": config.attention.soft_cap,
        "final_logit_softcapping": config.logit_soft_cap,
        "hidden_activation": "gelu_pytorch_tanh",
    }


def _read_2(values: Mapping[str, Any], location: str) -> ModelConfig:
    return _read(values, location, is_3=False)


def _read_3(values: Mapping[str, Any], location: str) -> ModelConfig:
    return _read(values, location, is_3=True)


def _write_2(config: ModelConfig) -> dict[str, Any]:
    return _write(config, is_3=False)


def _write_3(config: ModelConfig) -> dict[str, Any]:
    return _write(config, is_3=True)


GEMMA2 = Family(
    "gemma2",
    "Gemma2ForCausalLM",
    "gemma2",
    "model.",
    _DEFAULTS,
    _REQUIRED,
    _read_2,
    _write_2,
    _NAMES,
    has_offsets=True,
)
GEMMA3 = Family(
    "gemma3_text",
    "Gemma3ForCausalLM",
    "gemma3_text",
    "model.",
    {
        **_DEFAULTS,
        "vocab_size": 262_208,
        "max_position_embeddings": 131_072,
        "rope_theta": 1_000_000.0,
        "final_logit_softcapping": None,
        "attn_logit_softcapping": None,
    },
    _REQUIRED,
    _read_3,
    _write_3,
    _NAMES,
    has_offsets=True,
)
