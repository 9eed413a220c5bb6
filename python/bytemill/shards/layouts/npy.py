"""`.npy` files, which numpy reads."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.lib import format as npy_format

from bytemill.errors import ShardError

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray


class NpyLayout:
    """A one-dimensional array in numpy's format, version 1.0."""

    name = "npy"
    suffix = ".npy"
    separator_in_front = False
    whole_documents = False

    def dtype(self, narrowest: Literal["uint16", "uint32"]) -> str:
        """As narrow as can be."""
        return narrowest

    def header(self, dtype: str, n_tokens: int) -> bytes:
        """numpy's header, padded by numpy so that any number of tokens fits."""
        stream = io.BytesIO()
        descr = npy_format.dtype_to_descr(np.dtype(dtype).newbyteorder("<"))
        npy_format.write_array_header_1_0(
            stream, {"descr": descr, "fortran_order": False, "shape": (n_tokens,)}
        )
        return stream.getvalue()

    def companions(self, dtype: str, document_ends: NDArray[np.uint64]) -> list[tuple[str, bytes]]:
        """None."""
        del dtype, document_ends
        return []

    def open(self, path: Path, dtype: str, n_tokens: int) -> Any:
        """Mapped from the disk."""
        try:
            array = np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError) as error:
            raise ShardError(f"{path.name} is no readable .npy file: {error}") from error
        if array.dtype != np.dtype(dtype):
            raise ShardError(f"{path.name} holds {array.dtype}, the manifest says {dtype}")
        if array.shape != (n_tokens,):
            raise ShardError(f"{path.name} has shape {array.shape}, the manifest says {n_tokens:,} tokens")
        return array
