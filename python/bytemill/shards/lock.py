"""Exclusive lock on a shard folder, held while one process writes to it."""

import contextlib
from collections.abc import Generator
from pathlib import Path

from bytemill.errors import ShardError
from bytemill.shards.journal import JOURNAL_NAME
from bytemill.shards.manifest import (
    DOCUMENTS_NAME,
    MANIFEST_NAME,
    UNFINISHED_NAME,
    companion_files,
    shard_files,
)
from bytemill.shards.partial_file import growing_name
from bytemill.system.atomic_files import (
    make_folder,
    output_error,
    remove_temporaries,
    sync_folder,
    write_text,
)
from bytemill.system.file_lock import try_lock

_LOCK_NAME = ".lock"
OVERWRITE_HINT = "give another folder, or overwrite=True (--overwrite) to replace what is there"


@contextlib.contextmanager
def claim_folder(folder: Path, *, overwrite: bool, journal: Path | None = None) -> Generator[bool]:
    """Make `folder` ready for a set of shards, which the block writes, and the manifest last.

    Gives True where the `journal` tells how to go on with what an interrupted run has left: that stays. Else the folder
    is cleared of what such a run left, so that nothing of an older set outlives it.

    While the block runs, and after it was interrupted, `UNFINISHED.txt` marks the folder as one whose shards may be
    replaced or gone on with. When the block fails and there is no journal, growing files are removed, and where no
    shard stands no mark stays either, nor the folder if it is new.

    Raises `ShardError` where another run writes there, and, unless `overwrite`, where the folder holds a manifest, or
    shards, without the mark; `OutputError` where it cannot be written to.
    """
    is_new = not folder.exists()
    make_folder(folder)
    marker = folder / UNFINISHED_NAME
    goes_on = False
    try:
        with _locked(marker) as was_marked:
            ours = was_marked
            try:
                if not overwrite and not was_marked:
                    _refuse_others_work(folder)
                ours = True
                goes_on = was_marked and not overwrite and journal is not None and journal.exists()
                if goes_on:
                    _remove(folder, [MANIFEST_NAME])
                    _remove_temporaries(folder)
                else:
                    _clear(folder, was_marked=was_marked)
                yield goes_on
            except BaseException:
                if not ours or not _is_worth_keeping(folder, journal):
                    marker.unlink(missing_ok=True)
                raise
            try:
                marker.unlink()
                sync_folder(folder)
            except OSError as error:
                raise output_error(error, folder) from error
    except BaseException:
        if is_new:
            with contextlib.suppress(OSError):  # it holds finished shards
                folder.rmdir()
        raise


def remove_growing(folder: Path) -> None:
    """Remove the files in `folder` that have not grown to be shards."""
    for path in [*folder.glob(growing_name("shard_*")), *folder.glob(growing_name(DOCUMENTS_NAME))]:
        path.unlink(missing_ok=True)


def tidy_up(folder: Path, journal: Path) -> None:
    """Remove what a run left that was killed when all was done but this."""
    if not any((folder / name).exists() for name in (UNFINISHED_NAME, journal.name)):
        return
    with _locked(folder / UNFINISHED_NAME):
        remove_growing(folder)
        _remove_temporaries(folder)
        _remove(folder, [journal.name, UNFINISHED_NAME])


def _refuse_others_work(folder: Path) -> None:
    if (folder / MANIFEST_NAME).exists():
        raise ShardError(f"{folder} holds a {MANIFEST_NAME} already", hint=OVERWRITE_HINT)
    if shards := shard_files(folder):
        raise ShardError(f"{folder} holds {shards[0]} but no {MANIFEST_NAME}", hint=OVERWRITE_HINT)


def _is_worth_keeping(folder: Path, journal: Path | None) -> bool:
    """True where what an interrupted run leaves is of use; what is of none is removed."""
    if journal is not None and journal.exists():
        return True
    with contextlib.suppress(OSError):
        remove_growing(folder)
    return bool(shard_files(folder))


def _clear(folder: Path, *, was_marked: bool) -> None:
    is_ours = was_marked or (folder / MANIFEST_NAME).exists()
    # The manifest first: from here on nobody may take the folder for a complete one.
    _remove(folder, [MANIFEST_NAME])
    others = companion_files(folder)
    _remove(folder, [JOURNAL_NAME, *shard_files(folder)] if is_ours else shard_files(folder))
    # A file of that name may be somebody's where no shards of ours are.
    _remove(folder, [name for name in others if is_ours or name != DOCUMENTS_NAME])
    try:
        remove_growing(folder)
    except OSError as error:
        raise output_error(error, folder) from error
    _remove_temporaries(folder)


def _remove_temporaries(folder: Path) -> None:
    try:
        for name in ("shard_*", MANIFEST_NAME, JOURNAL_NAME):
            remove_temporaries(folder, name)
    except OSError as error:
        raise output_error(error, folder) from error


def _remove(folder: Path, names: list[str]) -> None:
    try:
        for name in names:
            (folder / name).unlink(missing_ok=True)
    except OSError as error:
        raise output_error(error, folder) from error


@contextlib.contextmanager
def _locked(marker: Path) -> Generator[bool]:
    """Hold the lock of the folder; True where the mark of an earlier run stood already."""
    try:
        lock = try_lock(marker.with_name(_LOCK_NAME))
    except OSError as error:
        raise output_error(error, marker) from error
    if lock is None:
        raise ShardError(
            f"another run is writing shards to {marker.parent}",
            hint="wait for its end, or give another folder",
        )
    with lock:
        was_marked = marker.exists()
        if not was_marked:
            write_text(marker, "bytemill has not finished writing shards here: run the same command again.\n")
        yield was_marked
