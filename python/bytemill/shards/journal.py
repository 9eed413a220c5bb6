"""Checkpoints of an encoding, from which an interrupted run resumes."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any, cast

from bytemill.corpus import CorpusCounts, Position
from bytemill.errors import ShardError
from bytemill.system.atomic_files import write_bytes

if TYPE_CHECKING:
    from pathlib import Path

JOURNAL_NAME = "progress.json"
_VERSION = 1
_AFRESH_HINT = "overwrite=True (--overwrite) begins it afresh"


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A place between two batches, and all that is needed to go on from there."""

    position: Position
    """In the corpus."""
    n_bytes_read: int
    carry: tuple[Any, ...] | None
    """What is left of a document that goes on (`DocumentEncoder.carry`)."""
    parts: list[dict[str, Any]]
    """For each part of the corpus what was counted of it."""
    shards: list[dict[str, Any]]
    """For each part of the corpus how far its files have come (`ShardWriter.checkpoint`)."""


def write_journal(folder: Path, identity: dict[str, Any], checkpoint: Checkpoint) -> None:
    """Write the journal of `folder`, atomically: the one before it stays until then. Raises `OutputError`."""
    document = {"version": _VERSION, "identity": identity, **dataclasses.asdict(checkpoint)}
    write_bytes(folder / JOURNAL_NAME, json.dumps(document).encode())


def read_journal(folder: Path, identity: dict[str, Any]) -> Checkpoint | None:
    """Where the interrupted encoding to `folder` goes on, None where nothing tells.

    Raises `ShardError` where that was another encoding, naming the first difference, and where the journal is damaged.
    """
    path = folder / JOURNAL_NAME
    try:
        document = json.loads(path.read_bytes())
        if document["version"] != _VERSION:
            raise ShardError(f"{path} has version {document['version']!r}", hint=_AFRESH_HINT)
        before = document["identity"]
        position = document["position"]
        checkpoint = Checkpoint(
            Position(position["source"], position["state"], CorpusCounts(**position["counts"])),
            document["n_bytes_read"],
            None if document["carry"] is None else tuple(document["carry"]),
            document["parts"],
            document["shards"],
        )
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ShardError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ShardError(f"{path} is damaged: {error!r:.100}", hint=_AFRESH_HINT) from error
    if difference := first_difference(before, identity):
        raise ShardError(
            f"{folder} holds the beginning of other shards: {difference}",
            hint=f"give the same settings to go on, or another folder; {_AFRESH_HINT}",
        )
    return checkpoint


def as_json(value: Any) -> Any:
    """What comes back when `value` is written as JSON and read again.

    >>> as_json({"a": (1, None)})
    {'a': [1, None]}
    """
    return json.loads(json.dumps(value))


def first_difference(before: Any, now: Any, name: str = "") -> str | None:
    """The first place where two JSON values differ, in words; None where they are equal.

    >>> first_difference({"seed": 0, "corpus": {"sample": None}}, {"seed": 0, "corpus": {"sample": 0.5}})
    'corpus.sample was None, now it is 0.5'
    """
    if isinstance(before, dict) and isinstance(now, dict):
        old, new = cast("dict[str, Any]", before), cast("dict[str, Any]", now)
        for key in [*old, *(key for key in new if key not in old)]:
            within = f"{name}.{key}" if name else key
            if difference := first_difference(old.get(key), new.get(key), within):
                return difference
        return None
    if isinstance(before, list) and isinstance(now, list):
        old_items, new_items = cast("list[Any]", before), cast("list[Any]", now)
        if len(old_items) != len(new_items):
            return f"{name} had {len(old_items)} entries, now it has {len(new_items)}"
        differences = (
            first_difference(*items, f"{name}[{index}]")
            for index, items in enumerate(zip(old_items, new_items, strict=True))
        )
        return next(filter(None, differences), None)
    # 1 and True are equal to Python, and no setting changes from one to the other.
    return None if before == now else f"{name} was {_shown(before)}, now it is {_shown(now)}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"
