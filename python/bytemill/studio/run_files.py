"""Files of a run: its settings, and its metrics as they grow, of which only new records are read."""

from __future__ import annotations

import json
import os
import tomllib
from array import array
from collections import defaultdict
from dataclasses import dataclass, field
from hashlib import blake2s
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import numpy as np

from bytemill.studio.files import open_regular, plain

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from bytemill.studio.library import Entry


_MAX_SETTINGS_BYTES = 1 << 20
_PATHS = "paths"
"""The table of where relative paths start from (`lm.training.config.TABLE`, whose package needs torch)."""


def read_settings(run: Entry) -> dict[str, Any]:
    """Return the settings of a run by dotted name.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is not TOML, too large, or nested too deeply.
    """
    with open_regular(run.path / "config.toml", run.root) as file:
        data = file.read(_MAX_SETTINGS_BYTES + 1)
    if len(data) > _MAX_SETTINGS_BYTES:
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


_END_BYTES = 1024
STEP_COLUMNS = (
    "step",
    "loss",
    "bits_per_byte",
    "grad_norm",
    "learning_rate",
    "n_tokens",
    "tokens_per_second",
    "flops_per_second",
)


@dataclass(frozen=True)
class NewMetrics:
    """The records between two positions in a metrics file."""

    cursor: str
    """Where the next call starts."""
    is_reset: bool
    """The records are all there are: the file was replaced, as a resumed run does."""
    columns: dict[str, NDArray[np.float64]]
    """Values of the step records, by name in `STEP_COLUMNS`; NaN for null."""
    others: dict[str, list[dict[str, Any]]] = field(default_factory=dict[str, Any])
    """All other records by kind."""


def read_new(path: Path, cursor: str = "", root: Path | None = None) -> NewMetrics:
    """Read the complete lines after `cursor`.

    The file is only read, so the run that writes it is not held back.

    Args:
        path: The file.
        cursor: That of an earlier result, or "" for the start.
        root: Folder that links may not lead out of; by default that of the file.

    Raises:
        OSError: The file cannot be read, or is not a regular one below `root`.
    """
    with open_regular(path, path.parent if root is None else root) as file:
        size = file.seek(0, 2)
        # A resumed run replaces the file by one that begins alike, but has another inode. A run that starts over may
        # get the inode of the one before: its last bytes are others, since records hold times.
        identity = str(os.fstat(file.fileno()).st_ino)
        known, _, offset_text = cursor.rpartition(":")
        offset = int(offset_text) if offset_text.isdecimal() and len(offset_text) < 19 else 0
        is_reset = offset > size or known != f"{identity}-{_end_hash(file, offset)}"
        if is_reset:
            offset = 0
        file.seek(offset)
        columns = {name: array("d") for name in STEP_COLUMNS}
        others: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for line in file:
            if not line.endswith(b"\n"):  # still being written
                break
            offset += len(line)
            record = _record(line)
            if record is None:
                continue
            if record.get("kind") == "step":
                for name, values in columns.items():
                    values.append(_number(record.get(name)))
            else:
                others[str(record.get("kind"))].append(record)
        end = _end_hash(file, offset)
    arrays = {name: np.frombuffer(values) if values else np.zeros(0) for name, values in columns.items()}
    return NewMetrics(f"{identity}-{end}:{offset}", is_reset, arrays, dict(others))


def _end_hash(file: BinaryIO, offset: int) -> str:
    """Return a hash of the last bytes before an offset."""
    start = max(0, offset - _END_BYTES)
    file.seek(start)
    return blake2s(file.read(offset - start), digest_size=8).hexdigest()


def _record(line: bytes) -> dict[str, Any] | None:
    try:
        record: object = plain(json.loads(line))
    except (ValueError, RecursionError):  # not JSON, or nested too deeply
        return None
    return cast("dict[str, Any]", record) if isinstance(record, dict) else None


def _number(value: Any) -> float:
    try:
        return float(value) if isinstance(value, (int, float)) else float("nan")
    except OverflowError:
        return float("nan")
