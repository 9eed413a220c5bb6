"""Checkpoints of an encoding, from which an interrupted run resumes."""

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

from bytemill.corpus import Position
from bytemill.errors import ShardError
from bytemill.shards.manifest import ShardInfo
from bytemill.system.atomic_files import write_bytes
from bytemill.system.records import Count, Record, Text, parse_record, read_json_object

JOURNAL_NAME = "progress.json"
RESTART_HINT = "start over with --overwrite (overwrite=True)"


@dataclass(kw_only=True)
class PartCounts(Record):
    """Counts of one part of the corpus."""

    source_bytes: list[Count] = field(default_factory=list[int])
    """Bytes of text per source read so far."""
    n_documents: Count = 0
    """Documents with tokens."""
    n_empty: Count = 0
    """Documents without tokens."""

    def add_bytes(self, source: int, n_bytes: int) -> None:
        """Add bytes of text of a source."""
        self.source_bytes.extend([0] * (source + 1 - len(self.source_bytes)))
        self.source_bytes[source] += n_bytes


@dataclass(frozen=True, kw_only=True)
class PartialInfo(Record):
    """The beginning of a file that is not finished."""

    n_bytes: Count
    sha256: Text
    """Of these bytes, with the provisional header."""


@dataclass(frozen=True, kw_only=True)
class WriterState(Record):
    """State of a `ShardWriter`, from which another one resumes."""

    n_tokens: Count
    shards: tuple[ShardInfo, ...]
    """Finished shards."""
    shard: PartialInfo | None
    """The partial shard; None if there is none. Also below."""
    ends: PartialInfo | None
    """The partial file of document ends in that shard."""
    documents: PartialInfo | None
    """The partial document index."""


@dataclass(frozen=True, kw_only=True)
class Checkpoint(Record):
    """A position between two batches, with the state needed to resume from it."""

    position: Position
    """Position in the corpus."""
    n_bytes_read: Count
    carry: tuple[Text, Count, Count | None, list[Count], Count | None] | None
    """Rest of an open document (`DocumentEncoder.carry`)."""
    parts: list[PartCounts]
    """Counts of each part of the corpus."""
    writers: list[WriterState] = field(default_factory=list[WriterState])
    """State of the writer of each part."""


@dataclass(frozen=True, kw_only=True)
class _Journal(Checkpoint):
    version: Literal[3] = 3
    identity: dict[str, Any]


def write_journal(folder: Path, identity: dict[str, Any], checkpoint: Checkpoint) -> None:
    """Replace the journal of a folder atomically.

    Args:
        folder: The output folder.
        identity: What must be equal for another run to resume, as JSON values.
        checkpoint: The checkpoint.

    Raises:
        OutputError: If writing fails.
    """
    document = as_json({"version": 3, "identity": identity, **checkpoint.to_dict()})
    write_bytes(folder / JOURNAL_NAME, json.dumps({**document, "sha256": _digest(document)}).encode())


def read_journal(folder: Path, identity: dict[str, Any]) -> Checkpoint | None:
    """Read the checkpoint of a folder, or return None if there is no journal.

    Args:
        folder: The output folder.
        identity: As for `write_journal`.

    Raises:
        ShardError: If the journal is damaged or of another encoding; names the first difference.
    """
    path = folder / JOURNAL_NAME
    try:
        document = read_json_object(path, ShardError, RESTART_HINT)
    except FileNotFoundError:
        return None
    journal = parse_record(_Journal, document, path, ShardError, RESTART_HINT)
    if document.pop("sha256", None) != _digest(document):
        raise ShardError(f"{path} is damaged: its sha256 does not match its content", hint=RESTART_HINT)
    if difference := first_difference(journal.identity, identity):
        raise ShardError(
            f"{folder} contains an unfinished encoding with other settings: {difference}",
            hint=f"resume with the same settings, choose another folder, or {RESTART_HINT}",
        )
    return journal


def _digest(document: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def as_json(value: Any) -> Any:
    """Return `value` as it is after writing it to JSON and reading it back.

    >>> as_json({"a": (1, None)})
    {'a': [1, None]}
    """
    return json.loads(json.dumps(value))


def first_difference(before: Any, now: Any, name: str = "") -> str | None:
    """Describe the first difference between two JSON values, or return None if they are equal.

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
    # Python treats 1 and True as equal, but no setting changes between them.
    return None if before == now else f"{name} was {_shown(before)}, now it is {_shown(now)}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"
