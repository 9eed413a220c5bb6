"""What a tokenizer costs a language model of a given shape."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from bytemill.errors import ModelConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

_CACHE_BYTES = 2
"""Bytes per number in the cache of keys and values: bfloat16 or float16."""
_VOCAB_MULTIPLE = 64


@dataclass(frozen=True)
class ModelCost:
    """Cost of a tokenizer for a model; None where it depends on a text that has no tokens."""

    vocab_size: int
    """Number of ids, rounded up to a multiple of 64."""
    embedding_parameters: int
    """Of the token embedding and, unless it is the same, the output layer."""
    parameter_share: float
    """Their share of all parameters."""
    output_flops_share: float
    """Share of the output layer in the FLOPs of a token."""
    flops_per_byte: dict[str, float | None]
    """Group -> FLOPs of a forward pass per byte of text, at a full context."""
    cache_bytes_per_kilobyte: dict[str, float | None]
    """Group -> bytes of keys and values in 16 bits per 1,000 bytes of text."""
    context_bytes: dict[str, float | None]
    """Group -> bytes of text that fill the context."""

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON."""
        return asdict(self)


def model_cost(preset_name: str, n_vocab: int, bytes_per_token: Mapping[str, float | None]) -> ModelCost:
    """Compute what a tokenizer costs a model.

    Args:
        preset_name: Name of the model's shape.
        n_vocab: Number of ids of the tokenizer.
        bytes_per_token: Group -> bytes per token.

    Raises:
        ModelConfigError: There is no such preset.
    """
    # pydantic, which presets need, takes longer to import than a small comparison.
    from bytemill.lm.planning.formulas import forward_flops, parameters_by_part
    from bytemill.lm.presets import preset

    shape = preset(preset_name, vocab_size=-(-n_vocab // _VOCAB_MULTIPLE) * _VOCAB_MULTIPLE)
    parameters, flops = parameters_by_part(shape), forward_flops(shape)
    own = parameters["token embeddings"] + parameters["output layer"]
    total_flops = sum(flops.values())
    per_token = total_flops / shape.context_length
    cache = 2 * shape.num_layers * shape.n_kv_heads * shape.d_head * _CACHE_BYTES
    return ModelCost(
        shape.vocab_size,
        own,
        own / sum(parameters.values()),
        flops["output layer"] / total_flops,
        {group: per_token / each if each else None for group, each in bytes_per_token.items()},
        {group: 1000 * cache / each if each else None for group, each in bytes_per_token.items()},
        {group: shape.context_length * each if each else None for group, each in bytes_per_token.items()},
    )


def check_preset(preset_name: str) -> None:
    """Raise ModelConfigError if there is no such preset."""
    from bytemill.lm.presets import PRESETS
    from bytemill.lm.settings import suggestion

    if preset_name not in PRESETS:
        raise ModelConfigError(f"unknown preset {preset_name!r}", hint=suggestion(preset_name, PRESETS))
