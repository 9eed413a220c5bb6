"""Writes a stream of ids as shards of a layout, with the files that belong beside them."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from bytemill.atomic import AtomicFile, output_error, write_bytes
from bytemill.errors import OutputError
from bytemill.shards.layouts.npy import npy_header
from bytemill.shards.manifest import FileInfo, ShardInfo

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType

    from numpy.typing import NDArray

    from bytemill.shards.layouts import Dtype, Layout
    from bytemill.shards.token_source import TokenBlock

DOCUMENTS_NAME = "documents.npy"


class LayoutWriter:
    """Cuts blocks of ids into shards of `shard_tokens`, the last one excepted; where the layout asks for whole
    documents, a shard ends with the document that fills it.

    A file stands under its name only when it is whole. As a context manager it removes what is under way when an
    exception leaves the block. Raises `OutputError` where writing fails, `ShardError` for what the layout cannot say.
    """

    def __init__(
        self,
        folder: Path,
        layout: Layout,
        dtype: Dtype,
        shard_tokens: int,
        fingerprint: str,
        *,
        document_index: bool = False,
    ) -> None:
        self.shards: list[ShardInfo] = []
        """The shards that stand under their names."""
        self.n_tokens = 0
        """Tokens taken so far."""
        self.n_documents = 0
        """Ends of documents taken so far."""
        self._folder = folder
        self._layout = layout
        self._dtype: Dtype = dtype
        self._shard_tokens = shard_tokens
        self._fingerprint = fingerprint
        self._shard: _GrowingArray | None = None
        self._ends: list[NDArray[np.int64]] = []
        """Ends of documents in the shard that grows, from its beginning."""
        self._index: _GrowingArray | None = None
        if document_index:
            self._index = _GrowingArray(
                folder / DOCUMENTS_NAME, lambda n_items: npy_header("uint64", n_items), "uint64"
            )

    def append(self, block: TokenBlock) -> None:
        """Write ids, and note where documents end."""
        tokens, ends = block.tokens, block.ends
        if self._index is not None:
            self._index.append(ends + self.n_tokens)
        start = n_ends = 0
        while (stop := self._shard_stop(ends, start, len(tokens))) is not None:
            n_within = int(np.searchsorted(ends, stop, side="right"))
            self._take(tokens[start:stop], ends[n_ends:n_within] - start)
            self._close_shard()
            start, n_ends = stop, n_within
        self._take(tokens[start:], ends[n_ends:] - start)
        self.n_documents += len(ends)

    def finish(self) -> tuple[tuple[ShardInfo, ...], FileInfo | None]:
        """Close the last shard, whatever it holds: all shards in order, and the document index."""
        self._close_shard()
        index, self._index = self._index, None
        return tuple(self.shards), None if index is None else FileInfo(*index.commit())

    def _shard_stop(self, ends: NDArray[np.int64], start: int, n_tokens: int) -> int | None:
        """Where the shard that grows ends in a block, None where it goes on behind it."""
        full = start + self._shard_tokens - (self._shard.n_items if self._shard else 0)
        if not self._layout.whole_documents:
            return full if full <= n_tokens else None
        index = int(np.searchsorted(ends, max(full, start)))
        return int(ends[index]) if index < len(ends) else None

    def _take(self, tokens: NDArray[Any], ends: NDArray[np.int64]) -> None:
        if len(tokens):
            if self._shard is None:
                path = self._folder / f"shard_{len(self.shards):05d}{self._layout.suffix}"
                self._shard = _GrowingArray(
                    path,
                    lambda n_items: self._layout.header(self._dtype, n_items),
                    self._dtype,
                    self._shard_tokens,
                )
            if self._layout.companion_suffixes:
                self._ends.append(ends + self._shard.n_items)
            self._shard.append(tokens)
            self.n_tokens += len(tokens)

    def _close_shard(self) -> None:
        if self._shard is None:
            return
        n_tokens = self._shard.n_items
        ends = (
            np.concatenate((*self._ends, [n_tokens])).astype(np.uint64)
            if self._ends
            else np.empty(0, np.uint64)
        )
        # The companions first: a shard that stands under its name is complete.
        stem = self._shard.path.name.removesuffix(self._layout.suffix)
        companions: list[FileInfo] = []
        for suffix, content in self._layout.companions(self._dtype, ends, self._fingerprint):
            write_bytes(self._folder / (stem + suffix), content)
            companions.append(FileInfo(stem + suffix, len(content), hashlib.sha256(content).hexdigest()))
        name, n_bytes, sha256 = self._shard.commit()
        self.shards.append(ShardInfo(name, n_tokens, n_bytes, sha256, tuple(companions)))
        self._shard, self._ends = None, []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for growing in (self._shard, self._index):
            if growing is not None:
                growing.discard()


class _GrowingArray:
    """A file of integers under its temporary name: a header that names how many there are, then these.

    The header goes first and says `capacity`, so that the hash of the file is ready with its last byte; a file that
    holds another number gets its header patched and is hashed again.
    """

    def __init__(self, path: Path, header: Callable[[int], bytes], dtype: str, capacity: int = 0) -> None:
        self.path = path
        self.n_items = 0
        self._dtype = np.dtype(dtype).newbyteorder("<")
        self._header = header
        self._reserved = header(capacity)
        self._hash = hashlib.sha256()
        self._n_bytes = 0
        self._file = AtomicFile(path)
        try:
            self._write(self._reserved)
        except BaseException:
            self.discard()
            raise

    def append(self, items: NDArray[Any]) -> None:
        self._write(np.ascontiguousarray(items, dtype=self._dtype).data.cast("B"))
        self.n_items += len(items)

    def commit(self) -> tuple[str, int, str]:
        """Name, bytes and sha256 of the file, which stands under its name from now on."""
        try:
            header = self._header(self.n_items)
            sha256 = self._hash.hexdigest() if header == self._reserved else self._patch(header)
        except BaseException:
            self.discard()
            raise
        self._file.commit()
        return self.path.name, self._n_bytes, sha256

    def discard(self) -> None:
        self._file.discard()

    def _write(self, data: bytes | memoryview) -> None:
        self._file.write(data)
        self._hash.update(data)
        self._n_bytes += len(data)

    def _patch(self, header: bytes) -> str:
        if len(header) != len(self._reserved):
            raise OutputError(
                f"cannot write {self.path}: its header needs {len(header)} bytes, not {len(self._reserved)}"
            )
        file = self._file.file
        try:
            file.seek(0)
            file.write(header)
            file.seek(0)
            return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise output_error(error, self.path) from error
