"""The settings of a run, as its config.toml records them."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any, cast

from bytemill.studio.files import open_regular, plain

if TYPE_CHECKING:
    from bytemill.studio.library import Entry

MAX_BYTES = 1 << 20
_PATHS = "paths"
"""The table of where relative paths start from (`lm.training.config.TABLE`, whose package needs torch)."""


def read_settings(run: Entry) -> dict[str, Any]:
    """Return the settings of a run by dotted name.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is not TOML, too large, or nested too deeply.
    """
    with open_regular(run.path / "config.toml", run.root) as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ValueError("it has more than 1 MiB")
    try:
        settings = plain(tomllib.loads(data.decode(errors="replace")))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"it is not TOML: {error}") from error
    settings.pop(_PATHS, None)  # a browser learns no paths of this machine
    return _flat(settings)


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            found |= _flat(cast("dict[str, Any]", value), f"{prefix}{name}.")
        else:
            found[prefix + name] = value
    return found
