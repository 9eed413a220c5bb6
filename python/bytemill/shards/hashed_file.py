"""A partial file with a header and the sha256 of its content."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from bytemill.errors import OutputError
from bytemill.system.atomic_files import PartialFile, output_errors

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
