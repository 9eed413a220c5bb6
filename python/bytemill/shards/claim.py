"""One run at a time writes to a folder of shards, and it removes nothing that is not its own."""

import contextlib
import os
from collections.abc import Generator
from pathlib import Path

from bytemill.atomic import make_folder, output_error, remove_temporaries, sync_folder
from bytemill.errors import ShardError
from bytemill.file_lock import open_locked
from bytemill.shards.manifest import MANIFEST_NAME, UNFINISHED_NAME, shard_files

OVERWRITE_HINT = "give another folder, or overwrite=True (--overwrite) to replace what is there"


@contextlib.contextmanager
def claim_folder(folder: Path, *, overwrite: bool) -> Generator[None]:
    """Make `folder` ready for a fresh set of shards, which the block writes, and the manifest last.

    While the block runs, and after it was interrupted, `UNFINISHED.txt` marks the folder as one whose shards
    may be replaced: the next run removes them, so that none of an older set outlives it. Where no shard
    stands when the block fails, no mark stays either, nor the folder if it is new.

    Raises `ShardError` where another run writes there, and, unless `overwrite`, where the folder holds a
    manifest, or shards without the mark; `OutputError` where it cannot be written to.
    """
    is_new = not folder.exists()
    make_folder(folder)
    marker = folder / UNFINISHED_NAME
    try:
        with _locked(marker) as was_marked:
            ours = was_marked
            try:
                if not overwrite:
                    _refuse_others_work(folder, was_marked)
                ours = True
                _remove_earlier(folder)
                yield
            except BaseException:
                if not ours or not shard_files(folder):
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


def _refuse_others_work(folder: Path, was_marked: bool) -> None:
    if (folder / MANIFEST_NAME).exists():
        raise ShardError(f"{folder} holds a {MANIFEST_NAME} already", hint=OVERWRITE_HINT)
    shards = shard_files(folder)
    if shards and not was_marked:
        raise ShardError(f"{folder} holds {shards[0]} but no {MANIFEST_NAME}", hint=OVERWRITE_HINT)


def _remove_earlier(folder: Path) -> None:
    try:
        # The manifest first: from here on nobody may take the folder for a complete one.
        (folder / MANIFEST_NAME).unlink(missing_ok=True)
        for name in shard_files(folder):
            (folder / name).unlink()
        remove_temporaries(folder, "shard_*.npy")
        remove_temporaries(folder, MANIFEST_NAME)
    except OSError as error:
        raise output_error(error, folder) from error


@contextlib.contextmanager
def _locked(marker: Path) -> Generator[bool]:
    """Hold the lock of the folder; True where the mark of an earlier run stood already."""
    try:
        file = open_locked(marker)
    except OSError as error:
        raise output_error(error, marker) from error
    if file is None:
        raise ShardError(
            f"another run is writing shards to {marker.parent}",
            hint="wait for its end, or give another folder",
        )
    with file:
        was_marked = os.fstat(file.fileno()).st_size > 0
        if not was_marked:
            try:
                file.write(b"bytemill has not finished writing shards here: run the same command again.\n")
            except OSError as error:
                marker.unlink(missing_ok=True)
                raise output_error(error, marker) from error
        if os.name == "nt":
            file.close()  # Windows removes no open file
        yield was_marked
