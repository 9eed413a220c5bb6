"""Messages over a pipe: their size in 8 bytes, then the bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import IO, BinaryIO


def write_message(pipe: IO[bytes], data: bytes) -> None:
    """Write a message. Raises OSError if the other end is closed."""
    pipe.write(len(data).to_bytes(8, "little") + data)
    pipe.flush()


def read_message(pipe: IO[bytes] | BinaryIO) -> bytes | None:
    """Return the next message, or None if the other end is closed."""
    size = _read(pipe, 8)
    return None if size is None else _read(pipe, int.from_bytes(size, "little"))


def _read(pipe: IO[bytes] | BinaryIO, n_bytes: int) -> bytes | None:
    parts: list[bytes] = []
    while n_bytes:
        part = pipe.read(n_bytes)
        if not part:
            return None
        parts.append(part)
        n_bytes -= len(part)
    return b"".join(parts)
