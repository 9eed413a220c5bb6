"""`.npy` files, which numpy reads."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib import format as npy_format

from bytemill.errors import ShardError
from bytemill.shards.layouts.files import ITEM_BYTES, FileFacts, cannot_read, map_array
from bytemill.shards.layouts.plain import PlainLayout

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from bytemill.shards.layouts.files import Dtype


class NpyLayout(PlainLayout):
    """A one-dimensional array in numpy's format, version 1.0."""

    name = "npy"
    suffix = ".npy"

    def header(self, dtype: Dtype, n_tokens: int) -> bytes:
        """numpy's header, padded by numpy so that any number of tokens fits."""
        return npy_header(dtype, n_tokens)

    def inspect(self, path: Path, dtype: str | None = None) -> FileFacts:
        """As its header says."""
        facts, _ = _read_header(path)
        if dtype not in (None, facts.dtype):
            raise ShardError(f"{path.name} holds {facts.dtype}, not {dtype}")
        return facts

    def open(self, path: Path, dtype: str, n_tokens: int) -> NDArray[Any]:
        """Mapped from the disk."""
        facts, offset = _read_header(path)
        if facts.dtype != dtype:
            raise ShardError(f"{path.name} holds {facts.dtype}, not {dtype}")
        if facts.n_tokens != n_tokens:
            raise ShardError(f"{path.name} holds {facts.n_tokens:,} tokens, not {n_tokens:,}")
        return map_array(path, dtype, n_tokens, offset)


def npy_header(dtype: str, n_items: int) -> bytes:
    """numpy's header (version 1.0) of a row of `n_items` little-endian integers, of one size for any number."""
    stream = io.BytesIO()
    descr = npy_format.dtype_to_descr(np.dtype(dtype).newbyteorder("<"))
    npy_format.write_array_header_1_0(stream, {"descr": descr, "fortran_order": False, "shape": (n_items,)})
    return stream.getvalue()


def _read_header(path: Path) -> tuple[FileFacts, int]:
    """What the header says, and where it ends."""
    try:
        with path.open("rb") as file:
            shape, dtype, offset = _parse_header(file)
    except OSError as error:
        raise cannot_read(path, error) from error
    # numpy evaluates the header as a Python literal, and damaged ones raise whatever tokenizing and parsing raise.
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise ShardError(f"{path.name} is no readable .npy file: {reason}") from error
    if len(shape) != 1:
        raise ShardError(f"{path.name} has shape {shape}; ids come in one row")
    if dtype.newbyteorder("=").name not in ITEM_BYTES or dtype.byteorder == ">":
        raise ShardError(f"{path.name} holds {dtype}, no little-endian integers")
    return FileFacts(dtype.name, int(shape[0])), offset


def _parse_header(file: Any) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    version = npy_format.read_magic(file)
    if version == (1, 0):
        shape, _, dtype = npy_format.read_array_header_1_0(file)
    elif version == (2, 0):
        shape, _, dtype = npy_format.read_array_header_2_0(file)
    else:
        raise ValueError(f"version {version} of the format")
    return shape, dtype, file.tell()
