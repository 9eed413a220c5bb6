"""Stamps of files. What was loaded from files is used until their stamp changes."""

from __future__ import annotations

import stat
import threading
import time
from collections import OrderedDict
from hashlib import blake2s
from typing import TYPE_CHECKING, TypeVar

from bytemill.errors import BytemillError
from bytemill.studio.errors import ChangingError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

T = TypeVar("T")

MAX_HASHED_BYTES = 1 << 26
MAX_FILES = 1024
"""Files whose stamps are kept."""
_RECENT_NS = 2_500_000_000
"""File systems count in steps of up to two seconds: a file may change twice in one, and keep its size."""
_N_TRIES = 3


class Stamps:
    """Stamps of the files that were opened.

    The stamp of a file is a hash of its content, which is read again only after its size, time or inode have changed.
    So a file that was written again with the same content is the same. Of a file over 64 MB, size, time and inode are
    the stamp.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[Path, tuple[tuple[int, ...], str]] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, paths: Sequence[Path]) -> str:
        """Return the stamp of files together; one that is missing is a part of it too."""
        found = blake2s(digest_size=8)
        for path in paths:
            found.update(self._of_file(path).encode() + b"\n")
        return found.hexdigest()

    def of_opened(self, paths: Sequence[Path]) -> str | None:
        """Return the stamp of files as they are now, or None if nobody has opened them: then nobody asks for it."""
        with self._lock:
            is_known = all(path in self._known for path in paths)
        return self.of(paths) if is_known else None

    def of_all_opened(self) -> str:
        """Return the stamp of all files that were opened, as they are now."""
        with self._lock:
            paths = sorted(self._known)
        return self.of(paths)

    def read(self, name: str, paths: Sequence[Path], read: Callable[[], T]) -> tuple[T, str]:
        """Return what `read` makes of files, and their stamp; files that change meanwhile are read again.

        Args:
            name: What messages call the files.
            paths: All files that `read` reads.
            read: Reads them.

        Raises:
            ChangingError: They keep changing.
            BytemillError: `read` failed on files that did not change.
        """
        for _ in range(_N_TRIES):
            before = self.of(paths)
            try:
                found = read()
            except BytemillError:
                if self.of(paths) == before:
                    raise
                continue
            if self.of(paths) == before:
                return found, before
        raise ChangingError(
            f"{name} is being written, so it cannot be read now",
            hint="try again when the program that writes it has ended",
        )

    def _of_file(self, path: Path) -> str:
        try:
            found = path.stat()
            signature = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
            with self._lock:
                known = self._known.get(path)
            if known is not None and known[0] == signature:
                return known[1]
            if stat.S_ISREG(found.st_mode) and found.st_size <= MAX_HASHED_BYTES:
                own = blake2s(path.read_bytes(), digest_size=16).hexdigest()
                if time.time_ns() - found.st_mtime_ns < _RECENT_NS:
                    signature = ()  # to be read again
            else:
                own = repr(signature)
        except OSError:
            signature, own = (), "missing"
        with self._lock:
            self._known[path] = signature, own
            self._known.move_to_end(path)
            while len(self._known) > MAX_FILES:
                self._known.popitem(last=False)
        return own
