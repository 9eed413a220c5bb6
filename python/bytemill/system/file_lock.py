"""A file that one process at a time holds; the system releases it when the process ends, however it ends."""

import os
from pathlib import Path
from typing import BinaryIO

try:
    import fcntl
except ImportError:  # Windows: processes are not kept apart there
    fcntl = None


def open_locked(path: Path) -> BinaryIO | None:
    """`path`, made if need be, opened for appending and locked until it is closed; None where another holds it.

    Whoever removes the file has to do so before it is closed. Raises OSError where it cannot be opened. On a file
    system without locks there is no other to be seen.
    """
    while True:
        file = path.open("ab", buffering=0)
        if fcntl is None:
            return file
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return None
        except OSError:
            return file  # a file system without locks
        if path.exists() and os.path.samestat(path.stat(), os.fstat(file.fileno())):
            return file
        file.close()  # the holder before has ended and removed the file in between: take a fresh one
