"""Exclusive lock on an output file or folder."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from bytemill.errors import OutputError
from bytemill.system.atomic_files import output_errors
from bytemill.system.file_lock import try_lock

if TYPE_CHECKING:
    import os
    from collections.abc import Generator


LOCK_NAME = ".lock"
"""The lock file of a folder."""


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
