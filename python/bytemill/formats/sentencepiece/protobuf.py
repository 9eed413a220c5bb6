"""Read the wire format of protocol buffers: as much of it as a SentencePiece model uses.

Source: https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

Value: TypeAlias = int | float | bytes

_MAX_VARINT_BYTES = 10


class WireError(ValueError):
    """The bytes are not a message."""


def fields(data: bytes) -> Iterator[tuple[int, Value]]:
    """Yield the number and the value of each field of a message, in order.

    Strings and embedded messages are bytes; fields of 32 bits are floats. Nothing is copied or nested here, so time and
    memory are bounded by the size of `data`.

    Raises:
        WireError: A field is cut off or of an unknown type.
    """
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        if number == 0:
            raise WireError(f"a field without a number at byte {at}")
        match kind:
            case 0:
                value, at = _varint(data, at)
                yield number, value
            case 1:
                yield number, struct.unpack("<d", _taken(data, at, 8))[0]
                at += 8
            case 2:
                n_bytes, at = _varint(data, at)
                yield number, _taken(data, at, n_bytes)
                at += n_bytes
            case 5:
                yield number, struct.unpack("<f", _taken(data, at, 4))[0]
                at += 4
            case _:
                raise WireError(f"field {number} at byte {at} has the unknown type {kind}")


def _taken(data: bytes, at: int, n_bytes: int) -> bytes:
    if n_bytes > len(data) - at:
        raise WireError(f"{n_bytes} bytes are announced at byte {at}, but {len(data) - at} follow")
    return data[at : at + n_bytes]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number of variable length and the offset after it."""
    value = 0
    for index in range(_MAX_VARINT_BYTES):
        if at + index >= len(data):
            raise WireError(f"the data end inside a number at byte {at}")
        byte = data[at + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, at + index + 1
    raise WireError(f"a number of more than {_MAX_VARINT_BYTES} bytes at byte {at}")
