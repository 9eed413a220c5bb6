"""The settings of a run as options: `--model.num-layers 8`, made from the settings themselves."""

from __future__ import annotations

import types
from dataclasses import field, fields, is_dataclass, make_dataclass
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin

from cyclopts import Group, Parameter

from bytemill.lm.training.config import Setting, settings

if TYPE_CHECKING:
    from collections.abc import Iterator

_ABOUT = {
    "model": "Settings of the model",
    "data": "Settings of the data",
    "optimizer": "Settings of the optimizer",
    "schedule": "Settings of the schedule",
    "training": "Settings of the training",
    "run": "Settings of the run",
}


def given_settings(options: Any) -> dict[str, Any]:
    """The settings that were given as options, by key."""
    return dict(_given(options))


def _given(options: Any) -> Iterator[tuple[str, Any]]:
    for section in fields(options) if is_dataclass(options) else ():
        values = getattr(options, section.name)
        for each in fields(values) if values is not None else ():
            if (value := getattr(values, each.name)) is not None:
                yield f"{section.name}.{each.name}", value


def _option(setting: Setting) -> tuple[str, Any, Any]:
    """A field of the class of options: None where the option is not given."""
    kind = _without_none(setting.kind)
    flag = setting.name.replace("_", "-")
    names = [f"--{setting.section}.{flag}"]
    if flag.startswith("num-"):
        names.append(f"--{setting.section}.n-{flag.removeprefix('num-')}")
    about = setting.about
    if setting.default not in (None, "", ()):
        about += f" [default: {_shown(setting.default)}]"
    parameter = Parameter(
        name=names,
        help=about,
        show_default=False,
        negative=f"--{setting.section}.no-{flag}" if kind is bool else (),
        consume_multiple=get_origin(kind) is tuple,
        group=_GROUPS[setting.section],
    )
    return setting.name, Annotated[kind | None, parameter], field(default=None)


def _without_none(kind: Any) -> Any:
    if get_origin(kind) in (Union, types.UnionType):
        return next(one for one in get_args(kind) if one is not type(None))
    return kind


def _shown(value: Any) -> str:
    return (
        str(value).lower()
        if isinstance(value, bool)
        else f"{value:g}"
        if isinstance(value, float)
        else str(value)
    )


def _options_class(name: str, options: list[tuple[str, Any, Any]]) -> Any:
    made = make_dataclass(name, options, frozen=True, kw_only=True)
    # make_dataclass says "types", and what is of Python's own modules cyclopts takes for a value, not for options.
    made.__module__ = __name__
    return made


def _section(name: str) -> tuple[str, Any, Any]:
    own = [_option(setting) for setting in settings().values() if setting.section == name]
    kind = _options_class(f"{name.capitalize()}Options", own)
    return name, Annotated[kind | None, Parameter(name=f"--{name}")], field(default=None)


_GROUPS = {name: Group(about, sort_key=10 + place) for place, (name, about) in enumerate(_ABOUT.items())}

SettingOptions: Any = _options_class("SettingOptions", [_section(name) for name in _ABOUT])
"""A dataclass with a field for each section, each with a field for each setting."""
