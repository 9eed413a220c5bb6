"""Phi-3 and Phi-4 (Microsoft 2024): Llama with fused matrices and LongRoPE."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bytemill.lm.interchange.families.base import (
    COMMON_DEFAULTS,
    COMMON_REQUIRED,
    NAMES,
    Family,
    read_sizes,
    write_sizes,
)
from bytemill.lm.interchange.rope import read_rope
from bytemill.lm.model_config import ModelConfig

if TYPE_CHECKING:
    from collections.abc import Mapping


def _read(values: Mapping[str, Any], location: str) -> ModelConfig:
    for key in (
        "rope_parameters",
        "rope_scaling",
    ):  # early files have other names of the one scaling there is
        if (own := values.get(key)) and own.get("rope_type", own.get("type")) in {"su", "yarn"}:
            values = {**values, key: {**own, "rope_type": "longrope"}}
    sizes = read_sizes(values, read_rope(values, location, fraction=1.0), location)
    attention: Any = {**sizes.pop("attention"), "sliding_window": values["sliding_window"]}
    return ModelConfig(**sizes, attention=attention, norm_eps=values["rms_norm_eps"])


def _write(config: ModelConfig) -> dict[str, Any]:
    return {
        **write_sizes(config),
        "rms_norm_eps": config.norm_eps,
        "sliding_window": config.attention.sliding_window,
        "partial_rotary_factor": config.rope.fraction,
        "original_max_position_embeddings": config.rope.original_context
        if config.rope.scaling == "longrope"
        else config.context_length,
        "hidden_act": "silu",
    }


PHI3 = Family(
    "phi3",
    "Phi3ForCausalLM",
    "phi3",
    "model.",
    {
        **COMMON_DEFAULTS,
        "vocab_size": 32_064,
        "hidden_size": 3072,
        "intermediate_size": 8192,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "sliding_window": None,
    },
    {**COMMON_REQUIRED, "hidden_act": ("silu", "swish"), "attention_bias": (False,)},
    _read,
    _write,
    {
        **NAMES,
        **{
            f"layers.{{0}}.attn.{name}": "layers.{0}.self_attn.qkv_proj"
            for name in ("q_proj", "k_proj", "v_proj")
        },
        "layers.{0}.ffn.w1": "layers.{0}.mlp.gate_up_proj",
        "layers.{0}.ffn.w3": "layers.{0}.mlp.gate_up_proj",
    },
)
