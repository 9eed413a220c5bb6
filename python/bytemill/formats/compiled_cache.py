"""A cache of vocabularies in the form in which the core uses them, so that a large file is parsed once.

An entry belongs to the content of a file, not to its name. It is a file of its own, written whole under a temporary
name and renamed; it begins with its name and ends with a checksum. If an entry is missing, damaged or of another
version, the source is read. If an entry cannot be written, there is none.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from typing import TYPE_CHECKING

from bytemill.system.paths import cache_folder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MIN_BYTES = 1 << 20
"""Smaller files are parsed in less time than an entry takes to look up and check."""

MAX_ENTRIES = 16
"""Entries that are kept, those used last; each has a tenth to a half of its file's size."""

_VERSION = 2
"""Goes up when the same file gives another vocabulary; the core's own format number is inside the entries."""


def entry_of(data: bytes) -> Path | None:
    """Return where the entry for a file's content is kept; None for a file that is too small for one."""
    return None if len(data) < MIN_BYTES else _entry(hashlib.sha256(data).hexdigest())


def entry_of_file(path: Path) -> Path | None:
    """Return where the entry for a file is kept; None for one that is too small, or not to be read."""
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_size < MIN_BYTES:
                return None
            return _entry(hashlib.file_digest(file, "sha256").hexdigest())
    except OSError:
        return None


def _entry(digest: str) -> Path | None:
    try:
        return cache_folder("vocabularies") / f"{digest}.{_VERSION}"
    except RuntimeError:  # the user has no home folder
        return None


def read(entry: Path | None) -> bytes | None:
    """Return the content of an entry, or None."""
    if entry is None:
        return None
    try:
        content = entry.read_bytes()
    except OSError:
        return None
    with contextlib.suppress(OSError):
        os.utime(entry)
    name = entry.name.encode()
    return content[len(name) :] if content.startswith(name) else None


def write(entry: Path | None, block: Callable[[], bytes]) -> None:
    """Write an entry and remove those beyond the limit. Errors of the system are ignored.

    Args:
        entry: Where it is kept; None to write nothing.
        block: Returns the content.
    """
    if entry is None:
        return
    content = block()
    with contextlib.suppress(OSError):
        entry.parent.mkdir(parents=True, exist_ok=True)
        temporary = entry.with_name(f".{entry.name}.{os.urandom(4).hex()}.tmp")
        try:
            temporary.write_bytes(entry.name.encode() + content)
            # Not synced to the disk: the checksum finds a file that a crash has damaged.
            temporary.replace(entry)
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink()
        _trim(entry.parent)


def _trim(folder: Path) -> None:
    """Remove the entries that were not used for longest, and what killed processes left."""
    used = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in used[MAX_ENTRIES:]:
        with contextlib.suppress(OSError):
            path.unlink()
