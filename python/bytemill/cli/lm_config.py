"""Command-line options for the settings of a run."""

from __future__ import annotations

import os
from dataclasses import field, fields, is_dataclass, make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_origin

from cyclopts import Group, Parameter
from pydantic import SkipValidation

from bytemill.cli.app import SHOWS_ALL
from bytemill.lm.planning import n_parameters
from bytemill.lm.presets import PRESETS
from bytemill.lm.training.config import (
    DEFAULT_PRESET,
    DERIVING,
    SECTIONS,
    Resolved,
    environment_layers,
    file_layer,
    is_run_folder,
    parse_setting,
    resolve,
    setting_type,
)
from bytemill.storage import shown
from bytemill.tokenizer import open_tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cyclopts import Token
    from cyclopts.help import HelpPanel
    from rich.console import Console, ConsoleOptions

    from bytemill.lm.training.config import Layer

_ORDER = ("data", "run", "training", "model", "optimizer", "schedule")
"""Sections in the order of the help: what every run must set comes first."""
_TUNING = "tuning"
"""Section that `lm tune` has before these."""
_USUAL = {
    *("data.tokenizer", "data.train", "data.validation", "run.folder", "run.sample_every"),
    *("training.steps", "training.batch_size", "training.init_from", "training.device"),
    *("model.preset", "model.depth", "model.context_length", "optimizer.learning_rate"),
}
"""Settings that `--help` shows; `--help-all` shows all."""
_DEFAULTS = {
    "model.vocab_size": "[default: the tokenizer's]",
    "data.tokenizer": "[required]",
    "data.train": "[required]",
}

_SHORT = {"training.init_from": ("--init-from",)}
"""Further names of options."""


def resolve_options(
    config: str | Path | None, options: Any, *, is_plan: bool = False, defaults: Layer | None = None
) -> Resolved:
    """Merge the settings of all sources: defaults < file < environment < flags.

    Args:
        config: First argument of the command: a preset, a TOML file, a run folder or None.
        options: The `SettingOptions` that cyclopts has filled.
        is_plan: Ignore the tokenizer, which a plan does not need.
        defaults: Values between the defaults and the file.

    Raises:
        RunConfigError: A value is wrong; the message names the key and its origin.
    """
    layers: list[Layer] = [] if defaults is None else [defaults]
    if config is not None and str(config) in PRESETS:
        layers.append(("the command line", {"model.preset": str(config)}))
    elif is_plan and config is not None and _is_model(Path(config)):
        from bytemill.lm.interchange.imported import model_settings

        layers.append((str(config), model_settings(config)))
    elif config is not None:
        layers.append(file_layer(config))
    layers += environment_layers(os.environ)
    if config is not None and is_run_folder(config):
        layers.append(("the command line", {"run.folder": shown(config)}))
    layers += [(_flag(key, value), {key: value}) for key, value in _set_options(options)]
    found = ((origin, path) for origin, own in reversed(layers) if (path := own.get("training.init_from")))
    origin, init_from = next(found, ("", None))
    if isinstance(init_from, str):
        from bytemill.cli.lm_interchange import usable_path
        from bytemill.lm.training.preparation import initial_layers

        path = str(usable_path(init_from))
        run = Path(config) if config and is_run_folder(config) else None
        layers = initial_layers(path, run) + layers
        if path != init_from:
            layers.append((origin, {"training.init_from": path}))
    tokenizer = next((name for _, own in reversed(layers) if (name := own.get("data.tokenizer"))), None)
    n_vocab = open_tokenizer(tokenizer).n_vocab if isinstance(tokenizer, str) and not is_plan else None
    return resolve(layers, n_vocab=n_vocab)


def _is_model(path: Path) -> bool:
    """Return True for a model that is not a run: imported, of transformers, or a GGUF file."""
    names = ("model.json", "config.json")
    is_run = (path / "config.toml").exists()
    return path.suffix == ".gguf" or (not is_run and any((path / name).is_file() for name in names))


def _set_options(options: Any) -> Iterator[tuple[str, Any]]:
    for section in fields(options) if is_dataclass(options) else ():
        values = getattr(options, section.name)
        for each in fields(values) if values is not None else ():
            if (value := getattr(values, each.name)) is not None:
                yield f"{section.name}.{each.name.replace('__', '.')}", value


def _flag(key: str, value: Any) -> str:
    table, _, name = key.replace("_", "-").rpartition(".")
    return f"--{table}.{'no-' if value is False else ''}{name}"


def _print_settings(console: Console, options: ConsoleOptions, panel: HelpPanel) -> None:
    """Print the help of a section; a help formatter of cyclopts."""
    from cyclopts.help import DefaultFormatter

    usual = {_flag(key, None) for key in _USUAL}
    is_shown = SHOWS_ALL.get() or panel.title == _TUNING.capitalize()
    entries = [entry for entry in panel.entries if is_shown or not usual.isdisjoint(entry.names)]
    if entries:
        DefaultFormatter()(console, options, panel.copy(entries=entries))


def _option(section: str, name: str, default: Any, about: str) -> tuple[str, Any, Any]:
    """Return a dataclass field that is None unless the option is set."""
    key = f"{section}.{name}"
    kind = setting_type(key)
    is_list = get_origin(kind) is tuple

    def convert(_: Any, tokens: Sequence[Token]) -> Any:
        return [token.value for token in tokens] if is_list else parse_setting(key, tokens[0].value)

    about = " ".join(about.split())  # descriptions are docstrings of several lines
    if key in _DEFAULTS:
        about += f" {_DEFAULTS[key]}"
    elif default not in (None, "", ()):
        about += f" [default: {str(default).lower() if isinstance(default, bool) else default}]"
    parameter = Parameter(
        name=[_flag(key, None), *_SHORT.get(key, ())],
        help=about,
        show_default=False,
        negative=_flag(key, False) if kind is bool else (),
        consume_multiple=is_list,
        group=Group(
            section.capitalize(),
            sort_key=(_TUNING, *_ORDER).index(section) - len(_ORDER) - 1,
            help_formatter=_print_settings,
        ),
        converter=convert,
    )
    # cyclopts would have pydantic check the value against the annotation.
    field_name = name.replace(".", "__")
    return field_name, Annotated[Annotated[kind, SkipValidation] | None, parameter], field(default=None)


def _section(section: str) -> tuple[str, Any, Any]:
    options: list[tuple[str, Any, Any]] = []
    for key, (_, about) in DERIVING.items():
        table, _, name = key.partition(".")
        is_preset = key == "model.preset"
        text = f"{about}: {_presets_with_sizes()}." if is_preset else f"{about}."
        if table == section:
            options.append(_option(section, name, DEFAULT_PRESET if is_preset else None, text))
    shape = PRESETS[DEFAULT_PRESET].to_flat()
    for name, info in SECTIONS[section].fields_by_name().items():
        default = shape[name] if section == "model" else info.default
        options.append(_option(section, name, default, info.description or ""))
    kind = _options_class(f"{section.capitalize()}Options", options)
    return section, Annotated[kind | None, Parameter(name=f"--{section}")], field(default=None)


def _presets_with_sizes() -> str:
    """Return the presets with their millions of parameters."""
    return ", ".join(f"{name} ({n_parameters(shape) / 1e6:.0f}M)" for name, shape in PRESETS.items())


def _options_class(name: str, options: list[tuple[str, Any, Any]]) -> Any:
    made = make_dataclass(name, options, frozen=True, kw_only=True)
    made.__module__ = __name__  # cyclopts takes classes of the standard library for plain values
    return made


SettingOptions: Any = _options_class("SettingOptions", [_section(name) for name in _ORDER])
"""A dataclass with a field for each section, each with a field for each setting."""
TuneOptions: Any = _options_class("TuneOptions", [_section(name) for name in (_TUNING, *_ORDER)])
"""The same with the section of tuning."""
