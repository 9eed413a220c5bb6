"""Layout `datatrove`: `.ds` files with an index, as datatrove and nanotron read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bytemill.errors import ShardError
from bytemill.shards.layouts.files import (
    FileSummary,
    checked_ends,
    known_dtype,
    lengths_of,
    map_array,
    n_items_of,
    read_head,
)
from bytemill.shards.layouts.plain import PlainLayout

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from bytemill.shards.layouts.files import Dtype

_METADATA_BYTES = 1 << 16


class DatatroveLayout(PlainLayout):
    """Ids in the `.ds`, ends of documents (uint64, in tokens) in the `.ds.index`, and text in the `.ds.metadata`.

    The metadata lines are the tokenizer with the bytes per id, and the number of tokens. Documents without tokens are
    left out of the index, because readers derive a document's length from it.
    """

    name = "datatrove"
    suffix = ".ds"
    sidecar_suffixes: tuple[str, ...] = (".ds.index", ".ds.metadata")
    whole_documents = True

    def sidecars(
        self, dtype: Dtype, document_ends: NDArray[np.uint64], fingerprint: str
    ) -> list[tuple[str, bytes]]:
        """Return the index and the metadata."""
        ends = np.cumsum(lengths_of(document_ends))
        n_tokens = int(ends[-1]) if len(ends) else 0
        metadata = f"bytemill-{fingerprint}|{np.dtype(dtype).itemsize}\n{n_tokens}\n{_with_unit(n_tokens)}"
        return [(".ds.index", ends.astype("<u8").tobytes()), (".ds.metadata", metadata.encode())]

    def inspect(self, path: Path, dtype: str | None = None) -> FileSummary:
        """Derive the number of ids from the file size and the type in the metadata."""
        stored = _dtype_of_metadata(path)
        if dtype is None:
            dtype = known_dtype(path, stored)
        elif stored is not None and known_dtype(path, dtype) != stored:
            raise ShardError(f"{path.name} holds {stored} according to its metadata, not {dtype}")
        return FileSummary(known_dtype(path, dtype), n_items_of(path, dtype))

    def document_ends(self, path: Path, dtype: str, n_tokens: int) -> NDArray[np.uint64] | None:
        """Read them from the index, if there is one."""
        del dtype
        index = path.with_name(f"{path.name}.index")
        if not index.exists():
            return None
        return checked_ends(map_array(index, "uint64", n_items_of(index, "uint64")), n_tokens, index.name)


def _dtype_of_metadata(path: Path) -> str | None:
    """Return the type of the ids from the first line of the metadata, or None."""
    metadata = path.with_name(f"{path.name}.metadata")
    if not metadata.exists():
        return None
    first = read_head(metadata, _METADATA_BYTES).split(b"\n", 1)[0]
    return {b"2": "uint16", b"4": "uint32"}.get(first.strip().rpartition(b"|")[2])


def _with_unit(n_tokens: int) -> str:
    """Return a number of tokens with three digits and a unit (T for token).

    >>> _with_unit(12_345), _with_unit(7)
    ('12.3 kT', '7.00 T')
    """
    value, units = float(n_tokens), ["", "k", "M", "G", "T"]
    while value >= 999.5 and len(units) > 1:
        value /= 1000
        units.pop(0)
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{digits}f} {units[0]}T"
