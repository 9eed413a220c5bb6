"""Verify shards in a thread while they are used, each file once until it changes."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import threading
from typing import TYPE_CHECKING, Any, Self, cast

from bytemill.errors import ShardError
from bytemill.shards.manifest import files_of, read_manifest
from bytemill.system.paths import cache_folder

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import TracebackType

    from bytemill.shards.manifest import FileInfo, ShardInfo

_READ_BYTES = 1 << 20
_HINT = "restore the file from a copy, or encode the corpus again"


class BackgroundCheck:
    """A thread that compares the files of shard folders with the sha256 in their manifests.

    A file that was found intact is not read again until its size, inode or times change, also by later processes:
    the cache folder keeps these. On Linux the thread has the lowest priority. It runs in the block of a
    `with` statement.

    Args:
        folders: Shard folders of this machine.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = list(dict.fromkeys(folders))
        self._error: Exception | None = None
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="verify shards", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Compare no more files."""
        self._is_closed.set()
        self._thread.join()

    @property
    def is_running(self) -> bool:
        """Whether files remain to be compared."""
        return self._thread.is_alive()

    def raise_damage(self) -> None:
        """Raise ShardError if a file that was compared so far differs or cannot be read."""
        if self._error is not None:
            raise self._error

    def wait(self) -> Exception | None:
        """Wait until all files are compared, and return the error that ended the comparison, if any."""
        self._thread.join()
        return self._error

    def _run(self) -> None:
        if sys.platform == "linux":  # where each thread has a priority
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
        try:
            for folder in self._folders:
                self._check(folder)
        except Exception as error:  # raised in the thread that uses the shards
            self._error = error

    def _check(self, folder: Path) -> None:
        known = _read_known(folder)
        before = dict(known)
        try:
            for info in files_of(read_manifest(folder)):
                if self._is_closed.is_set():
                    return
                stamp = [*_stamp(folder / info.file), info.sha256]
                if known.get(info.file) != stamp and self._is_intact(folder, info):
                    known[info.file] = stamp
        finally:
            if known != before:
                _write_known(folder, known)

    def _is_intact(self, folder: Path, info: ShardInfo | FileInfo) -> bool:
        """Compare a file; return False if this was cut short. Raises `ShardError` if the file differs."""
        digest = hashlib.sha256()
        try:
            with (folder / info.file).open("rb") as file:
                while block := file.read(_READ_BYTES):
                    if self._is_closed.is_set():
                        return False
                    digest.update(block)
        except OSError as error:
            raise _unreadable(folder / info.file, error) from error
        if digest.hexdigest() != info.sha256:
            raise ShardError(
                f"{folder / info.file} has other content than when it was encoded: its sha256 is "
                f"{digest.hexdigest()}, the manifest says {info.sha256}",
                hint=_HINT,
            )
        return True


def _stamp(path: Path) -> list[int]:
    """Return what changes when a file is written or replaced: also with its old time, since ctime cannot be set."""
    try:
        status = path.stat()
    except OSError as error:
        raise _unreadable(path, error) from error
    return [status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns]


def _unreadable(path: Path, error: OSError) -> ShardError:
    return ShardError(f"cannot read {path}: {error.strerror or error}", hint=_HINT)


def _known_path(folder: Path) -> Path:
    name = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:24]
    return cache_folder("verified") / f"{name}.json"


def _read_known(folder: Path) -> dict[str, list[Any]]:
    """Return the stamp and the sha256 of each file that was found intact."""
    try:
        document: object = json.loads(_known_path(folder).read_bytes())
    except (OSError, ValueError):
        return {}
    return cast("dict[str, list[Any]]", document) if isinstance(document, dict) else {}


def _write_known(folder: Path, known: dict[str, list[Any]]) -> None:
    path = _known_path(folder)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    # Without it the files are compared again, so it is neither synced nor required.
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(known), encoding="utf-8")
        temporary.replace(path)
