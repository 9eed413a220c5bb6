"""Locks on files and outputs, held by one process at a time and released by the system when that process ends."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Self

from bytemill.errors import OutputError
from bytemill.system.atomic_files import output_errors

if TYPE_CHECKING:
    import os
    from collections.abc import Generator
    from types import TracebackType

    from filelock import BaseFileLock

LOCK_NAME = ".lock"
"""The lock file of a folder."""


class HeldLock:
    """A lock that this process holds until `release` or the end of its `with` block."""

    def __init__(self, path: Path, lock: BaseFileLock) -> None:
        self.path = path
        self._lock = lock

    def release(self) -> None:
        """Remove the lock file and release the lock."""
        # A process that waits for the removed file notices and creates a new one. Windows cannot remove an open file;
        # there filelock removes it.
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()


def try_lock(path: Path) -> HeldLock | None:
    """Lock `path` without waiting.

    Args:
        path: Lock file, created if needed. A killed process leaves it behind, unlocked.

    Returns:
        The lock, or None if it is held already, by another process or by this one.

    Raises:
        OSError: If the lock file cannot be opened.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(path, thread_local=False)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        return None
    return HeldLock(path, lock)


@contextlib.contextmanager
def lock_output(path: str | os.PathLike[str]) -> Generator[None]:
    """Hold the lock of an output. Devices and pipes are not locked.

    Args:
        path: The output file, which need not exist, or an existing folder, which contains the lock file `LOCK_NAME`.

    Raises:
        OutputError: Another process holds the lock, or the folder cannot be written.
    """
    target = Path(path).resolve()
    is_folder = target.is_dir()
    if target.exists() and not target.is_file() and not is_folder:
        yield
        return
    with output_errors(path):
        lock = try_lock(target / LOCK_NAME if is_folder else target.with_name(f".{target.name[:60]}.lock"))
    if lock is None:
        raise OutputError(
            f"another process is writing {path}", hint="wait until it has finished, or choose another output"
        )
    with lock:
        yield
