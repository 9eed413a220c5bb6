"""Where the relative paths in the settings of a run start from, so that the run can be resumed from any folder.

`config.toml` records the folder in which the run was started, as an absolute path and as seen from the run folder. A
relative path is looked up from the run folder first, which finds data that was moved together with the run.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from bytemill.storage import is_url
from bytemill.tokenizer import pretrained

if TYPE_CHECKING:
    from collections.abc import Mapping

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
