"""Layers of several kinds in a `config.json` of transformers: windows, and layers without positions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bytemill.errors import ModelConfigError
from bytemill.lm.interchange.rope import layer_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bytemill.lm.model_config import ModelConfig

_FULL, _SLIDING = "full_attention", "sliding_attention"


def read_windows(values: Mapping[str, Any], location: str, *, full_every: int) -> dict[str, Any]:
    """Return the setting `mixer` of a model in which some layers have a sliding window.

    Args:
        values: Content of a `config.json`.
        location: Path of the file, for messages.
        full_every: Without `layer_types`, every layer of this number attends to all tokens.
    """
    window, n_layers = values["sliding_window"], values["num_hidden_layers"]
    kinds = values.get("layer_types") or [
        _SLIDING if (layer + 1) % full_every else _FULL for layer in range(n_layers)
    ]
    if not set(kinds) <= {_FULL, _SLIDING} or len(kinds) != n_layers:
        raise ModelConfigError(f"{location}: layer_types is {kinds!r}, which bytemill does not have")
    if window is None or _SLIDING not in kinds:
        return {}
    return {"mixer": _period([f"window:{window}" if kind == _SLIDING else "full" for kind in kinds])}


def window_theta(values: Mapping[str, Any], default: float) -> float:
    """Return the base of the rotary embedding in layers with a window, `default` if there is none of its own."""
    return float(layer_table(values, _SLIDING).get("rope_theta") or default)


def write_windows(config: ModelConfig) -> dict[str, Any]:
    """Return `sliding_window` and `layer_types`; of windows of several widths, the first one."""
    windows = [layer.config.attention.sliding_window for layer in config.layers]
    return {
        "sliding_window": next((window for window in windows if window is not None), None),
        "layer_types": [_FULL if window is None else _SLIDING for window in windows],
    }


def read_rotated(flags: Sequence[int]) -> dict[str, Any]:
    """Return the setting `mixer` of a model in which the rotary embedding is left out where a flag is 0."""
    return {} if all(flags) else {"mixer": _period(["full" if flag else "full:nope" for flag in flags])}


def write_rotated(config: ModelConfig) -> dict[str, Any]:
    """Return `no_rope_layers`: 0 where the rotary embedding is left out."""
    return {"no_rope_layers": [int(layer.config.position == "rotary") for layer in config.layers]}


def canonical_mixers(values: Mapping[str, Any]) -> list[str]:
    """Return the mixer of each block, with `attention` as `full` or `window:N`.

    Args:
        values: Options of a model, by their dotted names.
    """
    window, names = values["attention.sliding_window"], values["mixer"]
    own = "full" if window is None else f"window:{window}"
    return [
        own if names[layer % len(names)] == "attention" else names[layer % len(names)]
        for layer in range(values["num_layers"])
    ]


def _period(names: list[str]) -> list[str]:
    """Return the shortest list that gives `names` when it is repeated."""
    n = len(names)
    return next(
        names[:size] for size in range(1, n + 1) if all(names[i] == names[i % size] for i in range(n))
    )
