"""Bytes of a source: decompressed streams with a mark, plain blocks, and pipes whose waits can be interrupted."""

from __future__ import annotations

import contextlib
import io
import os
import queue
import select
import stat
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Protocol, cast

from bytemill.corpus.compression import Decompressed, compression_of
from bytemill.corpus.content import HEAD_BYTES, UTF8_BOM, check_compression, check_text
from bytemill.corpus.options import REPLACE_HINT
from bytemill.corpus.sources import Source, changed, unreadable
from bytemill.errors import CorpusError

if TYPE_CHECKING:
    from collections.abc import Generator


BLOCK_BYTES = 8 << 20
"""Enough work for every thread of the encoder, and little memory."""
_PIPE_BYTES = 1 << 20
_POLL_SECONDS = 0.1
"""Longest time to notice that reading shall stop."""
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


def read_blocks(source: Source, block_bytes: int = BLOCK_BYTES) -> Generator[bytes]:
    """Yield the bytes of a source in non-empty blocks of at most `block_bytes`, cut at any byte.

    Raises:
        CorpusError: Reading fails.
    """
    source.check_unchanged()
    with open_pipe(source) if source.is_pipe else source.open() as stream:
        while True:
            try:
                block = stream.read(block_bytes)
            except OSError as error:
                raise unreadable(source.name, error) from error
            if not block:
                source.check_unchanged()
                return
            yield block


def read_decompressed(source: Source, block_bytes: int = BLOCK_BYTES) -> Generator[bytes]:
    """Yield the bytes of a source, decompressed, in non-empty blocks of at most `block_bytes`, cut at any byte.

    Raises:
        CorpusError: Reading fails, or the compressed data is damaged.
    """
    with open_stream(source, 0, threading.Event()) as stream:
        is_last = False
        while not is_last:
            block, is_last = stream.block(block_bytes)
            if block:
                yield bytes(block)
            stream.advance(len(block))


def not_utf8(source: Source, error: UnicodeDecodeError) -> CorpusError:
    """Make the error for malformed UTF-8.

    Args:
        source: The source.
        error: Its `start` is the byte offset in the source.
    """
    start = error.start
    byte, where = "", source.name
    # A pipe must not be opened again: that could block for ever.
    if source.path is not None and source.n_bytes is not None:
        line, offending = _line_and_byte(source.path, start)
        byte = f" (0x{offending[0]:02x})" if offending else ""
        where = f"{source.name}:{line:,}" if line else source.name
    return CorpusError(
        f"{where}: byte offset {start}{byte} is not valid UTF-8",
        hint=f"{REPLACE_HINT}; or convert the input to UTF-8",
    )


def _line_and_byte(path: os.PathLike[str], offset: int) -> tuple[int, bytes]:
    """Return the line number of the byte at `offset`, and that byte; (0, b"") if it can no longer be read."""
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return 0, b""
            line, n_left = 1, offset
            while n_left and (block := file.read(min(n_left, BLOCK_BYTES))):
                line += block.count(b"\n")
                n_left -= len(block)
            return line, file.read(1)
    except OSError:
        return 0, b""


@contextlib.contextmanager
def open_pipe(source: Source, stop: threading.Event | None = None) -> Generator[BinaryIO]:
    """Open a source of unknown size. Its `read(n)` returns what is available, at most `n` bytes.

    Waiting for a writer or for data ends with Ctrl-C in the main thread, and soon after `stop` is set in others.
    Python's `open` and `read` do not: a signal that arrives just before the system call only sets a flag, which
    nobody checks while the call waits.

    Raises:
        CorpusError: The source cannot be opened or read.
    """
    stop = stop or threading.Event()
    if source.is_stdin:
        with source.open() as stdin:
            try:
                descriptor = stdin.fileno()
            except (OSError, io.UnsupportedOperation):
                yield stdin
                return
            yield cast("BinaryIO", _Pipe(source, descriptor, stop))
            return
    descriptor = _opened(source, stop)
    if descriptor is None:
        yield io.BytesIO()
        return
    try:
        yield cast("BinaryIO", _Pipe(source, descriptor, stop))
    finally:
        os.close(descriptor)


def _opened(source: Source, stop: threading.Event) -> int | None:
    """Return the descriptor of a pipe once it has a writer; None if `stop` is set first.

    `os.open` blocks until there is a writer, so a daemon thread calls it. If the descriptor is no longer needed, that
    thread closes it.
    """
    path = os.fspath(cast("os.PathLike[str]", source.path))
    opened: queue.SimpleQueue[int | OSError] = queue.SimpleQueue()
    unwanted = threading.Event()

    def close_unwanted() -> None:
        with contextlib.suppress(queue.Empty):
            if isinstance(descriptor := opened.get_nowait(), int):
                os.close(descriptor)

    def open_pipe_file() -> None:
        try:
            opened.put(os.open(path, os.O_RDONLY))
        except OSError as error:
            opened.put(error)
        if unwanted.is_set():
            close_unwanted()

    threading.Thread(target=open_pipe_file, name="bytemill-pipe", daemon=True).start()
    try:
        while not stop.is_set():
            with contextlib.suppress(queue.Empty):
                descriptor = opened.get(timeout=_POLL_SECONDS)
                if isinstance(descriptor, OSError):
                    raise unreadable(source.name, descriptor) from descriptor
                return descriptor
        return None
    finally:
        # Whichever thread takes the descriptor from the queue closes it.
        unwanted.set()
        close_unwanted()


class _Pipe:
    def __init__(self, source: Source, descriptor: int, stop: threading.Event) -> None:
        self._source = source
        self._descriptor = descriptor
        self._stop = stop
        self._waits = not stat.S_ISREG(os.fstat(descriptor).st_mode) and hasattr(select, "poll")

    def read(self, n_bytes: int = -1, /) -> bytes:
        try:
            if self._waits:
                poll = select.poll()
                poll.register(self._descriptor, select.POLLIN)
                while not poll.poll(1000 * _POLL_SECONDS):
                    if self._stop.is_set():
                        return b""
            return os.read(self._descriptor, min(n_bytes, _PIPE_BYTES) if n_bytes >= 0 else _PIPE_BYTES)
        except OSError as error:
            raise unreadable(self._source.name, error) from error
