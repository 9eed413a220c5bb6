"""SmolLM3 (Hugging Face 2025): Llama with layers that know no positions."""

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
from bytemill.lm.interchange.layer_kinds import read_rotated, write_rotated
from bytemill.lm.interchange.rope import read_rope
from bytemill.lm.model_config import ModelConfig

if TYPE_CHECKING:
    from collections.abc import Mapping


def _read(values: Mapping[str, Any], location: str) -> ModelConfig:
    sizes = read_sizes(values, read_rope(values, location), location)
    interval, n = values.get("no_rope_layer_interval") or 4, values["num_hidden_layers"]
    layers = values.get("no_rope_layers") or [int((layer + 1) % interval != 0) for layer in range(n)]
    return ModelConfig(**sizes, **read_rotated(layers[:n]), norm_eps=values["rms_norm_eps"])


def _write(config: ModelConfig) -> dict[str, Any]:
    return {
        **write_sizes(config),
        **write_rotated(config),
        "rms_norm_eps": config.norm_eps,
        "hidden_act": "silu",
        "use_sliding_window": False,
    }


SMOLLM3 = Family(
    "smollm3",
    "SmolLM3ForCausalLM",
    "smollm3",
    "model.",
    {
        **COMMON_DEFAULTS,
        "vocab_size": 128_256,
        "hidden_size": 2048,
        "intermediate_size": 11_008,
        "num_hidden_layers": 36,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "max_position_embeddings": 32_768,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": True,
        "rope_theta": 2_000_000.0,
    },
    {
        **COMMON_REQUIRED,
        "hidden_act": ("silu", "swish"),
        "attention_bias": (False,),
        "mlp_bias": (False,),
        "use_sliding_window": (False,),
    },
    _read,
    _write,
    NAMES,
)
