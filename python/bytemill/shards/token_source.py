"""Token ids in order, with the ends of documents, from shards with a manifest or from files of other programs."""

from __future__ import annotations

import glob
from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bytemill.errors import ShardError
from bytemill.shards.layouts import LAYOUTS, Layout, layout_named
from bytemill.shards.layouts.files import cannot_read
from bytemill.shards.layouts.llmc import has_header
from bytemill.shards.manifest import DOCUMENTS_NAME, MANIFEST_NAME, UNFINISHED_NAME, Manifest
from bytemill.shards.reader import TokenShards, open_shards

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

BLOCK_TOKENS = 1 << 20
"""Ids that are held at once."""


@dataclass(frozen=True)
class TokenBlock:
    """Ids in a row, and where documents end in them."""

    tokens: NDArray[Any]
    ends: NDArray[np.int64]
    """Ascending, from 0 (a document that ended with the block before) to `len(tokens)`. Empty where documents are
    unknown. Documents without a token are left out."""


@dataclass(frozen=True)
class _Ids:
    """Where ids lie."""

    file: Path
    dtype: np.dtype[Any]
    offset: int
    """First byte in the file."""
    n_tokens: int

    def map(self, start: int, stop: int) -> NDArray[Any]:
        """Some of them, mapped for as long as the array is kept: memory does not grow with what was read before."""
        n_tokens = min(stop, self.n_tokens) - start
        if n_tokens <= 0:
            return np.empty(0, self.dtype)
        place = self.offset + start * self.dtype.itemsize
        try:
            return np.asarray(np.memmap(self.file, self.dtype, "r", place, (n_tokens,)))
        except (OSError, ValueError) as error:  # it was changed or removed since it was opened
            raise cannot_read(self.file, error) from error


class TokenSource:
    """The ids of some files in order, mapped from the disk.

    Documents end where the files' index says, or else at the `separator`. Raises `ShardError` for files that are no
    shards, or damaged.
    """

    def __init__(
        self, files: list[Path], arrays: list[NDArray[Any]], layout: Layout, manifest: Manifest | None = None
    ) -> None:
        self.name = str(files[0] if len(files) == 1 and manifest is None else files[0].parent)
        self.files = files
        self.layout = layout
        self.manifest = manifest
        """None for files of other programs."""
        self.n_tokens = sum(len(array) for array in arrays)
        self.n_bytes = sum(array.nbytes for array in arrays)
        """Bytes of all ids as they are stored."""
        self.separator: int | None = None
        """The id that separates documents, where it is known."""
        self.separator_in_front = layout.separator_in_front
        """True where it stands before each document, and not behind it."""
        self._ids = [
            _Ids(file, array.dtype, getattr(array, "offset", 0), len(array))
            for file, array in zip(files, arrays, strict=True)
        ]
        self._starts = [0, *accumulate(len(array) for array in arrays)]
        self._index: tuple[int, NDArray[np.uint64]] | None = None
        """Number of a file and where its documents end: blocks come file by file."""
        self._document_ends = None if manifest is None else TokenShards(files[0].parent).document_ends()
        self._has_indices = self._document_ends is None and self._find_indices()

    @property
    def dtype(self) -> str:
        """What the ids are stored as (numpy's name); "int64" where the files differ."""
        names = {ids.dtype.name for ids in self._ids}
        return names.pop() if len(names) == 1 else "int64"

    @property
    def has_index(self) -> bool:
        """True where the files say where documents end."""
        return self._document_ends is not None or self._has_indices

    @property
    def knows_documents(self) -> bool:
        """True where `blocks` says where documents end."""
        return self.has_index or self.separator is not None

    def separate_at(self, separator: int, *, in_front: bool | None = None) -> None:
        """Let `separator` be the id that stands before (`in_front`) or behind each document.

        By default this is judged by the first document that the index knows; without an index, it stands in front where
        the first token of all is one.
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
        begins_so = block.tokens[starts] == separator
        ends_so = block.tokens[stops - 1] == separator
        # One that begins and ends so tells nothing, such as a document of nothing but its separator.
        telling = np.flatnonzero(begins_so != ends_so)
        return bool(begins_so[telling[0]]) if len(telling) else self.layout.separator_in_front

    def blocks(self, start: int = 0, block_tokens: int = BLOCK_TOKENS) -> Iterator[TokenBlock]:
        """All ids from token `start` on, in blocks that end with their file or hold `block_tokens`."""
        for number, ids in enumerate(self._ids):
            before = self._starts[number]
            for offset in range(max(0, start - before), ids.n_tokens, block_tokens):
                tokens = ids.map(offset, offset + block_tokens)
                yield TokenBlock(tokens, self._ends_in(number, before + offset, tokens))

    def read(self, start: int, stop: int) -> TokenBlock:
        """A copy of the ids from `start` up to and without `stop`; what ends behind them ends in this block."""
        blocks = [
            TokenBlock(tokens, self._ends_in(number, first, tokens) + (first - start))
            for number, ids in enumerate(self._ids)
            if (before := self._starts[number]) < stop and before + ids.n_tokens > start
            for first in [max(start, before)]
            for tokens in [ids.map(first - before, stop - before)]
        ]
        if not blocks:
            return TokenBlock(np.empty(0, self.dtype), np.empty(0, np.int64))
        ends = np.concatenate([block.ends for block in blocks])
        if self.separator is not None and self.separator_in_front and not self.has_index:
            ends = ends[ends > 0]  # these were given with the block before
            if stop < self.n_tokens and self._id_at(stop) == self.separator:
                ends = np.append(ends, stop - start)
        return TokenBlock(np.concatenate([block.tokens for block in blocks]), ends)

    def place(self, token: int) -> str:
        """The file and the place in it of a token, for messages."""
        number = bisect_right(self._starts, token, hi=len(self.files)) - 1
        return f"{self.files[number].name}: token {token - self._starts[number]:,}"

    def _id_at(self, token: int) -> int:
        number = bisect_right(self._starts, token) - 1
        place = token - self._starts[number]
        return int(self._ids[number].map(place, place + 1)[0])

    def _find_indices(self) -> bool:
        """True where every file has an index beside it."""
        return all(self._ends_of_file(number) is not None for number in range(len(self.files)))

    def _ends_of_file(self, number: int) -> NDArray[np.uint64] | None:
        ids = self._ids[number]
        return self.layout.document_ends(ids.file, ids.dtype.name, ids.n_tokens)

    def _ends_in(self, number: int, start: int, tokens: NDArray[Any]) -> NDArray[np.int64]:
        stop = start + len(tokens)
        if self.has_index:
            ends, base = self._document_ends, 0
            if ends is None:
                ends, base = self._index_of(number), self._starts[number]
            first = int(np.searchsorted(ends, np.uint64(start - base), side="right"))
            last = int(np.searchsorted(ends, np.uint64(stop - base), side="right"))
            # A document without a token ends where another does.
            return np.unique(ends[first:last].astype(np.int64)) + (base - start)
        if self.separator is None:
            return np.empty(0, np.int64)
        places = np.flatnonzero(tokens == self.separator).astype(np.int64)
        ends = places if self.separator_in_front else places + 1
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
    """The ids at `path`: a folder of shards with a manifest; or one file, a folder, or a glob of files of others.

    Files of others are told apart by their names and first bytes. A headerless `.bin` says nothing about itself: it
    needs `layout="bin"` and the `dtype` of its ids. All files of a folder, sorted by name, are one sequence.

    Raises `ShardError` where nothing is there, where it is not what `layout` and `dtype` say, or where only they could
    tell what it is.
    """
    place = Path(path)
    if place.is_dir() and ((place / MANIFEST_NAME).exists() or (place / UNFINISHED_NAME).exists()):
        shards = TokenShards(place)
        manifest = shards.manifest
        if layout not in (None, manifest.layout) or dtype not in (None, manifest.dtype):
            raise ShardError(
                f"the manifest of {place} says {manifest.layout} of {manifest.dtype}, not "
                f"{layout or manifest.layout} of {dtype or manifest.dtype}",
                hint="leave out layout and dtype (--source-layout, --dtype): the manifest tells both",
            )
        if not manifest.shards:
            raise ShardError(f"the shards in {place} hold no token")
        files = [place / shard.file for shard in manifest.shards]
        return TokenSource(files, list(open_shards(place)), layout_named(manifest.layout), manifest)
    files = _files_at(place, None if layout is None else layout_named(layout))
    found = layout_named(layout) if layout is not None else _layout_of(files)
    arrays: list[NDArray[Any]] = []
    for file in files:
        facts = found.inspect(file, dtype)
        arrays.append(found.open(file, facts.dtype, facts.n_tokens))
    return TokenSource(files, arrays, found)


def find_separator(
    tokens: TokenSource, separator: int | str | None, special_tokens: Mapping[str, int]
) -> None:
    """Tell `tokens` its separator, where it is given, or the manifest knows it.

    Raises `ShardError` for a special token whose id `special_tokens` do not tell.
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
            hint="give the id itself, or the tokenizer that has this special token",
        )
    elif known and known.separator_id is not None:
        tokens.separate_at(known.separator_id)


def _files_at(place: Path, layout: Layout | None) -> list[Path]:
    suffixes = {known.suffix for known in LAYOUTS.values()} if layout is None else {layout.suffix}
    if place.is_dir():
        found = (file for file in place.iterdir() if file.suffix in suffixes and file.name != DOCUMENTS_NAME)
        files = sorted(file for file in found if file.is_file())
        if not files:
            parts = [part.name for part in sorted(place.iterdir()) if (part / MANIFEST_NAME).exists()]
            raise ShardError(
                f"{place} holds neither a {MANIFEST_NAME} nor a file named *{', *'.join(sorted(suffixes))}",
                hint=f"name one of its folders: {', '.join(parts)}"
                if parts
                else "name a folder of shards, or the files themselves",
            )
        return files
    if place.exists():
        return [place]
    files = [Path(name) for name in sorted(glob.glob(str(place)))]  # noqa: PTH207  the pattern may be absolute
    if not files:
        raise ShardError(f"there is no {place}", hint="name a folder of shards, a file, or a glob of files")
    return files


def _layout_of(files: list[Path]) -> Layout:
    """The layout that all of them have. Raises `ShardError` where they differ or say nothing."""
    names = {_name_of_layout(file) for file in files}
    if len(names) > 1:
        raise ShardError(
            f"{files[0].parent} holds files of several layouts: {', '.join(sorted(names))}",
            hint="name one with layout=… (--source-layout), or a glob of the files",
        )
    return layout_named(names.pop())


def _name_of_layout(file: Path) -> str:
    if file.suffix == ".npy":
        return "npy"
    if file.suffix == ".ds":
        return "datatrove"
    if file.suffix == ".bin" and file.with_suffix(".idx").exists():
        return "megatron"
    if has_header(file):
        return "llmc"
    # A suffix that only one layout has, such as a registered one.
    names = [layout.name for layout in LAYOUTS.values() if layout.suffix == file.suffix]
    if len(names) == 1:
        return names[0]
    raise ShardError(
        f"nothing in {file} tells its layout",
        hint='if it holds ids and nothing else: layout="bin", dtype="uint16" (--source-layout bin --dtype uint16)',
    )
