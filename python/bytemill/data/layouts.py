"""The layouts of shard files: how each is written and read, and the registry of all of them.

A layout is a class with a name. `register_layout` adds one.
"""

from __future__ import annotations

import io
import struct
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.lib import format as npy_format

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


class Layout(ABC):
    """Format of a shard file: a header of fixed size, then little-endian ids; and of its sidecar files.

    A subclass has a `name`, a `suffix` and at least the method `inspect`. The others are those of ids of the narrowest
    type without a header or sidecar files. Methods that read a file raise `ShardError`, and nothing else, if it is
    damaged or of another format.
    """

    name: str
    """Value of `--layout`."""
    suffix: str
    """Suffix of shard files, with the dot."""
    sidecar_suffixes: tuple[str, ...] = ()
    """Suffixes of sidecar files, which replace `suffix`."""
    separator_in_front = False
    """True if readers expect the separator before each document, not after it."""
    whole_documents = False
    """True if no document continues in the next shard: the document that fills a shard ends it."""

    def dtype(self, narrowest: Dtype) -> Dtype:
        """Return the type of the ids on disk.

        Args:
            narrowest: The narrowest type that holds all ids of the vocabulary.

        Raises:
            ShardError: If the layout cannot represent them.
        """
        return narrowest

    def header(self, dtype: Dtype, n_tokens: int) -> bytes:
        """Return the header, whose size is the same for all arguments. Raises `ShardError` for too many tokens."""
        del dtype, n_tokens
        return b""

    def sidecars(
        self, dtype: Dtype, document_ends: NDArray[np.uint64], fingerprint: str
    ) -> list[tuple[str, bytes]]:
        """Return the sidecar files of a shard as (suffix, content).

        Args:
            dtype: Type of the ids on disk.
            document_ends: End of each document, in tokens from the start of the shard. The last one is the number of
                tokens.
            fingerprint: Fingerprint of the tokenizer.

        Raises:
            ShardError: If the layout cannot represent the documents.
        """
        del dtype, document_ends, fingerprint
        return []

    @abstractmethod
    def inspect(self, path: Path, dtype: str | None = None) -> FileSummary:
        """Return the type and number of the ids in a file.

        Args:
            path: A shard file, from any program.
            dtype: Type of the ids, for formats that do not store it.
        """

    def open(self, path: Path, dtype: str, n_tokens: int) -> NDArray[Any]:
        """Map the ids of a shard as a read-only array.

        Args:
            path: The shard file.
            dtype: Expected type of the ids.
            n_tokens: Expected number of ids.

        Raises:
            ShardError: If the file has another format, type or number of ids.
        """
        summary = self.inspect(path, dtype)
        if summary.n_tokens != n_tokens:
            raise ShardError(f"{path.name} holds {summary.n_tokens:,} tokens, not {n_tokens:,}")
        return map_array(path, dtype, n_tokens, summary.offset)

    def document_ends(self, path: Path, dtype: str, n_tokens: int) -> NDArray[np.uint64] | None:
        """Return the ends of the documents of a shard, in tokens from its start, ascending to `n_tokens`.

        Returns None if there is no sidecar file with them.
        """
        del path, dtype, n_tokens
        return None


PlainLayout = Layout
"""The name of the class for layouts outside the package."""


class NpyLayout(Layout):
    """A one-dimensional array in NumPy's format, version 1.0."""

    name = "npy"
    suffix = ".npy"

    def header(self, dtype: Dtype, n_tokens: int) -> bytes:
        """Return NumPy's header, which is padded for any number of tokens."""
        return npy_header(dtype, n_tokens)

    def inspect(self, path: Path, dtype: str | None = None) -> FileSummary:
        """Read the header."""
        summary = _read_npy_header(path)
        if dtype not in (None, summary.dtype):
            raise ShardError(f"{path.name} holds {summary.dtype}, not {dtype}")
        return summary


def npy_header(dtype: str, n_items: int) -> bytes:
    """Return NumPy's header (version 1.0) of `n_items` little-endian integers. Its size is the same for any number."""
    stream = io.BytesIO()
    descr = npy_format.dtype_to_descr(np.dtype(dtype).newbyteorder("<"))
    npy_format.write_array_header_1_0(stream, {"descr": descr, "fortran_order": False, "shape": (n_items,)})
    return stream.getvalue()


def _read_npy_header(path: Path) -> FileSummary:
    try:
        with path.open("rb") as file:
            shape, dtype, offset = _parse_npy_header(file)
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


def _parse_npy_header(file: Any) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    version = npy_format.read_magic(file)
    if version == (1, 0):
        shape, _, dtype = npy_format.read_array_header_1_0(file)
    elif version == (2, 0):
        shape, _, dtype = npy_format.read_array_header_2_0(file)
    else:
        raise ValueError(f"unknown format version {version}")
    return shape, dtype, file.tell()


class BinLayout(Layout):
    """Ids without a header.

    nanoGPT reads uint16. Ids of larger vocabularies are written as uint32, which its forks read. The file does not
    store the type.
    """

    name = "bin"
    suffix = ".bin"

    def inspect(self, path: Path, dtype: str | None = None) -> FileSummary:
        """Derive the number of ids from the file size."""
        dtype = known_dtype(path, dtype)
        return FileSummary(dtype, n_items_of(path, dtype))


_LLMC_HEADER_BYTES = 256 * 4
_LLMC_KINDS: dict[Dtype, tuple[int, int]] = {"uint16": (20240520, 1), "uint32": (20240801, 7)}
"""Magic number and version: for GPT-2's ids, and for ids of larger vocabularies such as Llama 3's."""
_LLMC_MAX_TOKENS = 2**31 - 1


class LlmcLayout(Layout):
    """A header of 256 int32 (magic number, version, number of tokens, zeros), then the ids.

    Readers expect every document to begin with the end-of-text token.
    """

    name = "llmc"
    suffix = ".bin"
    separator_in_front = True

    def header(self, dtype: Dtype, n_tokens: int) -> bytes:
        """Return 256 numbers, of which all but three are 0."""
        if n_tokens > _LLMC_MAX_TOKENS:
            raise ShardError(
                f"a shard of layout llmc has at most {_LLMC_MAX_TOKENS:,} tokens, not {n_tokens:,}",
                hint="use fewer tokens per shard (--shard-tokens)",
            )
        return struct.pack("<3i", *_LLMC_KINDS[dtype], n_tokens).ljust(_LLMC_HEADER_BYTES, b"\0")

    def inspect(self, path: Path, dtype: str | None = None) -> FileSummary:
        """Read the header."""
        summary = _read_llmc_header(path)
        if dtype not in (None, summary.dtype):
            raise ShardError(f"{path.name} holds {summary.dtype}, not {dtype}")
        return summary


def has_llmc_header(path: Path) -> bool:
    """Check whether a file begins with a header of this layout."""
    head = read_head(path, 8)
    return len(head) == 8 and struct.unpack("<2i", head) in _LLMC_KINDS.values()


def _read_llmc_header(path: Path) -> FileSummary:
    head = read_head(path, _LLMC_HEADER_BYTES)
    if len(head) < _LLMC_HEADER_BYTES:
        raise ShardError(f"{path.name} has {len(head):,} bytes: too few for the header of layout llmc")
    magic, version, n_tokens = struct.unpack_from("<3i", head)
    for dtype, kind in _LLMC_KINDS.items():
        if kind == (magic, version):
            if n_tokens < 0:
                raise ShardError(f"{path.name} is damaged: its header has {n_tokens:,} tokens")
            return FileSummary(dtype, n_tokens, _LLMC_HEADER_BYTES)
    raise ShardError(
        f"{path.name} begins with {magic} and {version}, which is not a magic number and version of layout llmc",
        hint=f"known are {' and '.join(f'{magic} version {version}' for magic, version in _LLMC_KINDS.values())}",
    )


_MEGATRON_MAGIC = b"MMIDIDX\x00\x00"
_MEGATRON_HEADER = struct.Struct("<9sQBQQ")
"""Magic, version, code of the dtype, number of sequences, number of document indices."""
_MEGATRON_CODES = {"uint8": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "uint16": 8}
_MEGATRON_FLOATS = {6: "float64", 7: "float32"}
_MEGATRON_MAX_LENGTH = 2**31 - 1


class MegatronLayout(Layout):
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
        if len(lengths) and int(lengths.max()) > _MEGATRON_MAX_LENGTH:
            raise ShardError(
                f"a document of layout megatron has at most {_MEGATRON_MAX_LENGTH:,} tokens, not {int(lengths.max()):,}"
            )
        item_bytes = np.dtype(dtype).itemsize
        offsets = (np.cumsum(lengths) - lengths) * item_bytes
        code = _MEGATRON_CODES["uint16" if dtype == "uint16" else "int32"]
        index = b"".join(
            (
                _MEGATRON_HEADER.pack(_MEGATRON_MAGIC, 1, code, len(lengths), len(lengths) + 1),
                lengths.astype("<i4").tobytes(),
                offsets.astype("<i8").tobytes(),
                np.arange(len(lengths) + 1, dtype="<i8").tobytes(),
            )
        )
        return [(".idx", index)]

    def inspect(self, path: Path, dtype: str | None = None) -> FileSummary:
        """Read the index."""
        index = _read_megatron_index(path)
        if dtype is not None and not _same_bytes(dtype, index.dtype):
            raise ShardError(f"{path.name} holds {index.dtype}, not {dtype}")
        return FileSummary(index.dtype, index.n_tokens)

    def document_ends(self, path: Path, dtype: str, n_tokens: int) -> NDArray[np.uint64] | None:
        """Read them from the index."""
        del dtype
        return checked_ends(_read_megatron_index(path).document_ends, n_tokens, path.with_suffix(".idx").name)


@dataclass(frozen=True)
class _MegatronIndex:
    dtype: str
    n_tokens: int
    document_ends: NDArray[np.int64]


def _same_bytes(dtype: str, stored: str) -> bool:
    return dtype == stored or (dtype, stored) == ("uint32", "int32")


def _read_megatron_index(path: Path) -> _MegatronIndex:
    """Read the `.idx` of a `.bin` and check that its sequences are consecutive."""
    index = path.with_suffix(".idx")
    head = read_head(index, _MEGATRON_HEADER.size) if index.exists() else b""
    if not index.exists():
        raise ShardError(
            f"{path.name} has no {index.name} next to it", hint="layout megatron consists of both files"
        )
    if len(head) < _MEGATRON_HEADER.size or not head.startswith(_MEGATRON_MAGIC):
        raise ShardError(f"{index.name} is not an index of layout megatron: it does not begin with MMIDIDX")
    _, version, code, n_sequences, n_indices = _MEGATRON_HEADER.unpack(head)
    if version != 1:
        raise ShardError(f"{index.name} has version {version}, not 1")
    dtype = next((name for name, known in _MEGATRON_CODES.items() if known == code), None)
    if dtype is None:
        raise ShardError(
            f"{index.name} declares ids of type {_MEGATRON_FLOATS.get(code, f'{code}, which is unknown')}"
        )
    # Multimodal data sets have a mode (int8) per sequence at the end.
    expected = _MEGATRON_HEADER.size + 12 * n_sequences + 8 * n_indices
    if file_size(index) not in (expected, expected + n_sequences):
        raise ShardError(f"{index.name} has {file_size(index):,} bytes; its header requires {expected:,}")
    offset = _MEGATRON_HEADER.size
    lengths = map_array(index, "int32", n_sequences, offset, exact=False).astype(np.int64)
    offsets = map_array(index, "int64", n_sequences, offset + 4 * n_sequences, exact=False)
    indices = map_array(index, "int64", n_indices, offset + 12 * n_sequences, exact=False)
    ends = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
    if np.any(lengths < 0) or np.any(offsets != ends[:-1] * np.dtype(dtype).itemsize):
        raise ShardError(f"the sequences of {index.name} are not consecutive in {path.name}")
    if n_indices == 0 or indices[0] != 0 or indices[-1] != n_sequences or np.any(indices[1:] < indices[:-1]):
        raise ShardError(f"the documents of {index.name} are not its sequences in order")
    return _MegatronIndex(dtype, int(ends[-1]), ends[indices[1:]])


_DATATROVE_METADATA_BYTES = 1 << 16


class DatatroveLayout(Layout):
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
        metadata = (
            f"bytemill-{fingerprint}|{np.dtype(dtype).itemsize}\n{n_tokens}\n{_datatrove_count(n_tokens)}"
        )
        return [(".ds.index", ends.astype("<u8").tobytes()), (".ds.metadata", metadata.encode())]

    def inspect(self, path: Path, dtype: str | None = None) -> FileSummary:
        """Derive the number of ids from the file size and the type in the metadata."""
        stored = _datatrove_dtype(path)
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


def _datatrove_dtype(path: Path) -> str | None:
    """Return the type of the ids from the first line of the metadata, or None."""
    metadata = path.with_name(f"{path.name}.metadata")
    if not metadata.exists():
        return None
    first = read_head(metadata, _DATATROVE_METADATA_BYTES).split(b"\n", 1)[0]
    return {b"2": "uint16", b"4": "uint32"}.get(first.strip().rpartition(b"|")[2])


def _datatrove_count(n_tokens: int) -> str:
    """Return a number of tokens with three digits and a unit (T for token).

    >>> _datatrove_count(12_345), _datatrove_count(7)
    ('12.3 kT', '7.00 T')
    """
    value, units = float(n_tokens), ["", "k", "M", "G", "T"]
    while value >= 999.5 and len(units) > 1:
        value /= 1000
        units.pop(0)
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{digits}f} {units[0]}T"


LAYOUTS: dict[str, Layout] = {
    layout.name: layout
    for layout in (NpyLayout(), BinLayout(), LlmcLayout(), MegatronLayout(), DatatroveLayout())
}
"""All layouts by name; `register_layout` adds one."""


def register_layout(layout: Layout) -> None:
    """Add a layout, so that encoding, reading, converting and verifying accept its name.

    Args:
        layout: An instance of a subclass of `PlainLayout`.

    Raises:
        ShardError: If a layout of this name exists already.
    """
    if layout.name in LAYOUTS:
        raise ShardError(f"layout {layout.name!r} already exists", hint="choose another name")
    LAYOUTS[layout.name] = layout


def layout_named(name: str) -> Layout:
    """Return the layout with this name. Raises `ShardError` if there is none."""
    if name not in LAYOUTS:
        raise ShardError(f"there is no layout {name!r}", hint=f"choose one of: {', '.join(LAYOUTS)}")
    return LAYOUTS[name]
