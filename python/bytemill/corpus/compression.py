"""Decompression of streams, recognised by their first bytes."""

from __future__ import annotations

import io
import zlib
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from bytemill.corpus.formats import library
from bytemill.corpus.options import damaged
from bytemill.errors import CorpusError

if TYPE_CHECKING:
    from collections.abc import Callable

_HEAD_BYTES = 6
_READ_BYTES = 1 << 16
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_MAX_BLOCK_BYTES = 1 << 17
"""Most bytes of a zstd block, compressed and decompressed."""
_MAX_WINDOW_BYTES = 1 << 31
"""Window of `zstd --long=31`, the largest. It takes memory as the text of a frame grows to it."""
_RUN_OF_ONE_BYTE = 1
"""Type of a zstd block that repeats one byte."""


def compression_of(head: bytes) -> str | None:
    """Return the compression of a stream that begins with `head`, or None.

    >>> compression_of(b"\\x1f\\x8b\\x08\\x00"), compression_of(b"Once upon a time")
    ('gzip', None)
    """
    if head.startswith(b"\x1f\x8b\x08"):
        return "gzip"
    if head.startswith(b"\xfd7zXZ\x00"):
        return "xz"
    if head.startswith(b"BZh") and head[3:4].isdigit():
        return "bzip2"
    # A frame, or a skippable frame as pzstd writes first.
    if head.startswith(_ZSTD_MAGIC) or (head[1:4] == b"\x2a\x4d\x18" and 0x50 <= head[0] <= 0x5F):
        return "zstd"
    return None


class Decompressed:
    """The bytes of `raw`, decompressed if they are compressed.

    A stream positioned at an `offset` above 0 is not compressed.
    """

    def __init__(self, raw: BinaryIO, name: str, offset: int = 0) -> None:
        self._name = name
        self.raw = _Counting(raw, offset)
        self.compression = None if offset else compression_of(self.raw.peek(_HEAD_BYTES))
        self._stream: Any = self.raw
        if self.compression == "gzip":
            import gzip

            self._stream = gzip.GzipFile(fileobj=cast("BinaryIO", self.raw), mode="rb")
        elif self.compression == "xz":
            import lzma

            streams = _Streams(self.raw, "xz", lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ), padding=4)
            self._stream = io.BufferedReader(streams, 1 << 20)
        elif self.compression == "bzip2":
            import bz2

            self._stream = io.BufferedReader(_Streams(self.raw, "bzip2", bz2.BZ2Decompressor), 1 << 20)
        elif self.compression == "zstd":
            self._stream = io.BufferedReader(_Zstd(self.raw, name), 1 << 20)

    def read(self, n_bytes: int) -> bytes:
        """Return up to `n_bytes` bytes, none at the end. Raises `CorpusError` for damaged data."""
        try:
            return self._stream.read(n_bytes)
        except EOFError as error:
            raise self._damaged("it ends before its data does") from error
        except zlib.error as error:
            raise self._damaged(str(error)) from error
        except OSError as error:
            # gzip and bz2 raise OSError without errno for damaged data.
            if error.errno is None and self.compression is not None:
                raise self._damaged(str(error)) from error
            raise CorpusError(
                f"cannot read {self._name}: {error.strerror or error}", hint="check permissions and disk"
            ) from error
        except Exception as error:
            if type(error).__name__ in ("LZMAError", "ZstdError"):
                raise self._damaged(str(error)) from error
            raise

    def _damaged(self, why: str) -> CorpusError:
        return damaged(f"{self._name}: the {self.compression} data", why.rstrip("."))


class _Counting:
    """A binary stream that counts the bytes read and can peek at its beginning."""

    def __init__(self, raw: BinaryIO, offset: int) -> None:
        self._raw = raw
        self._head = b""
        self.n_read = offset

    def peek(self, n_bytes: int) -> bytes:
        """Return the first bytes without consuming them."""
        while len(self._head) < n_bytes and (more := self._raw.read(n_bytes - len(self._head))):
            self._head += more
        return self._head

    def read(self, n_bytes: int = -1, /) -> bytes:
        if self._head:
            data = self._head if n_bytes < 0 else self._head[:n_bytes]
            self._head = self._head[len(data) :]
        else:
            data = self._raw.read(n_bytes)
        self.n_read += len(data)
        return data

    # What decompressors require besides `read`.
    def seekable(self) -> bool:
        return False

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.n_read

    @property
    def closed(self) -> bool:
        return False


class _Streams(io.RawIOBase):
    """Consecutive streams of xz or bzip2. `LZMAFile` and `BZ2File` ignore what follows a stream and is not another one.

    Args:
        raw: The compressed bytes.
        compression: "xz" or "bzip2".
        new_stream: Makes the decompressor of a stream.
        padding: Zero bytes between and after streams, if allowed, are a multiple of this number.
    """

    def __init__(
        self, raw: _Counting, compression: str, new_stream: Callable[[], Any], padding: int = 0
    ) -> None:
        self._raw = raw
        self._compression = compression
        self._new_stream = new_stream
        self._padding = padding
        self._stream = new_stream()
        self._n_streams = 1
        self._has_ended = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        target = memoryview(buffer).cast("B")
        data = b""
        while not self._has_ended:
            if self._stream.eof:
                data = self._next_stream(self._stream.unused_data)
                if not data:
                    self._has_ended = True
                    break
                self._stream = self._new_stream()
                self._n_streams += 1
            elif self._stream.needs_input:
                data = self._raw.read(_READ_BYTES)
                if not data:
                    raise EOFError
            text = self._stream.decompress(data, len(target))
            data = b""
            if text:
                target[: len(text)] = text
                return len(text)
        return 0

    def _next_stream(self, data: bytes) -> bytes:
        """Return the first bytes of the next stream, none if there is no other one."""
        n_padding = 0
        while True:
            rest = data.lstrip(b"\0") if self._padding else data
            n_padding += len(data) - len(rest)
            if rest or not (data := self._raw.read(_READ_BYTES)):
                break
        if self._padding and n_padding % self._padding:
            raise OSError(f"{n_padding:,} zero bytes follow stream {self._n_streams:,}")
        while rest and len(rest) < _HEAD_BYTES and (data := self._raw.read(_READ_BYTES)):
            rest += data
        if rest and compression_of(rest) != self._compression:
            raise OSError(f"what follows stream {self._n_streams:,} is no other stream")
        return rest


class _Zstd(io.RawIOBase):
    """Consecutive zstd frames, decompressed block by block.

    A block is at most 128 KiB of text, but 4 bytes may encode it. Feeding blocks one by one bounds the memory for any
    input. zstandard's own stream reader accepts truncated files.

    The frame format is that of RFC 8878, section 3.
    """

    def __init__(self, raw: _Counting, name: str) -> None:
        decompressor = library("zstandard", name).ZstdDecompressor(max_window_size=_MAX_WINDOW_BYTES)
        self._new_frame = decompressor.decompressobj
        self._raw = raw
        self._name = name
        self._n_frames = 0
        self._buffer = memoryview(b"")
        self._frame: Any = None
        self._has_checksum = False
        self._text = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        while not self._text:
            if self._frame is None:
                magic = self._take(4, may_end=True)
                if not magic:
                    return 0
                if magic[1:] == b"\x2a\x4d\x18" and 0x50 <= magic[0] <= 0x5F:
                    self._skip(int.from_bytes(self._take(4), "little"))
                    continue
                if magic != _ZSTD_MAGIC:
                    raise OSError(f"what follows frame {self._n_frames:,} is no other frame")
                self._n_frames += 1
                self._frame = self._new_frame()
                self._text = memoryview(self._frame.decompress(magic + self._frame_header()))
            else:
                self._text = memoryview(self._frame.decompress(self._block()))
            if self._frame.eof:
                self._frame = None
        target = memoryview(buffer).cast("B")
        n_bytes = min(len(target), len(self._text))
        target[:n_bytes] = self._text[:n_bytes]
        self._text = self._text[n_bytes:]
        return n_bytes

    def _frame_header(self) -> bytes:
        descriptor = self._take(1)
        is_single = descriptor[0] >> 5 & 1
        self._has_checksum = bool(descriptor[0] >> 2 & 1)
        n_content_size = (is_single, 2, 4, 8)[descriptor[0] >> 6]
        n_dictionary_id = (0, 1, 2, 4)[descriptor[0] & 3]
        rest = self._take((1 - is_single) + n_dictionary_id + n_content_size)
        if any(rest[1 - is_single :][:n_dictionary_id]):
            raise CorpusError(
                f"{self._name} is compressed with a dictionary",
                hint=f"decompress it first: zstd -d -D DICTIONARY {self._name}",
            )
        return descriptor + rest

    def _block(self) -> bytes:
        """Take the next block, and the checksum after the last one."""
        header = self._take(3)
        number = int.from_bytes(header, "little")
        is_last, kind, n_bytes = number & 1, number >> 1 & 3, number >> 3
        content = self._take(1 if kind == _RUN_OF_ONE_BYTE else min(n_bytes, _MAX_BLOCK_BYTES))
        return header + content + (self._take(4) if is_last and self._has_checksum else b"")

    def _skip(self, n_bytes: int) -> None:
        while n_bytes:
            n_bytes -= len(self._take(min(n_bytes, _MAX_BLOCK_BYTES)))

    def _take(self, n_bytes: int, *, may_end: bool = False) -> bytes:
        while len(self._buffer) < n_bytes:
            more = self._raw.read(_READ_BYTES)
            if not more and (self._buffer or not may_end):
                raise EOFError
            if not more:
                return b""
            self._buffer = memoryview(bytes(self._buffer) + more)
        taken = bytes(self._buffer[:n_bytes])
        self._buffer = self._buffer[n_bytes:]
        return taken
