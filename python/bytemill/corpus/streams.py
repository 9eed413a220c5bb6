"""The bytes of a source, decompressed, in blocks that begin where the reader says."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from bytemill.corpus.compression import Decompressed, compression_of
from bytemill.corpus.pipes import open_pipe
from bytemill.corpus.sources import Source, unreadable
from bytemill.errors import CorpusError

if TYPE_CHECKING:
    import threading
    from collections.abc import Generator

HEAD_BYTES = 8
"""At the beginning of a file, which tell what it is."""

_SKIP_BYTES = 1 << 22


class ByteStream(Protocol):
    """Bytes with a mark in them, from which blocks are read."""

    @property
    def n_bytes_read(self) -> int:
        """Bytes of the source read so far: compressed ones, where it is compressed."""
        ...

    def block(self, n_bytes: int) -> tuple[bytes, bool]:
        """The `n_bytes` from the mark on, fewer at the end; and whether nothing comes behind them."""
        ...

    def advance(self, n_bytes: int) -> None:
        """Moves the mark forward, not beyond what was read."""
        ...


@contextlib.contextmanager
def open_stream(source: Source, offset: int, stop: threading.Event) -> Generator[ByteStream]:
    """The decompressed bytes of a source with the mark at `offset`. Raises `CorpusError`."""
    if source.path is not None and source.n_bytes is not None:
        with source.open() as file:
            head = os.pread(file.fileno(), HEAD_BYTES, 0)
            if compression_of(head) is None:
                yield _PlainFile(source.name, file.fileno(), offset)
                return
            yield _skipped(_Sequence(Decompressed(file, source.name)), source, offset)
    elif source.remote is not None:
        with source.open() as file:
            stream = Decompressed(file, source.name)
            if stream.compression is None and offset and file.seekable():
                file.seek(offset)
                yield _Sequence(Decompressed(file, source.name, offset))
            else:
                yield _skipped(_Sequence(stream), source, offset)
    else:
        with open_pipe(source, stop) as pipe:
            yield _skipped(_Sequence(Decompressed(pipe, source.name)), source, offset)


@dataclass(frozen=True)
class OpenFile:
    """A source on its way to the reader of its format."""

    source: Source
    stop: threading.Event
    """Set when nobody wants more of it."""
    begun: ByteStream | None = None
    """Its bytes from the beginning, where they come only once and are looked at already."""

    @property
    def name(self) -> str:
        """What it is called in errors."""
        return self.source.name

    @contextlib.contextmanager
    def stream(self, offset: int = 0) -> Generator[ByteStream]:
        """Its decompressed bytes with the mark at `offset`. Raises `CorpusError`."""
        if self.begun is not None:
            yield _skipped(self.begun, self.source, offset)
            return
        with open_stream(self.source, offset, self.stop) as stream:
            yield stream


def head_of(source: Source) -> bytes:
    """The first bytes of a regular file as they are. Raises `CorpusError`."""
    with source.open() as file:
        return os.pread(file.fileno(), HEAD_BYTES, 0)


def _skipped(stream: ByteStream, source: Source, offset: int) -> ByteStream:
    """A stream that cannot be sought in is read up to `offset`."""
    while offset:
        block, _ = stream.block(min(offset, _SKIP_BYTES))
        if not block:
            raise CorpusError(f"{source.name} is shorter than when it was read before", hint="start afresh")
        stream.advance(len(block))
        offset -= len(block)
    return stream


class _PlainFile:
    """A regular file, as long as it is when it is opened."""

    def __init__(self, name: str, descriptor: int, offset: int) -> None:
        self._name = name
        self._descriptor = descriptor
        self._size = os.fstat(descriptor).st_size
        self._mark = self.n_bytes_read = offset

    def block(self, n_bytes: int) -> tuple[bytes, bool]:
        wanted = max(0, min(n_bytes, self._size - self._mark))
        try:
            block = os.pread(self._descriptor, wanted, self._mark)
            # One call gives up to 2 GB.
            while len(block) < wanted:
                more = os.pread(self._descriptor, wanted - len(block), self._mark + len(block))
                if not more:
                    raise CorpusError(f"{self._name} has become shorter while it was read")
                block += more
        except OSError as error:
            raise unreadable(self._name, error) from error
        self.n_bytes_read = self._mark + wanted
        return block, self._mark + wanted >= self._size

    def advance(self, n_bytes: int) -> None:
        self._mark += n_bytes


class _Sequence:
    """A stream that is read once; what lies between the mark and the place of reading is held."""

    def __init__(self, stream: Decompressed) -> None:
        self._stream = stream
        self._held = b""

    @property
    def n_bytes_read(self) -> int:
        return self._stream.raw.n_read

    def block(self, n_bytes: int) -> tuple[bytes, bool]:
        # One byte more tells whether this is the end.
        parts, n_held = [self._held], len(self._held)
        while n_held <= n_bytes and (part := self._stream.read(n_bytes + 1 - n_held)):
            parts.append(part)
            n_held += len(part)
        self._held = b"".join(parts)
        return self._held[:n_bytes], n_held <= n_bytes

    def advance(self, n_bytes: int) -> None:
        self._held = self._held[n_bytes:]
