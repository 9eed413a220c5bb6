"""Helpers of the layouts: checked memory maps and file headers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from bytemill.errors import ShardError

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

Dtype = Literal["uint16", "uint32"]
"""Types of the ids in written files."""

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
"""Size of each integer type that a file of another program may have."""


@dataclass(frozen=True)
class FileSummary:
    """Type and number of the ids in a file."""

    dtype: str
    """NumPy's name of the type."""
    n_tokens: int
    offset: int = 0
    """First byte of the ids."""


def file_size(path: Path) -> int:
    """Return the size of a regular file. Raises `ShardError`."""
    try:
        if not path.is_file():
            raise ShardError(
                f"{path} is not a file" if path.exists() else f"{path.name} is missing in {path.parent}"
            )
        return path.stat().st_size
    except (OSError, ValueError) as error:
        raise cannot_read(path, error) from error


def read_head(path: Path, n_bytes: int) -> bytes:
    """Return up to `n_bytes` bytes from the start of a file. Raises `ShardError`."""
    try:
        with path.open("rb") as file:
            return file.read(n_bytes)
    except OSError as error:
        raise cannot_read(path, error) from error


def map_array(path: Path, dtype: str, n_items: int, offset: int = 0, *, exact: bool = True) -> NDArray[Any]:
    """Map little-endian integers of a file as a read-only array.

    Args:
        path: The file.
        dtype: Type of the integers.
        n_items: Number of the integers.
        offset: First byte.
        exact: Require that the file ends with the last integer.

    Raises:
        ShardError: If the file is too short, or (with `exact`) too long.
    """
    expected = offset + n_items * ITEM_BYTES[dtype]
    actual = file_size(path)
    if actual < expected or (exact and actual != expected):
        raise ShardError(
            f"{path.name} has {actual:,} bytes; {n_items:,} ids of {dtype}"
            f"{f' after a header of {offset:,} bytes' if offset else ''} need {expected:,}",
            hint="it is truncated, or has another layout or dtype",
        )
    little_endian = np.dtype(dtype).newbyteorder("<")
    if n_items == 0:  # an empty range cannot be mapped
        return np.empty(0, dtype=little_endian)
    try:
        return np.memmap(path, dtype=little_endian, mode="r", offset=offset, shape=(n_items,))
    except (OSError, ValueError) as error:
        raise cannot_read(path, error) from error


def n_items_of(path: Path, dtype: str, offset: int = 0) -> int:
    """Return the number of integers from `offset` to the end. Raises `ShardError` if the last one is incomplete."""
    n_bytes = file_size(path) - offset
    n_items, rest = divmod(n_bytes, ITEM_BYTES[dtype])
    if n_bytes < 0 or rest:
        raise ShardError(
            f"{path.name} has {n_bytes + offset:,} bytes, which is not a whole number of {dtype} ids",
            hint="it is truncated, or its ids have another dtype",
        )
    return n_items


def known_dtype(path: Path, dtype: str | None) -> str:
    """Return `dtype`. Raises `ShardError` if it is None or not an integer type."""
    if dtype is None:
        raise ShardError(
            f"{path.name} does not store the type of its ids",
            hint='name it: --source-dtype uint16 (source_dtype="uint16"), or uint32',
        )
    if dtype not in ITEM_BYTES:
        raise ShardError(f"unknown dtype {dtype!r}", hint=f"choose one of {', '.join(ITEM_BYTES)}")
    return dtype


def checked_ends(ends: NDArray[Any], n_tokens: int, where: str) -> NDArray[np.uint64]:
    """Return `ends` as uint64. Raises `ShardError` if they do not ascend to `n_tokens`."""
    if len(ends) == 0:
        if n_tokens:
            raise ShardError(f"{where} lists no document, but there are {n_tokens:,} tokens")
    elif int(ends[0]) < 0 or np.any(ends[1:] < ends[:-1]):
        raise ShardError(f"the ends of documents in {where} do not ascend")
    elif int(ends[-1]) != n_tokens:
        raise ShardError(
            f"the documents in {where} end at token {int(ends[-1]):,}, but there are {n_tokens:,} tokens"
        )
    return ends.astype(np.uint64)


def lengths_of(document_ends: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the number of tokens of each document that has any."""
    lengths = np.diff(document_ends.astype(np.int64), prepend=0)
    return lengths[lengths > 0]


def cannot_read(path: Path, error: Exception) -> ShardError:
    """Make the error for a file that cannot be read."""
    reason = getattr(error, "strerror", None) or str(error)
    return ShardError(f"cannot read {path}: {reason}")
