"""Settings of a run on the command line: an option for each, from a flag, the environment or a TOML file."""

from __future__ import annotations

import contextlib
from dataclasses import field, fields, is_dataclass, make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_args, get_origin

from cyclopts import Group, Parameter
from cyclopts.config import Env, Toml
from pydantic import SkipValidation, TypeAdapter, ValidationError

from bytemill.errors import RunConfigError
from bytemill.lm.presets import PRESETS
from bytemill.lm.training.config import DEFAULT_PRESET, SECTIONS, Resolved, resolve
from bytemill.tokenizer.open_tokenizer import open_tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cyclopts import App, Token
    from cyclopts.argument import ArgumentCollection

ENVIRONMENT_PREFIX = "BYTEMILL_"
_FLAG, _ENVIRONMENT, _FILE = "the command line", "the environment", "the file"


class Sourced(NamedTuple):
    """A value and where it was set."""

    value: Any
    layer: str
    origin: str


def read_file(app: App, _: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Fill unset options from the TOML file, or from the run folder, that is the first argument."""
    names = [token.value for argument in arguments if argument.index == 0 for token in argument.tokens]
    if not names or names[0] in PRESETS:
        return
    path = Path(names[0])
    file = path / "config.toml" if path.is_dir() else path
    try:
        file.read_text(encoding="utf-8")
    except OSError as error:
        raise RunConfigError(
            f"cannot read {file}: {error.strerror}", hint="check the name of the file"
        ) from error
    except UnicodeDecodeError as error:
        raise RunConfigError(
            f"{file} is not a TOML file: {error}", hint="check the name of the file"
        ) from error
    # Without commands the sections are top-level keys; cyclopts would drop [data], the name of a command, otherwise.
    Toml(file, source=str(file))(app, (), arguments)


CONFIG_SOURCES = (Env(ENVIRONMENT_PREFIX, command=False, show=False), read_file)
"""Strongest first; flags are stronger than both."""


def resolve_options(config: str | Path | None, options: Any, *, is_plan: bool = False) -> Resolved:
    """Merge defaults, file, environment and flags into the settings of a run.

    Args:
        config: the first argument of the command: a preset, a TOML file, a run folder or None.
        options: the `SettingOptions` that cyclopts has filled.
        is_plan: ignore the tokenizer, which a plan does not need.

    Raises:
        RunConfigError: a value is wrong; the message names the key and its origin.
    """
    layers: dict[str, dict[str, Any]] = {_FILE: {}, _ENVIRONMENT: {}, _FLAG: {}}
    origins: dict[str, str] = {}
    if config is not None and str(config) in PRESETS:
        layers[_FILE]["model.preset"] = str(config)
    elif config is not None and Path(config).is_dir():
        layers[_FILE]["run.folder"] = str(config)
        origins["run.folder"] = _FLAG
    for key, sourced in _set_options(options):
        layers[sourced.layer][key] = sourced.value
        origins[key] = sourced.origin
    tokenizer = next((name for own in reversed(layers.values()) if (name := own.get("data.tokenizer"))), None)
    n_vocab = None if tokenizer is None or is_plan else open_tokenizer(tokenizer).n_vocab
    return resolve(list(layers.items()), n_vocab=n_vocab, origins=origins)


def _set_options(options: Any) -> Iterator[tuple[str, Sourced]]:
    """Yield the options that were set; cyclopts passes flags and empty lists on without their converter."""
    for section in fields(options) if is_dataclass(options) else ():
        values = getattr(options, section.name)
        for each in fields(values) if values is not None else ():
            value, key = getattr(values, each.name), f"{section.name}.{each.name}"
            if isinstance(value, Sourced):
                yield key, value
            elif isinstance(value, bool):
                flag = key.replace("_", "-")
                yield key, Sourced(value, _FLAG, f"--{flag if value else flag.replace('.', '.no-')}")
            elif value is not None:
                yield key, Sourced(value, _FILE, _FILE)


def _option(section: str, name: str, annotation: Any, default: Any, about: str) -> tuple[str, Any, Any]:
    """Return a dataclass field that is None unless the option is set."""
    kind = _plain_type(annotation)
    is_list = get_origin(kind) is tuple
    adapter = TypeAdapter[Any](kind)

    def convert(_: Any, tokens: Sequence[Token]) -> Sourced:
        token = tokens[0]
        value: Any = [each.value for each in tokens] if is_list else token.value
        if not is_list:
            with contextlib.suppress(ValidationError):  # `resolve` refuses what stays a str
                value = adapter.validate_strings(token.value)
        if token.source == "cli":
            return Sourced(value, _FLAG, token.keyword or f"--{section}.{name}")
        if token.source == "env":
            return Sourced(value, _ENVIRONMENT, token.keyword or _ENVIRONMENT)
        return Sourced(value, _FILE, f"{token.source} [{section}]")

    if default not in (None, "", ()):
        shown = str(default).lower() if isinstance(default, bool) else str(default)
        about += f" [default: {shown}]"
    flag = name.replace("_", "-")
    parameter = Parameter(
        name=f"--{section}.{flag}",
        help=about,
        show_default=False,
        negative=f"--{section}.no-{flag}" if kind is bool else (),
        consume_multiple=is_list,
        group=Group(f"Settings of the {section}", sort_key=10 + list(SECTIONS).index(section)),
        converter=convert,
    )
    # cyclopts would have pydantic check the value against the annotation.
    return name, Annotated[Annotated[kind, SkipValidation] | None, parameter], field(default=None)


def _plain_type(annotation: Any) -> Any:
    """Strip `| None` and constraints."""
    if type(None) in get_args(annotation):
        annotation = next(one for one in get_args(annotation) if one is not type(None))
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def _section(section: str) -> tuple[str, Any, Any]:
    options: list[tuple[str, Any, Any]] = []
    if section == "model":
        about = f"Preset that sets all sizes: {', '.join(PRESETS)}."
        options.append(_option(section, "preset", str, DEFAULT_PRESET, about))
    for name, info in SECTIONS[section].model_fields.items():
        about, default = info.description or "", info.default
        if section == "model":
            default = getattr(PRESETS[DEFAULT_PRESET], name)
        if name == "vocab_size":
            about, default = "Number of ids; by default the tokenizer's.", None
        options.append(_option(section, name, info.annotation, default, about))
    kind = _options_class(f"{section.capitalize()}Options", options)
    return section, Annotated[kind | None, Parameter(name=f"--{section}")], field(default=None)


def _options_class(name: str, options: list[tuple[str, Any, Any]]) -> Any:
    made = make_dataclass(name, options, frozen=True, kw_only=True)
    made.__module__ = __name__  # cyclopts takes classes of the standard library for plain values
    return made


SettingOptions: Any = _options_class("SettingOptions", [_section(name) for name in SECTIONS])
"""A dataclass with a field for each section, each with a field for each setting."""
