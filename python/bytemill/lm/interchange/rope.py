"""The rotary embedding in a `config.json` of transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from bytemill.errors import ModelConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bytemill.lm.model_config import ModelConfig

_KEYS: dict[str, dict[str, str]] = {
    "linear": {"factor": "factor"},
    "llama3": {
        "factor": "factor",
        "low_freq_factor": "low_freq_factor",
        "high_freq_factor": "high_freq_factor",
        "original_context": "original_max_position_embeddings",
    },
    "yarn": {
        "factor": "factor",
        "beta_fast": "beta_fast",
        "beta_slow": "beta_slow",
        "truncate": "truncate",
        "original_context": "original_max_position_embeddings",
        "magnitude": "attention_factor",
    },
    "dynamic": {"factor": "factor"},
    "longrope": {
        "factor": "factor",
        "short_divisors": "short_factor",
        "long_divisors": "long_factor",
        "original_context": "original_max_position_embeddings",
        "magnitude": "attention_factor",
    },
}
"""Scaling -> setting of the table `rope` -> key of transformers."""
_OPTIONAL = frozenset({"beta_fast", "beta_slow", "truncate", "attention_factor"})
ROPE_OPTIONS = frozenset(f"rope.{name}" for keys in _KEYS.values() for name in keys) | {"rope.scaling"}
"""Options of a model that are written here."""


def used_options(scaling: str | None) -> frozenset[str]:
    """Return the options of the table `rope` that a scaling uses, apart from those of all rotary embeddings."""
    own = {} if scaling is None else _KEYS[scaling]
    more = {"original_context"} if scaling == "dynamic" else set[str]()
    return frozenset(f"rope.{name}" for name in (*own, *more))


def read_rope(
    values: Mapping[str, Any],
    location: str,
    *,
    fraction: float | None = None,
    kind_of_layer: str | None = None,
) -> dict[str, Any]:
    """Return settings of the table `rope` of a model.

    Args:
        values: Content of a `config.json`.
        location: Path of the file, for messages.
        fraction: Default of the share of each head that is rotated; None: a share below 1 is refused.
        kind_of_layer: Key of the table of these layers, in a `config.json` that has several.

    Raises:
        ModelConfigError: The scaling is unknown, or a number is missing.
    """
    key = "rope_parameters" if values.get("rope_parameters") else "rope_scaling"
    own = cast("dict[str, Any]", values.get(key) or {})
    if kind_of_layer is not None and kind_of_layer in own:
        own = cast("dict[str, Any]", own[kind_of_layer] or {})
    kind = own.get("rope_type", own.get("type", "default"))
    share = own.get("partial_rotary_factor", values.get("partial_rotary_factor"))
    if fraction is None and share not in (None, 1):
        raise ModelConfigError(
            f"{location}: partial_rotary_factor is {share!r}, which bytemill does not have"
        )
    result: dict[str, Any] = {"theta": float(own.get("rope_theta", values.get("rope_theta") or 10_000.0))}
    if fraction is not None:
        result["fraction"] = float(fraction if share is None else share)
    if kind == "default":
        return result
    if kind not in _KEYS:
        raise ModelConfigError(f"{location}: {key}.rope_type is {kind!r}, which bytemill does not have")
    for option in ("mscale", "mscale_all_dim"):
        if own.get(option):
            raise ModelConfigError(
                f"{location}: {key}.{option} is {own[option]!r}, which bytemill does not have"
            )
    result["scaling"] = kind
    positions = values.get("max_position_embeddings")
    own = {"original_max_position_embeddings": values.get("original_max_position_embeddings"), **own}
    for name, theirs in _KEYS[kind].items():
        value = own.get(theirs)
        if value is None and theirs == "original_max_position_embeddings" and kind != "llama3":
            value = positions
        if value is None and theirs == "factor" and kind in {"yarn", "longrope"} and positions:
            value = max(1.0, positions / (own["original_max_position_embeddings"] or positions))
        if value is not None:
            is_number = isinstance(value, int) and not isinstance(value, bool) and name != "original_context"
            result[name] = (
                float(value)
                if is_number
                else tuple(cast("list[float]", value))
                if isinstance(value, list)
                else value
            )
        elif theirs not in _OPTIONAL:
            raise ModelConfigError(f"{location}: {key} of type {kind!r} lacks {theirs!r}")
    if kind == "dynamic":
        result["original_context"] = positions
    return result


def layer_table(values: Mapping[str, Any], kind_of_layer: str) -> dict[str, Any]:
    """Return the table of a kind of layers in `rope_parameters`; empty if there is none."""
    tables = cast("dict[str, Any]", values.get("rope_parameters") or {})
    return cast("dict[str, Any]", tables.get(kind_of_layer) or {})


def readable_context(values: Mapping[str, Any], rope: Mapping[str, Any]) -> int:
    """Return the context length of an imported model: with longrope, that in which its short divisors hold.

    For longer texts, transformers rotates all positions otherwise.
    """
    length = values["max_position_embeddings"]
    return min(length, rope["original_context"]) if rope.get("scaling") == "longrope" else length


def write_rope(config: ModelConfig) -> dict[str, Any]:
    """Return the keys `rope_theta` and, if wavelengths are scaled, `rope_scaling`."""
    rope = config.rope
    document: dict[str, Any] = {"rope_theta": rope.theta}
    if rope.scaling is not None:
        values = {theirs: getattr(rope, name) for name, theirs in _KEYS[rope.scaling].items()}
        document["rope_scaling"] = {
            "rope_type": rope.scaling,
            **{
                name: list(cast("tuple[float, ...]", value)) if isinstance(value, tuple) else value
                for name, value in values.items()
                if value is not None
            },
        }
    return document


def lacking_rope(config: ModelConfig) -> list[str]:
    """Return the options of the rotary embedding that transformers does not have, with their values."""
    rope = config.rope
    if rope.scaling in {"dynamic", "longrope"} and config.context_length > rope.original_context:
        # transformers chooses frequencies by the length of each text, this package by the context length
        return [f"rope.scaling {rope.scaling!r} with context_length above rope.original_context"]
    if rope.magnitude is not None and rope.scaling not in {"yarn", "longrope"}:
        return [f"rope.magnitude {rope.magnitude}"]
    return []
