"""OLMo 2 and 3 (Team OLMo 2024, 2025): norms of outputs, and of queries and keys over all heads."""

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
from bytemill.lm.interchange.layer_kinds import read_windows, window_theta, write_windows
from bytemill.lm.interchange.rope import read_rope
from bytemill.lm.model_config import ModelConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

_DEFAULTS: dict[str, Any] = {
    **COMMON_DEFAULTS,
    "vocab_size": 50_304,
    "hidden_size": 4096,
    "intermediate_size": 11_008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5,
}
_REQUIRED: dict[str, tuple[Any, ...]] = {
    **COMMON_REQUIRED,
    "hidden_act": ("silu", "swish"),
    "attention_bias": (False,),
}
_NAMES = {
    **NAMES,
    "layers.{0}.ln1": "layers.{0}.post_attention_layernorm",
    "layers.{0}.ln2": "layers.{0}.post_feedforward_layernorm",
}


def _model(sizes: dict[str, Any], values: Mapping[str, Any], **more: Any) -> ModelConfig:
    attention: Any = {**sizes.pop("attention"), "qk_norm": True, "qk_norm_over": "all"}
    return ModelConfig(
        **sizes, **more, attention=attention, norm_eps=values["rms_norm_eps"], norm_position="output"
    )


def _read_2(values: Mapping[str, Any], location: str) -> ModelConfig:
    return _model(read_sizes(values, read_rope(values, location), location), values)


def _read_3(values: Mapping[str, Any], location: str) -> ModelConfig:
    rope = read_rope(values, location, kind_of_layer="full_attention")
    sizes = read_sizes(values, rope, location)
    sizes["rope"] = {**sizes["rope"], "window_theta": window_theta(values, rope["theta"])}
    return _model(sizes, values, **read_windows(values, location, full_every=4))


def _write_2(config: ModelConfig) -> dict[str, Any]:
    return {**write_sizes(config), "rms_norm_eps": config.norm_eps, "hidden_act": "silu"}


def _write_3(config: ModelConfig) -> dict[str, Any]:
    return {**_write_2(config), **write_windows(config)}


OLMO2 = Family(
    "olmo2", "Olmo2ForCausalLM", "olmo2", "model.", _DEFAULTS, _REQUIRED, _read_2, _write_2, _NAMES
)
OLMO3 = Family(
    "olmo3",
    "Olmo3ForCausalLM",
    "olmo3",
    "model.",
    {**_DEFAULTS, "sliding_window": 4096, "rope_theta": 500_000.0},
    _REQUIRED,
    _read_3,
    _write_3,
    _NAMES,
)
