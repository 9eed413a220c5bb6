"""Read token ids with the ends of documents, from shard folders and files of other programs."""

from __future__ import annotations

import glob
from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bytemill.data.layouts import LAYOUTS, Layout, cannot_read, has_llmc_header, layout_named
from bytemill.data.manifest import MANIFEST_NAME, UNFINISHED_NAME, Manifest, is_documents_name
from bytemill.data.reader import TokenShards, local_shards
from bytemill.errors import ShardError
from bytemill.storage import exists, local_input, url_of
from bytemill.system.file_stamp import FileStamp

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray


BLOCK_TOKENS = 1 << 20
"""Ids in memory at once."""


@dataclass(frozen=True)
class TokenBlock:
    """Consecutive ids with the ends of documents."""

    tokens: NDArray[Any]
    ends: NDArray[np.int64]
    """Ascending, from 0 (the end of a document of the block before) to `len(tokens)`. Documents without tokens are left
    out. Empty if the ends are unknown."""


@dataclass(frozen=True)
class _IdRange:
    """The ids of a file."""

    file: Path
    dtype: np.dtype[Any]
    offset: int
    """First byte of the ids."""
    n_tokens: int
    stamp: FileStamp

    def check_unchanged(self) -> None:
        """Raise ShardError if the file was written or replaced since it was opened."""
        try:
            change = self.stamp.change(self.file)
        except OSError as error:
            raise cannot_read(self.file, error) from error
        if change is not None:
            raise ShardError(
                f"{self.file} changed while it was read: {change}",
                hint="run the command again, and leave shards alone while they are read",
            )

    def map(self, start: int, stop: int) -> NDArray[Any]:
        """Map a range of the ids. The mapping ends with the array, so memory does not grow while reading."""
        n_tokens = min(stop, self.n_tokens) - start
        if n_tokens <= 0:
            return np.empty(0, self.dtype)
        offset = self.offset + start * self.dtype.itemsize
        try:
            return np.asarray(np.memmap(self.file, self.dtype, "r", offset, (n_tokens,)))
        except (OSError, ValueError) as error:  # the file was changed or removed
            raise cannot_read(self.file, error) from error


class TokenSource:
    """The ids of consecutive files, mapped from the disk.

    Documents end according to the document index or the sidecar files, else at the separator.

    Args:
        files: The files, in order.
        arrays: Their ids, as opened by the layout.
        layout: Layout of the files.
        manifest: Manifest of their folder; None for files of other programs.
        document_ends: Document index of the folder.

    Raises:
        ShardError: If a file is damaged. Also raised by the methods.
    """

    def __init__(
        self,
        files: list[Path],
        arrays: Sequence[NDArray[Any]],
        layout: Layout,
        manifest: Manifest | None = None,
        document_ends: NDArray[np.uint64] | None = None,
    ) -> None:
        self.name = str(files[0] if len(files) == 1 and manifest is None else files[0].parent)
        self.files = files
        self.folders: list[str] = []
        """The folder, or the URL of one, whose files they are."""
        self.layout = layout
        self.manifest = manifest
        self.n_tokens = sum(len(array) for array in arrays)
        self.n_bytes = sum(array.nbytes for array in arrays)
        """Bytes of all ids as stored."""
        self.separator: int | None = None
        """Id of the separator, or None."""
        self.separator_in_front = layout.separator_in_front
        """True if it is at the start of documents, False at their end."""
        self._ranges = [
            _IdRange(file, array.dtype, getattr(array, "offset", 0), len(array), FileStamp.of(file.stat()))
            for file, array in zip(files, arrays, strict=True)
        ]
        self._starts = [0, *accumulate(len(array) for array in arrays)]
        self._index: tuple[int, NDArray[np.uint64]] | None = None
        """Number of the file read last, with the ends of its documents."""
        self._document_ends = document_ends
        self._has_indices = self._document_ends is None and self._find_indices()

    def __getstate__(self) -> dict[str, Any]:
        # A pickled mapping would contain the file.
        path = None if self._document_ends is None else str(getattr(self._document_ends, "filename", ""))
        return {**self.__dict__, "_index": None, "_document_ends": path}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if (path := state["_document_ends"]) is not None:
            npy = layout_named("npy")
            self._document_ends = npy.open(Path(path), "uint64", npy.inspect(Path(path)).n_tokens)

    def refuse_masks(self) -> None:
        """Raise `ShardError` if the ids have masks, which only encoding writes."""
        if self.manifest is not None and self.manifest.settings.conversations is not None:
            raise ShardError(
                f"{self.name} contains conversations, whose masks would be lost",
                hint="encode the conversations again",
            )

    @property
    def dtype(self) -> str:
        """NumPy's name of the type of the ids; "int64" if the files differ."""
        names = {ids.dtype.name for ids in self._ranges}
        return names.pop() if len(names) == 1 else "int64"

    @property
    def has_index(self) -> bool:
        """True if there is a document index, or sidecar files with the ends of documents."""
        return self._document_ends is not None or self._has_indices

    @property
    def knows_documents(self) -> bool:
        """True if `blocks` yields the ends of documents."""
        return self.has_index or self.separator is not None

    def separate_at(self, separator: int, *, in_front: bool | None = None) -> None:
        """Set the separator.

        Args:
            separator: Id of the separator.
            in_front: True if it is at the start of documents, False at their end. By default that is found from the
                first documents of the index; without an index, from whether the first id is a separator.
        """
        self.separator = separator
        self.separator_in_front = self._is_in_front(separator) if in_front is None else in_front

    def _is_in_front(self, separator: int) -> bool:
        block = next(self.blocks(), None)
        if block is None:
            return self.layout.separator_in_front
        if not self.has_index:
            return int(block.tokens[0]) == separator
        stops = np.unique(block.ends[block.ends > 0])
        starts = np.concatenate((np.zeros(1, np.int64), stops[:-1]))[: len(stops)]
        at_start = block.tokens[starts] == separator
        at_end = block.tokens[stops - 1] == separator
        # A document with a separator at both ends, or of a separator alone, is ambiguous.
        clear = np.flatnonzero(at_start != at_end)
        return bool(at_start[clear[0]]) if len(clear) else self.layout.separator_in_front

    def blocks(self, start: int = 0, block_tokens: int = BLOCK_TOKENS) -> Iterator[TokenBlock]:
        """Yield the ids from token `start` on, in blocks of `block_tokens` that end at the end of each file."""
        for number, ids in enumerate(self._ranges):
            before = self._starts[number]
            for offset in range(max(0, start - before), ids.n_tokens, block_tokens):
                tokens = ids.map(offset, offset + block_tokens)
                yield TokenBlock(tokens, self._ends_in(number, before + offset, tokens))
            ids.check_unchanged()

    def read(self, start: int, stop: int) -> TokenBlock:
        """Return a copy of the ids from `start` to `stop` (exclusive). An end at `stop` belongs to this block."""
        numbers = [
            number
            for number, ids in enumerate(self._ranges)
            if self._starts[number] < stop and self._starts[number] + ids.n_tokens > start
        ]
        blocks = [
            TokenBlock(tokens, self._ends_in(number, first, tokens) + (first - start))
            for number in numbers
            for before in [self._starts[number]]
            for first in [max(start, before)]
            for tokens in [self._ranges[number].map(first - before, stop - before)]
        ]
        if not blocks:
            return TokenBlock(np.empty(0, self.dtype), np.empty(0, np.int64))
        ends = np.concatenate([block.ends for block in blocks])
        if self.separator is not None and self.separator_in_front and not self.has_index:
            ends = ends[ends > 0]  # they belong to the block before
            if stop < self.n_tokens and self._id_at(stop) == self.separator:
                ends = np.append(ends, stop - start)
        tokens = np.concatenate([block.tokens for block in blocks])
        for number in numbers:
            self._ranges[number].check_unchanged()
        return TokenBlock(tokens, ends)

    def locate(self, token: int) -> str:
        """Return the file of a token and its position there, for messages."""
        number = bisect_right(self._starts, token, hi=len(self.files)) - 1
        return f"{self.files[number].name}: token {token - self._starts[number]:,}"

    def _id_at(self, token: int) -> int:
        number = bisect_right(self._starts, token) - 1
        offset = token - self._starts[number]
        return int(self._ranges[number].map(offset, offset + 1)[0])

    def _find_indices(self) -> bool:
        """Check whether every file has a sidecar file with the ends of its documents."""
        return all(self._ends_of_file(number) is not None for number in range(len(self.files)))

    def _ends_of_file(self, number: int) -> NDArray[np.uint64] | None:
        ids = self._ranges[number]
        return self.layout.document_ends(ids.file, ids.dtype.name, ids.n_tokens)

    def _ends_in(self, number: int, start: int, tokens: NDArray[Any]) -> NDArray[np.int64]:
        stop = start + len(tokens)
        if self.has_index:
            ends, base = self._document_ends, 0
            if ends is None:
                ends, base = self._index_of(number), self._starts[number]
            first = int(np.searchsorted(ends, np.uint64(start - base), side="right"))
            last = int(np.searchsorted(ends, np.uint64(stop - base), side="right"))
            # A document without tokens ends where the one before it does.
            return np.unique(ends[first:last].astype(np.int64)) + (base - start)
        if self.separator is None:
            return np.empty(0, np.int64)
        separators = np.flatnonzero(tokens == self.separator).astype(np.int64)
        ends = separators if self.separator_in_front else separators + 1
        if self.separator_in_front and start == 0:
            ends = ends[ends > 0]
        if stop == self.n_tokens and (len(ends) == 0 or ends[-1] != len(tokens)):
            ends = np.append(ends, len(tokens))
        return ends

    def _index_of(self, number: int) -> NDArray[np.uint64]:
        if self._index is None or self._index[0] != number:
            ends = self._ends_of_file(number)
            self._index = (number, np.empty(0, np.uint64) if ends is None else ends)
        return self._index[1]


def open_tokens(
    path: str | os.PathLike[str], *, layout: str | None = None, dtype: str | None = None
) -> TokenSource:
    """Open the ids of a shard folder, or of a file, a folder or a glob of files of other programs.

    The layout of files of other programs is found from their names and first bytes. A headerless `.bin` needs
    `layout="bin"` and a `dtype`. The files of a folder or glob are one sequence, sorted by name.

    Args:
        path: Path or glob, or the URL of a file or folder in an object store, which is copied to the cache folder.
        layout: Layout of files without a manifest.
        dtype: Type of the ids in files that do not store it.

    Raises:
        ShardError: If there is no file, if the files contradict `layout` or `dtype`, or if these are needed.
    """
    root = Path(path) if (url := url_of(path)) is None else _local_copy(url)
    tokens = _opened(root, layout, dtype)
    tokens.folders += [str(name) for name in (root, url) if name is not None and root.is_dir()]
    return tokens


def _opened(root: Path, layout: str | None, dtype: str | None) -> TokenSource:
    if root.is_dir() and ((root / MANIFEST_NAME).exists() or (root / UNFINISHED_NAME).exists()):
        shards = TokenShards(root)
        manifest = shards.manifest
        if layout not in (None, manifest.layout) or dtype not in (None, manifest.dtype):
            raise ShardError(
                f"the shards in {root} have layout {manifest.layout} and dtype {manifest.dtype}, not "
                f"{layout or manifest.layout} and {dtype or manifest.dtype}",
                hint="leave out --source-layout and --source-dtype: the manifest has both",
            )
        if not manifest.shards:
            raise ShardError(f"the shards in {root} contain no tokens")
        files = [root / shard.file for shard in manifest.shards]
        layout_of_shards = layout_named(manifest.layout)
        return TokenSource(files, shards.arrays, layout_of_shards, manifest, shards.document_ends())
    files = _files_at(root, None if layout is None else layout_named(layout))
    found = layout_named(layout) if layout is not None else _layout_of(files)
    arrays: list[NDArray[Any]] = []
    for file in files:
        summary = found.inspect(file, dtype)
        arrays.append(found.open(file, summary.dtype, summary.n_tokens))
    return TokenSource(files, arrays, found)


def _local_copy(url: str) -> Path:
    """Return a copy of a shard folder, or of files of other programs, on this machine."""
    return local_shards(url) if exists(f"{url}/{MANIFEST_NAME}") else local_input(url)


def find_separator(
    tokens: TokenSource, separator: int | str | None, special_tokens: Mapping[str, int]
) -> None:
    """Set the separator of a token source, if it is explicit or in the manifest.

    Args:
        tokens: The token source.
        separator: Id or text of the separator; None for the manifest's.
        special_tokens: Ids of special tokens.

    Raises:
        ShardError: If the id of the separator is unknown.
    """
    known = tokens.manifest
    name = separator or (known.settings.document_separator if known else None)
    if isinstance(separator, int):
        tokens.separate_at(separator)
    elif isinstance(name, str) and name in special_tokens:
        tokens.separate_at(special_tokens[name])
    elif separator is not None:
        raise ShardError(
            f"the id of the separator {separator!r} is unknown",
            hint="name its id, or the tokenizer that has this special token",
        )
    elif known and known.separator_id is not None:
        tokens.separate_at(known.separator_id)


def _files_at(root: Path, layout: Layout | None) -> list[Path]:
    suffixes = {known.suffix for known in LAYOUTS.values()} if layout is None else {layout.suffix}
    if root.is_dir():
        found = (
            file for file in root.iterdir() if file.suffix in suffixes and not is_documents_name(file.name)
        )
        files = sorted(file for file in found if file.is_file())
        if not files:
            parts = [part.name for part in sorted(root.iterdir()) if (part / MANIFEST_NAME).exists()]
            raise ShardError(
                f"{root} contains neither a {MANIFEST_NAME} nor files named *{', *'.join(sorted(suffixes))}",
                hint=f"name one of its folders: {', '.join(parts)}"
                if parts
                else "name a shard folder, or files",
            )
        return files
    if root.exists():
        return [root]
    files = [Path(name) for name in sorted(glob.glob(str(root)))]  # noqa: PTH207  the pattern may be absolute
    if not files:
        raise ShardError(f"there is no {root}", hint="name a shard folder, a file, or a glob of files")
    return files


def _layout_of(files: list[Path]) -> Layout:
    """Return the layout of all files. Raises `ShardError` if they differ or it is unknown."""
    names = {_layout_name(file) for file in files}
    if len(names) > 1:
        raise ShardError(
            f"{files[0].parent} contains files of several layouts: {', '.join(sorted(names))}",
            hint="choose one with --source-layout (source_layout=), or use a glob",
        )
    return layout_named(names.pop())


def _layout_name(file: Path) -> str:
    if file.suffix == ".npy":
        return "npy"
    if file.suffix == ".ds":
        return "datatrove"
    if file.suffix == ".bin" and file.with_suffix(".idx").exists():
        return "megatron"
    if has_llmc_header(file):
        return "llmc"
    # The suffix of a single layout, such as a registered one.
    names = [layout.name for layout in LAYOUTS.values() if layout.suffix == file.suffix]
    if len(names) == 1:
        return names[0]
    raise ShardError(
        f"the layout of {file} is unknown",
        hint="for ids without a header: --source-layout bin --source-dtype uint16",
    )
