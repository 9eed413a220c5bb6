"""Layout `megatron`: pairs of `.bin` and `.idx`, as Megatron's IndexedDataset reads them."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bytemill.errors import ShardError
from bytemill.shards.layouts.files import (
    FileSummary,
    checked_ends,
    file_size,
    lengths_of,
    map_array,
    read_head,
)
from bytemill.shards.layouts.plain import PlainLayout

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from bytemill.shards.layouts.files import Dtype

_MAGIC = b"MMIDIDX\x00\x00"
_HEADER = struct.Struct("<9sQBQQ")
"""Magic, version, code of the dtype, number of sequences, number of document indices."""
_CODES = {"uint8": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "uint16": 8}
_FLOATS = {6: "float64", 7: "float32"}
_MAX_LENGTH = 2**31 - 1


class MegatronLayout(PlainLayout):
    """Ids in the `.bin`; lengths, offsets and documents in the `.idx`. Every document is one sequence.

    Documents without tokens are left out, since readers do not return sequences of length 0. Megatron has no uint32 and
    reads the same four bytes as int32; no vocabulary comes near 2**31.
    """

    name = "megatron"
    suffix = ".bin"
    sidecar_suffixes: tuple[str, ...] = (".idx",)
    whole_documents = True

    def sidecars(
        self, dtype: Dtype, document_ends: NDArray[np.uint64], fingerprint: str
    ) -> list[tuple[str, bytes]]:
        """Return the `.idx`."""
        del fingerprint
        lengths = lengths_of(document_ends)
        if len(lengths) and int(lengths.max()) > _MAX_LENGTH:
            raise ShardError(
                f"a document of layout megatron has at most {_MAX_LENGTH:,} tokens, not {int(lengths.max()):,}"
            )
        item_bytes = np.dtype(dtype).itemsize
        offsets = (np.cumsum(lengths) - lengths) * item_bytes
        code = _CODES["uint16" if dtype == "uint16" else "int32"]
        index = b"".join(
            (
                _HEADER.pack(_MAGIC, 1, code, len(lengths), len(lengths) + 1),
                lengths.astype("<i4").tobytes(),
                offsets.astype("<i8").tobytes(),
                np.arange(len(lengths) + 1, dtype="<i8").tobytes(),
            )
        )
        return [(".idx", index)]

    def inspect(self, path: Path, dtype: str | None = None) -> FileSummary:
        """Read the index."""
        index = _read_index(path)
        if dtype is not None and not _same_bytes(dtype, index.dtype):
            raise ShardError(f"{path.name} holds {index.dtype}, not {dtype}")
        return FileSummary(index.dtype, index.n_tokens)

    def document_ends(self, path: Path, dtype: str, n_tokens: int) -> NDArray[np.uint64] | None:
        """Read them from the index."""
        del dtype
        return checked_ends(_read_index(path).document_ends, n_tokens, path.with_suffix(".idx").name)


@dataclass(frozen=True)
class _Index:
    dtype: str
    n_tokens: int
    document_ends: NDArray[np.int64]


def _same_bytes(dtype: str, stored: str) -> bool:
    return dtype == stored or (dtype, stored) == ("uint32", "int32")


def _read_index(path: Path) -> _Index:
    """Read the `.idx` of a `.bin` and check that its sequences are consecutive."""
    index = path.with_suffix(".idx")
    head = read_head(index, _HEADER.size) if index.exists() else b""
    if not index.exists():
        raise ShardError(
            f"{path.name} has no {index.name} next to it", hint="layout megatron consists of both files"
        )
    if len(head) < _HEADER.size or not head.startswith(_MAGIC):
        raise ShardError(f"{index.name} is not an index of layout megatron: it does not begin with MMIDIDX")
    _, version, code, n_sequences, n_indices = _HEADER.unpack(head)
    if version != 1:
        raise ShardError(f"{index.name} has version {version}, not 1")
    dtype = next((name for name, known in _CODES.items() if known == code), None)
    if dtype is None:
        raise ShardError(
            f"{index.name} declares ids of type {_FLOATS.get(code, f'{code}, which is unknown')}"
        )
    # Multimodal data sets have a mode (int8) per sequence at the end.
    expected = _HEADER.size + 12 * n_sequences + 8 * n_indices
    if file_size(index) not in (expected, expected + n_sequences):
        raise ShardError(f"{index.name} has {file_size(index):,} bytes; its header requires {expected:,}")
    offset = _HEADER.size
    lengths = map_array(index, "int32", n_sequences, offset, exact=False).astype(np.int64)
    offsets = map_array(index, "int64", n_sequences, offset + 4 * n_sequences, exact=False)
    indices = map_array(index, "int64", n_indices, offset + 12 * n_sequences, exact=False)
    ends = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
    if np.any(lengths < 0) or np.any(offsets != ends[:-1] * np.dtype(dtype).itemsize):
        raise ShardError(f"the sequences of {index.name} are not consecutive in {path.name}")
    if n_indices == 0 or indices[0] != 0 or indices[-1] != n_sequences or np.any(indices[1:] < indices[:-1]):
        raise ShardError(f"the documents of {index.name} are not its sequences in order")
    return _Index(dtype, int(ends[-1]), ends[indices[1:]])
