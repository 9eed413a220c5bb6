"""Routes of runs and studies; the settings of a run, and its metrics as they grow, of which only new ones are read."""

from __future__ import annotations

import json
import os
import time
import tomllib
from array import array
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2s
from itertools import islice
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import numpy as np
from fastapi import APIRouter, Request

from bytemill.errors import RunConfigError
from bytemill.studio.files import open_regular, plain, require_regular
from bytemill.studio.models import checkpoint_paths
from bytemill.studio.routes.tokenizers import named
from bytemill.studio.schemas import Metrics, RunList, RunSummary, SkippedFile, SkippedList, packed
from bytemill.studio.state import Studio

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from bytemill.studio.jobs import Check
    from bytemill.studio.library import Entry, Shelf

router = APIRouter(tags=["runs"])

MAX_SKIPPED = 100
"""Files that are listed as left out; the rest is counted."""
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
_PATHS = "paths"
"""The table of where relative paths start from (`lm.training.config.TABLE`, whose package needs torch)."""
_MAX_SETTINGS_BYTES = 1 << 20
_END_BYTES = 1024


@router.get("/runs")
def runs(studio: Studio) -> RunList:
    """List runs and studies."""
    shelf = studio.library.shelf()
    return RunList(
        runs=[
            summary
            for entry in shelf["runs"].values()
            if (summary := _summary(entry, shelf, studio)) is not None
        ],
        studies=[named(entry, studio) for entry in shelf["studies"].values()],
    )


def _summary(entry: Entry, shelf: Shelf, studio: Studio) -> RunSummary | None:
    config: dict[str, Any] = {}
    try:
        changed = (entry.path / "metrics.jsonl").stat().st_mtime
        with suppress(ValueError):  # listed with what is left out
            config = read_settings(entry)
    except OSError:  # the folder was just removed
        return None
    checkpoints = list(checkpoint_paths(entry.path))
    steps = config.get("training.steps")
    return RunSummary(
        id=entry.id,
        name=entry.name,
        argument=studio.library.argument_of(entry),
        seconds_since_change=max(0.0, time.time() - changed),
        is_finished=isinstance(steps, int) and bool(checkpoints) and checkpoints[-1] >= steps,
        checkpoints=checkpoints,
        tokenizer=tokenizer_of(entry, shelf),
        config=config,
    )


def tokenizer_of(entry: Entry, shelf: Shelf) -> str | None:
    """Return the id of the tokenizer in a folder."""
    path = entry.path / "tokenizer.json"
    return next((each.id for each in shelf["tokenizers"].values() if each.path == path), None)


@router.get("/skipped")
def skipped(studio: Studio) -> SkippedList:
    """List files and folders that were found and cannot be read."""
    shelf = studio.library.shelf()
    found = dict(shelf.skipped)
    for entry in shelf["runs"].values():
        try:
            read_settings(entry)
        except OSError:  # the next search says more
            continue
        except ValueError as error:
            found[f"{entry.name}/config.toml"] = str(error)
    first = [SkippedFile(name=name, reason=reason) for name, reason in islice(found.items(), MAX_SKIPPED)]
    return SkippedList(n_skipped=len(found), skipped=first)


@router.get("/runs/{run_id}/metrics")
def metrics(run_id: str, studio: Studio, cursor: str = "") -> Metrics:
    """Return the records of a run after `cursor`."""
    entry = studio.library.entry("runs", run_id)
    try:
        new = read_new(entry.path / "metrics.jsonl", cursor, entry.root)
    except OSError as error:
        raise RunConfigError(f"the metrics of {entry.name} cannot be read: {error.strerror}") from error
    return Metrics(
        cursor=new.cursor,
        is_reset=new.is_reset,
        columns={name: packed(values, "f8") for name, values in new.columns.items()},
        others=new.others,
    )


@router.get("/studies/{study_id}")
async def study(study_id: str, request: Request, studio: Studio) -> dict[str, Any]:
    """Return the findings of a study, as `bytemill experiment report --json` prints them, with their stamp."""

    def work(_: Check) -> dict[str, Any]:
        from bytemill.experiment.findings import Findings

        entry = studio.library.entry("studies", study_id)
        parts = ("*.json*", "cells/*/*.?64", "cells/*/run/metrics.jsonl")
        files = [path for part in parts for path in entry.path.glob(part)]
        require_regular(files, entry.root, RunConfigError)
        findings, stamp = studio.library.stamps.read(
            entry.name, entry.files, lambda: Findings(entry.path).to_dict()
        )
        return plain({**findings, "stamp": stamp})

    return await studio.jobs.run(request, work)


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
