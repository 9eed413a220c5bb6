"""Layout `npy`: `.npy` files of NumPy."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib import format as npy_format

from bytemill.errors import ShardError
from bytemill.shards.layouts.files import ITEM_BYTES, FileSummary, cannot_read
from bytemill.shards.layouts.plain import PlainLayout

if TYPE_CHECKING:
    from pathlib import Path

    from bytemill.shards.layouts.files import Dtype


class NpyLayout(PlainLayout):
    """A one-dimensional array in NumPy's format, version 1.0."""

    name = "npy"
    suffix = ".npy"

    def header(self, dtype: Dtype, n_tokens: int) -> bytes:
        """Return NumPy's header, which is padded for any number of tokens."""
        return npy_header(dtype, n_tokens)

    def inspect(self, path: Path, dtype: str | None = None) -> FileSummary:
        """Read the header."""
        summary = _read_header(path)
        if dtype not in (None, summary.dtype):
            raise ShardError(f"{path.name} holds {summary.dtype}, not {dtype}")
        return summary


def npy_header(dtype: str, n_items: int) -> bytes:
    """Return NumPy's header (version 1.0) of `n_items` little-endian integers. Its size is the same for any number."""
    stream = io.BytesIO()
    descr = npy_format.dtype_to_descr(np.dtype(dtype).newbyteorder("<"))
    npy_format.write_array_header_1_0(stream, {"descr": descr, "fortran_order": False, "shape": (n_items,)})
    return stream.getvalue()


def _read_header(path: Path) -> FileSummary:
    try:
        with path.open("rb") as file:
            shape, dtype, offset = _parse_header(file)
    except OSError as error:
        raise cannot_read(path, error) from error
    # NumPy evaluates the header as a Python literal. Damaged ones raise any exception of the tokenizer and parser.
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise ShardError(f"{path.name} is not a valid .npy file: {reason}") from error
    if len(shape) != 1:
        raise ShardError(f"{path.name} has shape {shape}; ids must have one dimension")
    if dtype.newbyteorder("=").name not in ITEM_BYTES or dtype.byteorder == ">":
        raise ShardError(f"{path.name} holds {dtype}, not little-endian integers")
    return FileSummary(dtype.name, int(shape[0]), offset)


def _parse_header(file: Any) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    version = npy_format.read_magic(file)
    if version == (1, 0):
        shape, _, dtype = npy_format.read_array_header_1_0(file)
    elif version == (2, 0):
        shape, _, dtype = npy_format.read_array_header_2_0(file)
    else:
        raise ValueError(f"unknown format version {version}")
    return shape, dtype, file.tell()
