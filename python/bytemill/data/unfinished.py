"""A shard folder that is being written: its lock, its journal of checkpoints, and what a killed run leaves in it."""

import contextlib
import hashlib
import json
import shutil
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

from bytemill.corpus import Position
from bytemill.data.manifest import (
    MANIFEST_NAME,
    PARTS,
    UNFINISHED_NAME,
    ShardInfo,
    is_documents_name,
    is_shard_name,
    is_sidecar_name,
    read_manifest,
    shard_files,
    sidecar_files,
)
from bytemill.errors import ShardError
from bytemill.system.atomic_files import (
    make_folder,
    output_errors,
    partial_name,
    remove_temporaries,
    sync_folder,
    write_bytes,
    write_text,
)
from bytemill.system.locks import try_lock
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
    mask: PartialInfo | None = None
    """The mask of the partial shard, a byte for each id."""


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


_LOCK_NAME = ".lock"
PLAN_NAME = ".units.json"
"""File in it with the plan of an encoding by several processes."""
UNITS_NAME = ".units"
"""Folder in an unfinished folder with the results of the units of work that several processes encode."""
SHUFFLE_NAME = ".shuffle"
"""Folder in an unfinished folder with the text of a corpus that is shuffled."""
OVERWRITE_HINT = "choose another folder, or replace the files in it with --overwrite (overwrite=True)"


def is_replaced_name(name: str) -> bool:
    """Return True if writing shards to a folder may replace or remove a file of this name."""
    own = (MANIFEST_NAME, UNFINISHED_NAME, JOURNAL_NAME, PLAN_NAME)
    return name in own or is_shard_name(name) or is_sidecar_name(name)


@contextlib.contextmanager
def lock_folders(
    folder: Path, parts: Sequence[str] = (), *, overwrite: bool, journal: Path | None = None
) -> Generator[bool]:
    """Lock and prepare an output folder and the folders of the parts of a corpus in it, as `lock_folder` does for one.

    Args:
        folder: The output folder, created if needed.
        parts: Names of the parts; empty for a corpus that is not split.
        overwrite: Replace existing shards, also those of a corpus that was split where this one is not.
        journal: Journal from which an interrupted run can resume.

    Yields:
        True if an interrupted run can be resumed.

    Raises:
        ShardError: As `lock_folder`. Also if `folder` has the parts of a split corpus, and this one is not split.
        OutputError: If a folder cannot be written.
    """
    others = [] if parts else [path for name in PARTS if _has_shards(path := folder / name)]
    for path in others:
        of_split = not (path / MANIFEST_NAME).exists() or read_manifest(path).part is not None
        if not overwrite or not of_split:
            raise ShardError(
                f"{folder} already contains shards in {path.name}",
                hint=OVERWRITE_HINT if of_split else "choose another folder",
            )
    with contextlib.ExitStack() as stack:
        for path in others:
            stack.callback(_remove_if_empty, path)
            stack.enter_context(lock_folder(path, overwrite=True))
        locked = [folder, *(folder / name for name in parts)]
        resumes = [
            stack.enter_context(lock_folder(path, overwrite=overwrite, journal=journal)) for path in locked
        ]
        yield all(resumes)


def _has_shards(folder: Path) -> bool:
    return any((folder / name).exists() for name in (MANIFEST_NAME, UNFINISHED_NAME))


def _remove_if_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):
        folder.rmdir()


@contextlib.contextmanager
def lock_folder(folder: Path, *, overwrite: bool, journal: Path | None = None) -> Generator[bool]:
    """Lock and prepare a folder; the block writes shards, and the manifest last.

    `UNFINISHED.txt` marks the folder during the block and after an interruption: its shards may be replaced or resumed.
    If the block fails and there is no journal, partial files are removed. If no shard is left either, the mark is
    removed, and so is a new folder.

    Args:
        folder: The output folder, created if needed.
        overwrite: Replace existing shards.
        journal: Journal from which an interrupted run can resume.

    Yields:
        True if an interrupted run can be resumed: its files are kept. False if the folder was cleared.

    Raises:
        ShardError: If another process holds the lock, or if the folder has a manifest or shards, but no mark, and
            `overwrite` is False.
        OutputError: If the folder cannot be written.
    """
    is_new = not folder.exists()
    make_folder(folder)
    marker = folder / UNFINISHED_NAME
    try:
        with _locked(marker) as was_marked:
            may_replace = was_marked
            try:
                if not overwrite and not was_marked:
                    _refuse_existing(folder)
                may_replace = True
                resumes = was_marked and not overwrite and journal is not None and journal.exists()
                with output_errors(folder):
                    _clear(folder, was_marked=was_marked, resumes=resumes)
                yield resumes
            except BaseException:
                if not may_replace or not _keep_unfinished(folder, journal):
                    marker.unlink(missing_ok=True)
                raise
            with output_errors(folder):
                marker.unlink()
                sync_folder(folder)
    except BaseException:
        if is_new:
            with contextlib.suppress(OSError):  # it contains finished shards
                folder.rmdir()
        raise


def start_over(folder: Path) -> None:
    """Remove what an interrupted run left in a locked folder that is marked as unfinished. Raises `OutputError`."""
    with output_errors(folder):
        _clear(folder, was_marked=True, resumes=False)


def remove_partial_files(folder: Path) -> None:
    """Remove partial shards and a partial document index."""
    for path in _partial_files(folder):
        path.unlink(missing_ok=True)


def leftovers(folder: Path) -> list[Path]:
    """Return what a run left that was killed after it wrote the manifest, in a folder whose shards are finished."""
    marked = [UNFINISHED_NAME, JOURNAL_NAME] if (folder / UNFINISHED_NAME).exists() else []
    paths = [folder / name for name in (*marked, PLAN_NAME, UNITS_NAME, SHUFFLE_NAME, _LOCK_NAME)]
    return [*(path for path in paths if path.exists()), *_partial_files(folder)]


def remove_leftovers(folder: Path, parts: Sequence[Path]) -> list[Path]:
    """Remove `leftovers` under the lock of the folder, and return them.

    Args:
        folder: The folder.
        parts: The folders of the finished shards, whose manifests are checked again under the lock.

    Raises:
        ShardError: Another process holds the lock.
        OutputError: A file cannot be removed.
    """
    found = leftovers(folder)
    if not found:
        return []
    with held(folder), output_errors(folder):
        if not all((part / MANIFEST_NAME).exists() for part in parts):
            return []  # another encoding has begun meanwhile
        _remove_temporaries(folder)
        # The mark goes last, so that a killed removal is repeated. The lock removes its own file.
        for path in sorted(leftovers(folder), key=lambda path: path.name == UNFINISHED_NAME):
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name != _LOCK_NAME:
                path.unlink(missing_ok=True)
    return found


def _partial_files(folder: Path) -> list[Path]:
    return [*folder.glob(partial_name("shard_*")), *folder.glob(partial_name("documents*.npy"))]


def _refuse_existing(folder: Path) -> None:
    if (folder / MANIFEST_NAME).exists():
        raise ShardError(f"{folder} already contains a {MANIFEST_NAME}", hint=OVERWRITE_HINT)
    if shards := shard_files(folder):
        raise ShardError(f"{folder} contains {shards[0]} but no {MANIFEST_NAME}", hint=OVERWRITE_HINT)


def _keep_unfinished(folder: Path, journal: Path | None) -> bool:
    """Return True if an interrupted run left a journal or shards; remove partial files that are of no use."""
    if journal is not None and journal.exists():
        return True
    with contextlib.suppress(OSError):
        remove_partial_files(folder)
    return bool(shard_files(folder))


def _clear(folder: Path, *, was_marked: bool, resumes: bool) -> None:
    """Remove the manifest, then what an earlier run left that this one does not resume."""
    is_ours = was_marked or (folder / MANIFEST_NAME).exists()
    # Without a manifest nobody takes the folder for a complete one.
    (folder / MANIFEST_NAME).unlink(missing_ok=True)
    _remove_temporaries(folder)
    if is_ours:
        shutil.rmtree(folder / SHUFFLE_NAME, ignore_errors=True)
    if resumes:
        return
    names = [JOURNAL_NAME, PLAN_NAME, *shard_files(folder), *sidecar_files(folder)]
    if is_ours:
        shutil.rmtree(folder / UNITS_NAME, ignore_errors=True)
    else:  # files of these names may belong to the user
        names = [
            name for name in names if name not in (JOURNAL_NAME, PLAN_NAME) and not is_documents_name(name)
        ]
    for name in names:
        (folder / name).unlink(missing_ok=True)
    remove_partial_files(folder)


def _remove_temporaries(folder: Path) -> None:
    for name in ("shard_*", MANIFEST_NAME, JOURNAL_NAME):
        remove_temporaries(folder, name)


@contextlib.contextmanager
def held(folder: Path) -> Generator[None]:
    """Hold the lock of a folder without marking it. Raises `ShardError` if another process holds it."""
    with output_errors(folder):
        lock = try_lock(folder / _LOCK_NAME)
    if lock is None:
        raise ShardError(
            f"another process is writing shards to {folder}",
            hint="wait until it has finished, or choose another folder",
        )
    with lock:
        yield


@contextlib.contextmanager
def _locked(marker: Path) -> Generator[bool]:
    """Hold the lock of the folder and mark it. Yields True if it was marked before."""
    with held(marker.parent):
        was_marked = marker.exists()
        if not was_marked:
            write_text(marker, "The shards in this folder are unfinished. Run the same command again.\n")
        yield was_marked
