"""Settings of a run from TOML files and environment variables, and what their relative paths start from.

`config.toml` records the folder in which the run was started, as an absolute path and as seen from the run folder. A
relative path is looked up from the run folder first, which finds data that was moved together with the run.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args, get_origin

from pydantic import TypeAdapter, ValidationError

from bytemill.errors import RunConfigError
from bytemill.lm.training.config import SECTIONS, setting_keys
from bytemill.storage import is_url, local_input, url_of
from bytemill.system.units import parse_count
from bytemill.tokenizer import pretrained

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bytemill.lm.training.config import Layer


TABLE = "paths"
"""Name of the table in `config.toml`."""
_RELATIVE_TO, _FROM_RUN = "relative_to", "from_run"
_PATH_SETTINGS = frozenset(
    {"data.tokenizer", "data.train", "data.validation", "training.init_from", "run.hellaswag"}
)


def recorded_paths(run_folder: Path | None) -> dict[str, str]:
    """Return the current folder as `config.toml` records it.

    Args:
        run_folder: The run folder; None if it is in an object store.
    """
    try:
        here = Path.cwd()
    except OSError:  # it was removed
        return {}
    found = {_RELATIVE_TO: str(here)}
    if run_folder is not None and (from_run := _relative(here, run_folder)) is not None:
        found[_FROM_RUN] = from_run
    return found


def is_paths_table(table: object) -> bool:
    """Return True if a table of a settings file is the one that `recorded_paths` makes."""
    if not isinstance(table, dict):
        return False
    entries = cast("dict[str, object]", table)
    return entries.keys() <= {_RELATIVE_TO, _FROM_RUN} and all(
        isinstance(each, str) for each in entries.values()
    )


def with_found_paths(values: Mapping[str, Any], table: Mapping[str, str], file: Path) -> dict[str, Any]:
    """Replace relative paths that `config.toml` records by paths from the current folder.

    A path that is nowhere stays as it is. The copy in the run folder stands in for a tokenizer that is nowhere.

    Args:
        values: Values by key.
        table: What `recorded_paths` returned.
        file: The file.
    """
    places = [
        base / table[key] for base, key in ((file.parent, _FROM_RUN), (Path(), _RELATIVE_TO)) if key in table
    ]
    found = dict(values)
    for key in _PATH_SETTINGS & values.keys():
        value = values[key]
        if isinstance(value, list):
            found[key] = [_found(str(entry), places) for entry in cast("list[Any]", value)]
        else:
            found[key] = _found(str(value), places)
    tokenizer, copy = found.get("data.tokenizer"), file.with_name("tokenizer.json")
    if isinstance(tokenizer, str) and tokenizer and copy.exists() and not _is_there(tokenizer):
        found["data.tokenizer"] = str(copy)
    return found


def _found(value: str, places: list[Path]) -> str:
    """Return a path, or NAME=PATH, from the current folder."""
    name, equals, rest = value.partition("=")
    for prefix, path in (("", value), (name + equals, rest)):
        if not path or is_url(path) or Path(path).is_absolute():
            continue
        for place in places:
            # Folders on the way may be gone; but links count as the system follows them.
            for candidate in (Path(os.path.normpath(place / path)), place / path):
                if candidate.exists():
                    return prefix + (_relative(candidate, Path()) or str(candidate))
    return value


def _is_there(tokenizer: str) -> bool:
    return is_url(tokenizer) or pretrained.published_name(tokenizer) is not None or Path(tokenizer).exists()


def _relative(path: Path, start: Path) -> str | None:
    """Return a path as seen from a folder; None if it is on another drive."""
    try:
        return os.path.relpath(path, start)
    except ValueError:
        return None


ENVIRONMENT_PREFIX = "BYTEMILL_"


def train_command(folder: Path) -> str:
    """Return a command that trains a new model, for hints; in another folder if `folder` exists."""
    data = "--data.tokenizer tokenizer.json --data.train shards"
    return f"bytemill lm train {data} --run.folder {'run' if folder.exists() else shlex.quote(str(folder))}"


def is_run_folder(path: str | os.PathLike[str]) -> bool:
    """Check whether a path or URL names a folder rather than a settings file."""
    url = url_of(path)
    return Path(path).is_dir() if url is None else not url.endswith(".toml")


def file_layer(path: str | os.PathLike[str]) -> Layer:
    """Read a settings file.

    Args:
        path: A TOML file with a table per section, or a run folder, of which `config.toml` is read.

    Returns:
        The path of the file, and its values by key. Relative paths are from the current folder, or in the settings of a
        run where they were found (see `with_found_paths`).

    Raises:
        RunConfigError: The file cannot be read, is not TOML, or has a key outside of a section.
    """
    url = url_of(path)
    if url is not None:
        url = f"{url}/config.toml" if is_run_folder(url) else url
        path = local_input(url)
    path = Path(path)
    file = path / "config.toml" if path.is_dir() else path
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except OSError as error:
        if path.is_dir():
            raise RunConfigError(
                f"{path} is not a run folder: it has no config.toml",
                hint=f"train a model: {train_command(path)}",
            ) from error
        raise RunConfigError(
            f"cannot read {file}: {error.strerror}", hint="name a TOML file or a run folder"
        ) from error
    except ValueError as error:  # invalid UTF-8 or invalid TOML
        raise RunConfigError(f"{file} is not a TOML file: {error}", hint="correct the file") from error
    paths: dict[str, str] = document.pop(TABLE) if is_paths_table(document.get(TABLE)) else {}
    values: dict[str, Any] = {}
    for section, table in document.items():
        if not isinstance(table, dict):
            keys = [key for key in setting_keys() if key.endswith(f".{section}")]
            known = f"write it in the section [{keys[0].split('.')[0]}]" if keys else "remove it"
            raise RunConfigError(f"{file}: {section} is outside of a section", hint=known)
        for name, value in cast("dict[str, Any]", table).items():
            values[f"{section}.{name}"] = value
    return url or str(file), with_found_paths(values, paths, file) if paths else values


def environment_layers(environ: Mapping[str, str]) -> list[Layer]:
    """Return a layer for each environment variable that sets something: BYTEMILL_TRAINING_STEPS and so on."""
    layers: list[Layer] = []
    for key in setting_keys():
        variable = ENVIRONMENT_PREFIX + key.upper().replace(".", "_")
        if (text := environ.get(variable)) is not None:
            layers.append((variable, {key: parse_setting(key, text)}))
    return layers


def parse_setting(key: str, text: str) -> Any:
    """Parse a value from text; a list is split like a shell command, and a whole number may be a count such as 32k.

    Text of the wrong type is returned unchanged: `resolve` refuses it and names its origin.

    >>> parse_setting("training.steps", "500"), parse_setting("data.train", "a 'b c'")
    (500, ['a', 'b c'])
    """
    kind = setting_type(key)
    if get_origin(kind) is tuple:
        return shlex.split(text)
    if kind is int:
        with contextlib.suppress(ValueError):
            return parse_count(text)
    with contextlib.suppress(ValidationError):
        return TypeAdapter[Any](kind).validate_strings(text)
    return text


def setting_type(key: str) -> Any:
    """Return the type of a setting, without `| None` and constraints."""
    section, name = key.split(".")
    if name == "preset":
        return str
    annotation: Any = SECTIONS[section].model_fields[name].annotation
    if type(None) in get_args(annotation):
        annotation = next(one for one in get_args(annotation) if one is not type(None))
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
