"""A partial file with a header and the sha256 of its content."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

from bytemill.errors import OutputError
from bytemill.shards.journal import PartialInfo
from bytemill.system.atomic_files import PartialFile, output_errors, partial_name

if TYPE_CHECKING:
    from pathlib import Path

_READ_BYTES = 1 << 20


class HashedFile(PartialFile):
    """A `PartialFile` that begins with a header of fixed size.

    The provisional header is hashed as it is written. If `finish` replaces it with another one, the file is read again.

    Args:
        path: The file to create or replace.
        header: Provisional header; empty for files without one.
        n_bytes: Bytes to keep of the file that an earlier process left, header included.
    """

    def __init__(self, path: Path, header: bytes, *, n_bytes: int = 0) -> None:
        super().__init__(path, n_bytes=n_bytes)
        self.header = header
        self._sha256 = hashlib.sha256()
        try:
            if n_bytes:
                # The earlier process may have finished the file with its final header.
                self._write_at(0, header)
                self._hash_again()
            else:
                self.append(header)
        except BaseException:
            self.close()
            raise

    def append(self, data: bytes | memoryview) -> None:
        """Append all of `data`."""
        super().append(data)
        self._sha256.update(data)

    def checkpoint(self) -> PartialInfo:
        """Sync the file and return what it holds so far."""
        self.sync()
        return PartialInfo(n_bytes=self.n_bytes, sha256=self._sha256.hexdigest())

    def content(self) -> bytes:
        """Return everything after the header."""
        with output_errors(self.path):
            self._file.seek(len(self.header))
            return self._file.readall()

    def finish(self, header: bytes) -> str:
        """Replace the header, publish the file and return its sha256."""
        if len(header) != len(self.header):
            raise OutputError(
                f"cannot write {self.path}: the header has {len(header)} bytes, not {len(self.header)}"
            )
        if header != self.header:
            self._write_at(0, header)
            self._hash_again()
        self.commit()
        return self._sha256.hexdigest()

    def _hash_again(self) -> None:
        self._sha256 = hashlib.sha256()
        with output_errors(self.path):
            self._file.seek(0)
            while block := self._file.read(_READ_BYTES):
                self._sha256.update(block)


def partial_problem(path: Path, header: bytes, info: PartialInfo) -> str | None:
    """Return how a file that an earlier process left unfinished contradicts a checkpoint, or None.

    Args:
        path: Its final name, which it may have already.
        header: The provisional header, which counts instead of the one in the file.
        info: What the file held.
    """
    file_path = path if path.exists() else path.with_name(partial_name(path.name))
    sha256, n_bytes = hashlib.sha256(header), len(header)
    try:
        with file_path.open("rb") as file:
            if (n_found := os.fstat(file.fileno()).st_size) < info.n_bytes:
                return f"{file_path.name} has {n_found:,} bytes of {info.n_bytes:,}"
            file.seek(n_bytes)
            while block := file.read(min(_READ_BYTES, info.n_bytes - n_bytes)):
                sha256.update(block)
                n_bytes += len(block)
    except OSError as error:
        return f"{file_path.name} cannot be read: {error.strerror or error}"
    return None if sha256.hexdigest() == info.sha256 else f"{file_path.name} has other content than it had"
