"""Exclusive lock on a shard folder, held while one process writes to it."""

import contextlib
import shutil
from collections.abc import Generator, Sequence
from pathlib import Path

from bytemill.errors import ShardError
from bytemill.shards.journal import JOURNAL_NAME
from bytemill.shards.manifest import (
    MANIFEST_NAME,
    PARTS,
    UNFINISHED_NAME,
    is_documents_name,
    is_shard_name,
    is_sidecar_name,
    read_manifest,
    shard_files,
    sidecar_files,
)
from bytemill.system.atomic_files import (
    make_folder,
    output_errors,
    partial_name,
    remove_temporaries,
    sync_folder,
    write_text,
)
from bytemill.system.locks import try_lock

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
