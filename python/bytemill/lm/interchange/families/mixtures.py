"""Mixtral, Qwen3-MoE and gpt-oss (Jiang et al. 2024, Qwen Team 2025, OpenAI 2025): mixtures of experts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bytemill.lm.feed_forwards.clamped_swiglu import ALPHA, LIMIT
from bytemill.lm.interchange.entries import ExpertsEntry
from bytemill.lm.interchange.families.base import (
    COMMON_DEFAULTS,
    COMMON_REQUIRED,
    NAMES,
    Family,
    read_sizes,
    write_sizes,
)
from bytemill.lm.interchange.layer_kinds import read_windows, write_windows
from bytemill.lm.interchange.rope import read_rope
from bytemill.lm.model_config import ModelConfig

if TYPE_CHECKING:
    from collections.abc import Mapping


def _moe(values: Mapping[str, Any], **more: Any) -> Any:
    experts = values.get("num_local_experts") or values["num_experts"]
    weight = {"balance_weight": w} if (w := values.get("router_aux_loss_coef")) else {"balance": "none"}
    return {"experts": experts, "top_k": values["num_experts_per_tok"], **weight, **more}


def _write_moe(config: ModelConfig) -> dict[str, Any]:
    moe = config.moe
    return {
        **write_sizes(config),
        "num_experts_per_tok": moe.top_k,
        "router_aux_loss_coef": moe.balance_weight if moe.balance == "loss" else 0.0,
        "rms_norm_eps": config.norm_eps,
        "hidden_act": "silu",
    }


def _read_mixtral(values: Mapping[str, Any], location: str) -> ModelConfig:
    sizes = read_sizes(values, read_rope(values, location), location)
    attention: Any = {**sizes.pop("attention"), "sliding_window": values["sliding_window"]}
    moe: Any = _moe(values)
    return ModelConfig(
        **sizes, attention=attention, norm_eps=values["rms_norm_eps"], feed_forward="moe", moe=moe
    )


def _write_mixtral(config: ModelConfig) -> dict[str, Any]:
    return {
        **_write_moe(config),
        "num_local_experts": config.moe.experts,
        "sliding_window": config.attention.sliding_window,
    }


def _read_qwen(values: Mapping[str, Any], location: str) -> ModelConfig:
    sizes = read_sizes(values, read_rope(values, location), location)
    window = values["sliding_window"] if values["use_sliding_window"] else None
    attention: Any = {**sizes.pop("attention"), "qk_norm": True, "sliding_window": window}
    return ModelConfig(
        **{**sizes, "d_ff": values["moe_intermediate_size"]},
        attention=attention,
        norm_eps=values["rms_norm_eps"],
        feed_forward="moe",
        moe=_moe(values, normalized=values["norm_topk_prob"]),
    )


def _write_qwen(config: ModelConfig) -> dict[str, Any]:
    window = config.attention.sliding_window
    return {
        **_write_moe(config),
        "num_experts": config.moe.experts,
        "moe_intermediate_size": config.d_ff,
        "norm_topk_prob": config.moe.normalized,
        "sliding_window": window,
        "use_sliding_window": window is not None,
    }


def _read_oss(values: Mapping[str, Any], location: str) -> ModelConfig:
    sizes = read_sizes(values, read_rope(values, location), location)
    attention: Any = {**sizes.pop("attention"), "sinks": True}
    return ModelConfig(
        **sizes,
        **read_windows(values, location, full_every=2),
        attention=attention,
        norm_eps=values["rms_norm_eps"],
        bias=True,
        feed_forward="moe",
        moe=_moe(values, expert="clamped_swiglu"),
    )


def _write_oss(config: ModelConfig) -> dict[str, Any]:
    return {
        **_write_moe(config),
        **write_windows(config),
        "num_local_experts": config.moe.experts,
        "attention_bias": True,
        "swiglu_alpha": ALPHA,
        "swiglu_limit": LIMIT,
    }


_DEFAULTS: dict[str, Any] = {
    **COMMON_DEFAULTS,
    "vocab_size": 32_000,
    "hidden_size": 4096,
    "intermediate_size": 14_336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131_072,
    "rms_norm_eps": 1e-5,
    "sliding_window": None,
    "num_experts_per_tok": 2,
    "rope_theta": 1_000_000.0,
    "router_aux_loss_coef": 0.001,
}
_REQUIRED: dict[str, tuple[Any, ...]] = {**COMMON_REQUIRED, "hidden_act": ("silu", "swish")}
_EXPERT = "layers.{0}.ffn.experts.{1}"
MIXTRAL = Family(
    "mixtral",
    "MixtralForCausalLM",
    "mixtral",
    "model.",
    {**_DEFAULTS, "num_local_experts": 8},
    {**_REQUIRED, "attention_bias": (False,)},
    _read_mixtral,
    _write_mixtral,
    {
        **NAMES,
        "layers.{0}.ffn.router": "layers.{0}.block_sparse_moe.gate",
        **{
            f"{_EXPERT}.{name}": f"layers.{{0}}.block_sparse_moe.experts.{{1}}.{name}"
            for name in ("w1", "w2", "w3")
        },
    },
)
QWEN3_MOE = Family(
    "qwen3_moe",
    "Qwen3MoeForCausalLM",
    "qwen3_moe",
    "model.",
    {
        **_DEFAULTS,
        "vocab_size": 151_936,
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "num_hidden_layers": 24,
        "num_key_value_heads": 4,
        "max_position_embeddings": 32_768,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10_000.0,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 768,
        "norm_topk_prob": False,
        "use_sliding_window": False,
    },
    {
        **_REQUIRED,
        "attention_bias": (False,),
        "decoder_sparse_step": (1,),
        "mlp_only_layers": (None, []),
    },
    _read_qwen,
    _write_qwen,
    {
        **NAMES,
        "layers.{0}.ffn.router": "layers.{0}.mlp.gate",
        **{
            f"{_EXPERT}.{name}": f"layers.{{0}}.mlp.experts.{{1}}.{theirs}"
            for name, theirs in (("w1", "gate_proj"), ("w2", "down_proj"), ("w3", "up_proj"))
        },
    },
)
GPT_OSS = Family(
    "gpt_oss",
    "GptOssForCausalLM",
    "gpt_oss",
    "model.",
    {
        **_DEFAULTS,
        "vocab_size": 201_088,
        "hidden_size": 2880,
        "intermediate_size": 2880,
        "num_hidden_layers": 36,
        "num_attention_heads": 64,
        "head_dim": 64,
        "num_local_experts": 128,
        "num_experts_per_tok": 4,
        "sliding_window": 128,
        "rope_theta": 150_000.0,
    },
    {
        **_REQUIRED,
        "attention_bias": (True,),
        "swiglu_alpha": (ALPHA,),
        "swiglu_limit": (LIMIT,),
    },
    _read_oss,
    _write_oss,
    {
        **NAMES,
        "layers.{0}.attn.sinks": "layers.{0}.self_attn.sinks",
        "layers.{0}.ffn.router": "layers.{0}.mlp.router",
        **{
            f"{_EXPERT}.{name}.{kind}": f"layers.{{0}}.mlp.experts.{theirs}{ending}"
            for name, theirs in (("w1", "gate_up_proj"), ("w3", "gate_up_proj"), ("w2", "down_proj"))
            for kind, ending in (("weight", ""), ("bias", "_bias"))
        },
    },
    {"experts": ExpertsEntry},
)
