"""GPT-NeoX and Pythia (Black et al. 2022, Biderman et al. 2023): both sub-layers read the same stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bytemill.lm.interchange.entries import HeadsEntry
from bytemill.lm.interchange.families.base import (
    COMMON_DEFAULTS,
    COMMON_REQUIRED,
    Family,
    read_sizes,
    write_sizes,
)
from bytemill.lm.interchange.rope import read_rope
from bytemill.lm.model_config import FeedForwardKind, ModelConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

_ACTIVATIONS: dict[str, FeedForwardKind] = {
    "gelu": "gelu_exact",
    "gelu_new": "gelu",
    "gelu_fast": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "relu": "relu",
    "relu2": "relu2",
}
_NAMES_OF_ACTIVATIONS = {"gelu_exact": "gelu", "gelu": "gelu_new", "relu": "relu", "relu2": "relu2"}


def _read(values: Mapping[str, Any], location: str) -> ModelConfig:
    values = {**values, "rope_theta": values.get("rope_theta") or values["rotary_emb_base"]}
    sizes = read_sizes(values, read_rope(values, location, fraction=values["rotary_pct"]), location)
    return ModelConfig(
        **sizes,
        norm="layer",
        norm_eps=values["layer_norm_eps"],
        bias=True,
        feed_forward=_ACTIVATIONS[values["hidden_act"]],
        residual="parallel" if values["use_parallel_residual"] else "sequential",
    )


def _write(config: ModelConfig) -> dict[str, Any]:
    document = write_sizes(config)
    for name in ("num_key_value_heads", "head_dim"):
        document.pop(name)
    return {
        **document,
        "rotary_emb_base": document.pop("rope_theta"),
        "rotary_pct": config.rope.fraction,
        "partial_rotary_factor": config.rope.fraction,
        "layer_norm_eps": config.norm_eps,
        "hidden_act": _NAMES_OF_ACTIVATIONS.get(config.feed_forward, "gelu"),
        "use_parallel_residual": config.residual == "parallel",
    }


GPT_NEOX = Family(
    "gpt_neox",
    "GPTNeoXForCausalLM",
    "gpt_neox",
    "gpt_neox.",
    {
        **COMMON_DEFAULTS,
        "vocab_size": 50_432,
        "hidden_size": 6144,
        "num_hidden_layers": 44,
        "num_attention_heads": 64,
        "intermediate_size": 24_576,
        "max_position_embeddings": 2048,
        "layer_norm_eps": 1e-5,
        "hidden_act": "gelu",
        "rotary_pct": 0.25,
        "rotary_emb_base": 10_000.0,
        "use_parallel_residual": True,
    },
    {**COMMON_REQUIRED, "hidden_act": tuple(_ACTIVATIONS), "attention_bias": (True,)},
    _read,
    _write,
    {
        "token_embeddings": "embed_in",
        "ln_final": "final_layer_norm",
        "lm_head": "embed_out",
        **{
            f"layers.{{0}}.attn.{name}": "layers.{0}.attention.query_key_value"
            for name in ("q_proj", "k_proj", "v_proj")
        },
        "layers.{0}.attn.output_proj": "layers.{0}.attention.dense",
        "layers.{0}.ln1": "layers.{0}.input_layernorm",
        "layers.{0}.ln2": "layers.{0}.post_attention_layernorm",
        "layers.{0}.ffn.w1": "layers.{0}.mlp.dense_h_to_4h",
        "layers.{0}.ffn.w2": "layers.{0}.mlp.dense_4h_to_h",
    },
    {"query_key_value": HeadsEntry},
    head_name="embed_out",
)
