"""An append-only file under a temporary name. A later process can resume it."""

from __future__ import annotations

import contextlib
import hashlib
import os
from typing import TYPE_CHECKING

from bytemill.errors import OutputError, ShardError
from bytemill.system.atomic_files import output_error, sync_folder

if TYPE_CHECKING:
    import io
    from pathlib import Path

GROWING_SUFFIX = ".partial"


def growing_name(name: str) -> str:
    """What a file is called until it is whole.

    >>> growing_name("shard_00000.npy")
    '.shard_00000.npy.partial'
    """
    return f".{name}{GROWING_SUFFIX}"


class GrowingFile:
    """A header, and what is appended to it; the file takes its name when it is finished.

    The header goes first, as it will probably be, so that the sha256 of the file is known with its last byte. Where
    it comes out otherwise it is written anew, and the file is read once more.

    Raises `OutputError` where writing fails.
    """

    def __init__(self, path: Path, header: bytes, *, n_bytes: int | None = None) -> None:
        """A new file; or the one that an earlier process left, cut back to its first `n_bytes`.

        That one may have its name already: it was finished after the place that is gone back to. Raises `ShardError`
        where it is gone or too short.
        """
        self.path = path
        self.n_bytes = 0
        self._header = header
        self._growing = path.with_name(growing_name(path.name))
        self._hash = hashlib.sha256()
        try:
            if n_bytes is not None and path.exists():
                path.replace(self._growing)
            self._file: io.FileIO = self._growing.open("w+b" if n_bytes is None else "r+b", buffering=0)
        except FileNotFoundError as error:
            if n_bytes is None:
                raise output_error(error, path) from error
            raise _lost(self._growing, "is gone") from error
        except OSError as error:
            raise output_error(error, path) from error
        try:
            if n_bytes is None:
                self.write(header)
            else:
                self._go_back(n_bytes)
        except BaseException:
            self.close()
            raise

    def write(self, data: bytes | memoryview) -> None:
        """Append all of `data`."""
        self._write(data)
        self._hash.update(data)
        self.n_bytes += len(data)

    def sync(self) -> None:
        """Make what was written survive a power cut."""
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise output_error(error, self.path) from error

    def read(self) -> bytes:
        """All that stands behind the header."""
        try:
            self._file.seek(len(self._header))
            return self._file.readall()
        except OSError as error:
            raise output_error(error, self.path) from error

    def finish(self, header: bytes) -> str:
        """Give the file its name, with the header that it has come to; its sha256."""
        try:
            if header != self._header:
                self._rewrite_header(header)
                self._file.seek(0)
                self._hash = hashlib.sha256()
                while block := self._file.read(1 << 20):
                    self._hash.update(block)
            os.fsync(self._file.fileno())
            self._file.close()
            self._growing.replace(self.path)
            sync_folder(self.path.parent)
        except OSError as error:
            raise output_error(error, self.path) from error
        return self._hash.hexdigest()

    def close(self) -> None:
        """Leave the file as it is."""
        with contextlib.suppress(OSError):
            self._file.close()

    def _write(self, data: bytes | memoryview) -> None:
        rest = memoryview(data)
        try:
            while rest:
                # The system may take less than all, last before the disk is full.
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            raise output_error(error, self.path) from error

    def _go_back(self, n_bytes: int) -> None:
        try:
            n_found = os.fstat(self._file.fileno()).st_size
            if n_found < n_bytes:
                raise _lost(self._growing, f"has {n_found:,} bytes, and {n_bytes:,} were written to it")
            self._file.truncate(n_bytes)
            self._rewrite_header(self._header)
            self._file.seek(0)
            while block := self._file.read(1 << 20):
                self._hash.update(block)
        except OSError as error:
            raise output_error(error, self.path) from error
        self.n_bytes = n_bytes

    def _rewrite_header(self, header: bytes) -> None:
        if len(header) != len(self._header):
            raise OutputError(
                f"cannot write {self.path}: its header needs {len(header)} bytes, not {len(self._header)}"
            )
        self._file.seek(0)
        self._write(header)


def _lost(path: Path, what: str) -> ShardError:
    return ShardError(
        f"the interrupted encoding cannot go on: {path} {what}",
        hint="overwrite=True (--overwrite) begins it afresh",
    )
