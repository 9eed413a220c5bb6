"""A model type of transformers, and what most of them share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bytemill.errors import ModelConfigError
from bytemill.lm.interchange.entries import named_entries
from bytemill.lm.interchange.layer_kinds import canonical_mixers
from bytemill.lm.interchange.rope import (
    ROPE_OPTIONS,
    lacking_rope,
    readable_context,
    used_options,
    write_rope,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bytemill.lm.interchange.entries import Entry, Layout
    from bytemill.lm.model_config import ModelConfig


@dataclass(frozen=True)
class Family:
    """A model type of transformers.

    A type with `read` and `write` expresses a model exactly if reading what it writes gives the same shape.
    """

    model_type: str
    architecture: str
    """Class that `AutoModelForCausalLM` loads."""
    layout: Layout
    prefix: str
    """Of the names of all tensors but the output layer."""
    defaults: Mapping[str, Any]
    """Values where `config.json` has none; those that differ from Llama's, if the type has no `read`."""
    required: Mapping[str, tuple[Any, ...]]
    """Options that are refused with any other value; the first value is the default."""
    read: Callable[[Mapping[str, Any], str], ModelConfig] | None = None
    """(content of a `config.json` with defaults, its path) -> shape of the model."""
    write: Callable[[ModelConfig], dict[str, Any]] | None = None
    """(shape of the model) -> content of a `config.json`."""
    names: Mapping[str, str] = field(default_factory=dict[str, str])
    """See `entries.named_entries`; without `prefix`."""
    entry_types: Mapping[str, type[Entry]] = field(default_factory=dict[str, "type[Entry]"])
    has_offsets: bool = False
    """Weights of norms are stored as differences from 1."""
    head_name: str = "lm_head"
    """Name of the output layer."""

    def entries(self, config: ModelConfig) -> list[Entry]:
        """Return an entry for each tensor of a model."""
        return named_entries(config, self.names, types=self.entry_types, has_offsets=self.has_offsets)

    def lacking(self, config: ModelConfig) -> list[str]:
        """Return the options of a model, with their values, that the type does not have."""
        if self.read is None or self.write is None:
            raise NotImplementedError
        given, fields = config.to_flat(), type(config).fields_by_name()
        own = _canonical(given)
        try:
            again = self.read({**self.defaults, **self.write(config)}, self.model_type)
        except (
            ModelConfigError
        ):  # the shape with the options of the type, such as rotary embeddings, is impossible
            return [f"{name} {value!r}" for name, value in given.items() if value != fields[name].default]
        theirs = _canonical(again.to_flat())
        found = [
            f"{name} {given[name]!r}"
            for name, value in own.items()
            if name not in _NOT_WRITTEN and value != theirs.get(name, fields[name].default)
        ]
        return [*found, *lacking_rope(config)]


_NOT_WRITTEN = frozenset({"dropout", "initialization", "norm_bias", "moe.balance_weight", "moe.bias_rate"})
"""Options without effect on logits; `norm_bias` is compared where norms have one."""


def _canonical(values: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a model, without those that have no effect beside others."""
    heads = values["num_heads"]
    result = dict(values)
    result["attention.num_kv_heads"] = values["attention.num_kv_heads"] or heads
    result["attention.head_dim"] = values["attention.head_dim"] or values["d_model"] // heads
    result["attention.qkv_bias"] = values["attention.qkv_bias"] or values["bias"]
    result["moe.balance"] = values["moe.balance"] == "bias"
    if values["norm"] == "layer" and not values["norm_bias"]:
        result["norm"] = "layer without biases"
    kept = used_options(values["rope.scaling"])
    result["mixer"] = canonical_mixers(values)
    result["attention.sliding_window"] = None
    if not any(name.startswith("window") for name in result["mixer"]):
        result["rope.window_theta"] = None
    elif values["rope.scaling"] is None:
        result["rope.window_theta"] = values["rope.window_theta"] or values["rope.theta"]
    for name in ROPE_OPTIONS - kept - {"rope.scaling"}:
        result[name] = None
    return result


COMMON_DEFAULTS: dict[str, Any] = {
    "num_key_value_heads": None,
    "head_dim": None,
    "tie_word_embeddings": False,
    "attention_bias": False,
}
COMMON_REQUIRED: dict[str, tuple[Any, ...]] = {"quantization_config": (None,)}
NAMES = {
    "token_embeddings": "embed_tokens",
    "ln_final": "norm",
    "lm_head": "lm_head",
    "layers.{0}.attn.q_proj": "layers.{0}.self_attn.q_proj",
    "layers.{0}.attn.k_proj": "layers.{0}.self_attn.k_proj",
    "layers.{0}.attn.v_proj": "layers.{0}.self_attn.v_proj",
    "layers.{0}.attn.output_proj": "layers.{0}.self_attn.o_proj",
    "layers.{0}.attn.q_norm": "layers.{0}.self_attn.q_norm",
    "layers.{0}.attn.k_norm": "layers.{0}.self_attn.k_norm",
    "layers.{0}.ln1": "layers.{0}.input_layernorm",
    "layers.{0}.ln2": "layers.{0}.post_attention_layernorm",
    "layers.{0}.ffn.w1": "layers.{0}.mlp.gate_proj",
    "layers.{0}.ffn.w2": "layers.{0}.mlp.down_proj",
    "layers.{0}.ffn.w3": "layers.{0}.mlp.up_proj",
}
"""Names of tensors in most types, without the prefix."""


def read_sizes(values: Mapping[str, Any], rope: Mapping[str, Any], location: str) -> dict[str, Any]:
    """Return the sizes, the norm's eps, tied embeddings and rope of a `config.json` with the usual keys."""
    if missing := [name for name in _SIZES if values.get(name) is None]:
        raise ModelConfigError(f"{location}: {missing[0]} is missing")
    heads, width = values["num_attention_heads"], values["hidden_size"]
    return {
        **{name: values[theirs] for theirs, name in _SIZES.items()},
        "context_length": readable_context(values, rope),
        "tied_embeddings": bool(values["tie_word_embeddings"]),
        "rope": dict(rope),
        "attention": {
            "num_kv_heads": values["num_key_value_heads"]
            if values["num_key_value_heads"] not in (None, heads)
            else None,
            "head_dim": values["head_dim"]
            if (values["head_dim"] or width // heads) * heads != width
            else None,
        },
    }


def write_sizes(config: ModelConfig) -> dict[str, Any]:
    """Return what `read_sizes` reads."""
    return {
        **{theirs: getattr(config, name) for theirs, name in _SIZES.items()},
        "max_position_embeddings": config.context_length,
        "num_key_value_heads": config.n_kv_heads,
        "head_dim": config.d_head,
        "tie_word_embeddings": config.tied_embeddings,
        "attention_dropout": config.dropout,
        "pad_token_id": None,  # some types have a default above small vocabularies
        **write_rope(config),
    }


_SIZES = {
    "vocab_size": "vocab_size",
    "hidden_size": "d_model",
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads",
    "intermediate_size": "d_ff",
}
