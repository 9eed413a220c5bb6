"""Decompressed bytes of a source, read in blocks from a mark."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Protocol

from bytemill.corpus.compression import Decompressed, compression_of
from bytemill.corpus.content import UTF8_BOM, check_compression, check_text
from bytemill.corpus.pipes import open_pipe
from bytemill.corpus.signatures import HEAD_BYTES
from bytemill.corpus.sources import Source, changed, unreadable
from bytemill.errors import CorpusError

if TYPE_CHECKING:
    import threading
    from collections.abc import Generator

_READ_BYTES = 1 << 22
_PLAIN_READ_BYTES = 1 << 25
"""Bytes of a file that are read without a look at `stop`."""


class ReadingStoppedError(Exception):
    """Ends a read of a stream when `stop` is set. Nobody waits for its result then."""


class ByteStream(Protocol):
    """A stream of bytes with a mark, from which blocks are read."""

    @property
    def n_bytes_read(self) -> int:
        """Bytes of the source read so far (compressed bytes if it is compressed)."""
        ...

    def block(self, n_bytes: int) -> tuple[bytes, bool]:
        """Return up to `n_bytes` bytes from the mark on, and whether the stream ends after them."""
        ...

    def advance(self, n_bytes: int) -> None:
        """Move the mark forward, at most to the end of the last block."""
        ...


@contextlib.contextmanager
def open_stream(source: Source, offset: int, stop: threading.Event) -> Generator[ByteStream]:
    """Open the decompressed bytes of a source with the mark at `offset`. Raises `CorpusError`."""
    if source.path is not None and source.n_bytes is not None:
        with source.open() as file:
            head = _head(source, file)
            if not offset:
                check_compression(source.name, head)
            if compression_of(head) is None:
                yield _PlainFile(source, file.fileno(), offset, stop)
                return
            yield _skipped(_BufferedStream(Decompressed(file, source.name), stop), source, offset)
    elif source.remote is not None:
        with source.open() as file:
            stream = Decompressed(file, source.name)
            if not offset:
                check_compression(source.name, stream.raw.peek(HEAD_BYTES))
            if stream.compression is None and offset and file.seekable():
                file.seek(offset)
                n_left = None if source.stop is None else source.stop - offset
                yield _BufferedStream(Decompressed(file, source.name, offset), stop, n_left)
            else:
                yield _skipped(_BufferedStream(stream, stop, source.stop), source, offset)
    else:
        with open_pipe(source, stop) as pipe:
            yield _skipped(_BufferedStream(Decompressed(pipe, source.name), stop), source, offset)


@dataclass(frozen=True)
class OpenFile:
    """A source as a format's read function receives it."""

    source: Source
    stop: threading.Event
    """Set when reading shall end."""
    opened: ByteStream | None = None
    """The stream from the beginning, if the source can be read only once and is already open."""

    @property
    def name(self) -> str:
        """Name in error messages."""
        return self.source.name

    @contextlib.contextmanager
    def stream(self, offset: int = 0) -> Generator[ByteStream]:
        """Open the decompressed bytes with the mark at `offset`. Raises `CorpusError`."""
        if self.opened is not None:
            yield _skipped(self.opened, self.source, offset)
            return
        with open_stream(self.source, offset, self.stop) as stream:
            yield stream


def head_of(source: Source) -> bytes:
    """Return the first bytes of a regular file. Raises `CorpusError` if they contradict its compression suffix."""
    with source.open() as file:
        head = _head(source, file)
    check_compression(source.name, head)
    return head


def _head(source: Source, file: BinaryIO) -> bytes:
    try:
        return os.pread(file.fileno(), HEAD_BYTES, 0)
    except OSError as error:
        raise unreadable(source.name, error) from error


def plain_text_start(source: Source, format_name: str) -> int:
    """Return the offset of the text in an uncompressed text file: after a byte-order mark.

    Args:
        source: The file.
        format_name: The option `format` of the corpus.

    Raises:
        CorpusError: The file is not UTF-8 text; see `check_text`.
    """
    head = head_of(source)
    check_text(source.name, head, is_chosen=format_name == "text")
    return len(UTF8_BOM) if head.startswith(UTF8_BOM) else 0


class TextPipe:
    """The decompressed text of a pipe or standard input, without a byte-order mark.

    Args:
        pipe: The pipe.
        source: What it is.
        format_name: The option `format` of the corpus.

    Raises:
        CorpusError: The content is not UTF-8 text.
    """

    def __init__(self, pipe: BinaryIO, source: Source, format_name: str) -> None:
        self._stream = Decompressed(pipe, source.name)
        self._head = b""
        while len(self._head) < HEAD_BYTES and (more := self._stream.read(HEAD_BYTES - len(self._head))):
            self._head += more
        check_text(source.name, self._head, is_chosen=format_name == "text")
        self.start = len(UTF8_BOM) if self._head.startswith(UTF8_BOM) else 0
        """Bytes of the byte-order mark, which is left out."""
        self.n_read = 0
        """Bytes returned so far."""
        self._head = self._head[self.start :]

    def read(self, n_bytes: int) -> bytes:
        """Return up to `n_bytes` bytes, none at the end. Raises `CorpusError`."""
        if self._head:
            data, self._head = self._head[:n_bytes], self._head[n_bytes:]
        else:
            data = self._stream.read(n_bytes)
        self.n_read += len(data)
        return data


def _skipped(stream: ByteStream, source: Source, offset: int) -> ByteStream:
    """Read a stream that cannot seek up to `offset`."""
    while offset:
        block, _ = stream.block(min(offset, _READ_BYTES))
        if not block:
            raise CorpusError(
                f"{source.name} is shorter than when it was read before",
                hint="start again from the beginning",
            )
        stream.advance(len(block))
        offset -= len(block)
    return stream


class _PlainFile:
    """A regular file, up to its size at opening or to the end of a part of it."""

    def __init__(self, source: Source, descriptor: int, offset: int, stop: threading.Event) -> None:
        self._name = source.name
        self._descriptor = descriptor
        size = os.fstat(descriptor).st_size
        self._size = size if source.stop is None else min(size, source.stop)
        self._mark = self.n_bytes_read = offset
        self._stop = stop

    def block(self, n_bytes: int) -> tuple[bytes, bool]:
        wanted = max(0, min(n_bytes, self._size - self._mark))
        parts: list[bytes] = []
        n_read = 0
        while n_read < wanted:
            if self._stop.is_set():
                raise ReadingStoppedError
            parts.append(self._read(min(wanted - n_read, _PLAIN_READ_BYTES), self._mark + n_read))
            n_read += len(parts[-1])
        self.n_bytes_read = self._mark + wanted
        return parts[0] if len(parts) == 1 else b"".join(parts), self._mark + wanted >= self._size

    def _read(self, n_bytes: int, offset: int) -> bytes:
        try:
            data = os.pread(self._descriptor, n_bytes, offset)
        except OSError as error:
            raise unreadable(self._name, error) from error
        if not data:
            raise changed(self._name, f"it ends at byte {offset:,}")
        return data

    def advance(self, n_bytes: int) -> None:
        self._mark += n_bytes


class _BufferedStream:
    """A stream that is read once; bytes between the mark and the read position are buffered.

    Args:
        stream: The stream.
        stop: Set when reading shall end.
        n_left: Bytes to read of it; None for all.
    """

    def __init__(self, stream: Decompressed, stop: threading.Event, n_left: int | None = None) -> None:
        self._stream = stream
        self._stop = stop
        self._n_left = n_left
        self._buffer = b""
        self._mark = 0
        """Where the mark is in the buffer."""
        self._next = b""
        """The byte after the buffer, if it was read to see whether the stream ends."""

    @property
    def n_bytes_read(self) -> int:
        return self._stream.raw.n_read

    def block(self, n_bytes: int) -> tuple[bytes, bool]:
        if self._stop.is_set():
            raise ReadingStoppedError
        n_missing = n_bytes - (len(self._buffer) - self._mark) - len(self._next)
        if n_missing < 0:
            return self._buffer[self._mark : self._mark + n_bytes], False
        parts = [self._buffer[self._mark :], self._next]
        self._buffer, self._mark, self._next = b"", 0, b""
        # Small reads, because decompressors hold what they return twice.
        while n_missing and (part := self._read(min(n_missing, _READ_BYTES))):
            parts.append(part)
            n_missing -= len(part)
        self._buffer = b"".join(parts)
        if not n_missing:
            self._next = self._read(1)
        return self._buffer, not self._next

    def _read(self, n_bytes: int) -> bytes:
        if self._stop.is_set():
            raise ReadingStoppedError
        if self._n_left is None:
            return self._stream.read(n_bytes)
        data = self._stream.read(min(n_bytes, self._n_left))
        self._n_left -= len(data)
        return data

    def advance(self, n_bytes: int) -> None:
        self._mark += n_bytes
        if 2 * self._mark >= len(
            self._buffer
        ):  # otherwise small steps would copy a large buffer again and again
            self._buffer, self._mark = self._buffer[self._mark :], 0
