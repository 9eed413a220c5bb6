"""Locks on files, held by one process at a time and released by the system when that process ends."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from filelock import BaseFileLock


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
