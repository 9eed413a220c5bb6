"""What the layouts share: arrays that are mapped from a file after its size was checked, and small files read whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from bytemill.errors import ShardError

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

Dtype = Literal["uint16", "uint32"]
"""What ids are written as."""

ITEM_BYTES = {
    "uint8": 1,
    "int8": 1,
    "uint16": 2,
    "int16": 2,
    "uint32": 4,
    "int32": 4,
    "uint64": 8,
    "int64": 8,
}
"""Sizes of all integers that ids of other programs may come as."""


@dataclass(frozen=True)
class FileFacts:
    """What a shard of unknown origin holds."""

    dtype: str
    """Numpy's name for its integers."""
    n_tokens: int


def file_size(path: Path) -> int:
    """Bytes of a regular file. Raises `ShardError`."""
    try:
        if not path.is_file():
            raise ShardError(
                f"{path} is no file" if path.exists() else f"{path.name} is missing in {path.parent}"
            )
        return path.stat().st_size
    except (OSError, ValueError) as error:
        raise cannot_read(path, error) from error


def read_head(path: Path, n_bytes: int) -> bytes:
    """The first bytes of a file, fewer where it is shorter. Raises `ShardError`."""
    try:
        with path.open("rb") as file:
            return file.read(n_bytes)
    except OSError as error:
        raise cannot_read(path, error) from error


def map_array(path: Path, dtype: str, n_items: int, offset: int = 0, *, exact: bool = True) -> NDArray[Any]:
    """`n_items` little-endian integers from byte `offset` on, read-only, mapped from the disk.

    Raises `ShardError` where the file is too short, or, where `exact`, does not end with them.
    """
    expected = offset + n_items * ITEM_BYTES[dtype]
    actual = file_size(path)
    if actual < expected or (exact and actual != expected):
        raise ShardError(
            f"{path.name} has {actual:,} bytes; {n_items:,} ids of {dtype}"
            f"{f' behind a header of {offset:,} bytes' if offset else ''} take {expected:,}",
            hint="it was cut off, grew, or is of another layout or dtype",
        )
    little_endian = np.dtype(dtype).newbyteorder("<")
    if n_items == 0:  # an empty range cannot be mapped
        return np.empty(0, dtype=little_endian)
    try:
        return np.memmap(path, dtype=little_endian, mode="r", offset=offset, shape=(n_items,))
    except (OSError, ValueError) as error:
        raise cannot_read(path, error) from error


def n_items_of(path: Path, dtype: str, offset: int = 0) -> int:
    """How many integers the file holds from `offset` to its end. Raises `ShardError` where the last is cut off."""
    n_bytes = file_size(path) - offset
    n_items, rest = divmod(n_bytes, ITEM_BYTES[dtype])
    if n_bytes < 0 or rest:
        raise ShardError(
            f"{path.name} has {n_bytes + offset:,} bytes, which is no whole number of {dtype} ids",
            hint="it was cut off, or its ids are of another dtype",
        )
    return n_items


def known_dtype(path: Path, dtype: str | None) -> str:
    """`dtype` itself, if ids can be of it. Raises `ShardError` where it is None or no integer type."""
    if dtype is None:
        raise ShardError(
            f"nothing in {path.name} tells whether its ids take 2 bytes or 4",
            hint='say which: dtype="uint16" (--dtype uint16), or uint32',
        )
    if dtype not in ITEM_BYTES:
        raise ShardError(f"ids cannot be {dtype!r}", hint=f"there are {', '.join(ITEM_BYTES)}")
    return dtype


def checked_ends(ends: NDArray[Any], n_tokens: int, where: str) -> NDArray[np.uint64]:
    """`ends` as uint64. Raises `ShardError` where they do not ascend to `n_tokens`."""
    if len(ends) == 0:
        if n_tokens:
            raise ShardError(f"{where} names no document, but there are {n_tokens:,} tokens")
    elif int(ends[0]) < 0 or np.any(ends[1:] < ends[:-1]):
        raise ShardError(f"the ends of documents in {where} do not ascend")
    elif int(ends[-1]) != n_tokens:
        raise ShardError(
            f"the documents in {where} end with token {int(ends[-1]):,}, not with the last, {n_tokens:,}"
        )
    return ends.astype(np.uint64)


def lengths_of(document_ends: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Tokens of each document that holds any."""
    lengths = np.diff(document_ends.astype(np.int64), prepend=0)
    return lengths[lengths > 0]


def cannot_read(path: Path, error: Exception) -> ShardError:
    """The `ShardError` for what reading raised."""
    reason = getattr(error, "strerror", None) or str(error)
    return ShardError(f"cannot read {path}: {reason}")
