"""Cuts a stream of token ids into shards that stand under their names when they are whole."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np

from bytemill.shards.layouts.npy import npy_header
from bytemill.shards.manifest import (
    DOCUMENTS_NAME,
    FileInfo,
    ShardInfo,
    companion_files,
    shard_files,
    shard_name,
)
from bytemill.shards.partial_file import GrowingFile, growing_name
from bytemill.system.atomic_files import write_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from bytemill.shards.layouts import Dtype, Layout

_SMALL_IDS = 1 << 14
"""Pieces of fewer ids on average are joined before they are written."""


class ShardWriter:
    """Writes ids to shards of exactly `shard_tokens`, the last one excepted; where the layout keeps documents whole, a
    shard ends with the document that reaches so many.

    What `checkpoint` gives can be handed to another writer as `state`: that one goes on from there, and the files come
    out the same byte for byte. Raises `OutputError` where writing fails, and `ShardError` for what the layout cannot
    hold.
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
        state: dict[str, Any] | None = None,
    ) -> None:
        self.shards: list[ShardInfo] = []
        """The shards that stand under their names."""
        self.n_tokens = 0
        """Tokens taken so far."""
        self._folder = folder
        self._layout = layout
        self._dtype: Dtype = dtype
        self._item = np.dtype(dtype).newbyteorder("<")
        self._shard_tokens = shard_tokens
        self._fingerprint = fingerprint
        self._shard_start = 0
        """Tokens in the finished shards."""
        self._shard: GrowingFile | None = None
        self._shard_ends: GrowingFile | None = None
        """Where documents end in the growing shard, in tokens from the first one on, for layouts that want to know."""
        self._documents: GrowingFile | None = None
        self._n_settled = self._n_removed = 0
        """Finished shards whose ends nobody will ask for again, and those of them whose ends are removed."""
        if state is not None:
            self._go_on(state)
        elif document_index:
            self._documents = GrowingFile(folder / DOCUMENTS_NAME, self._documents_header(0))

    def append(self, pieces: Sequence[NDArray[Any]], ends: NDArray[np.uint64]) -> None:
        """Write ids, which come in pieces. `ends` are where documents end among them."""
        ends = ends + np.uint64(self.n_tokens)
        if len(ends) and self._documents is not None:
            self._documents.write(_as_bytes(ends, "<u8"))
        if len(pieces) > 1 and sum(map(len, pieces)) < _SMALL_IDS * len(pieces):
            pieces = [np.concatenate(pieces)]
        stop = self._shard_stop(ends)
        for piece in pieces:
            start = 0
            while start < len(piece):
                n_taken = (
                    len(piece) - start if stop is None else min(len(piece) - start, stop - self.n_tokens)
                )
                self._grow(piece[start : start + n_taken])
                start += n_taken
                if stop is not None and self.n_tokens == stop:
                    ends = self._note_ends(ends, stop)
                    self._finish_shard()
                    stop = self._shard_stop(ends)
        self._note_ends(ends, self.n_tokens)

    def checkpoint(self) -> dict[str, Any]:
        """Makes all that was taken survive a power cut; what another writer can go on from, as JSON can hold it."""
        # Who goes on goes back to the checkpoint before this one at the most.
        if self._layout.companion_suffixes:
            for index in range(self._n_removed, self._n_settled):
                (self._folder / growing_name(self._ends_path(index).name)).unlink(missing_ok=True)
            self._n_removed, self._n_settled = self._n_settled, len(self.shards)
        state: dict[str, Any] = {
            "n_tokens": self.n_tokens,
            "shards": [dataclasses.asdict(shard) for shard in self.shards],
        }
        for name, file in (
            ("shard", self._shard),
            ("ends", self._shard_ends),
            ("documents", self._documents),
        ):
            if file is not None:
                file.sync()
            state[name] = None if file is None else file.n_bytes
        return state

    def finish(self) -> tuple[tuple[ShardInfo, ...], FileInfo | None]:
        """Finish the last shard, whatever it holds: all shards in order, and the document index."""
        self._finish_shard()
        documents = self._documents
        if documents is None:
            return tuple(self.shards), None
        n_items = (documents.n_bytes - len(self._documents_header(0))) // 8
        sha256 = documents.finish(self._documents_header(n_items))
        return tuple(self.shards), FileInfo(documents.path.name, documents.n_bytes, sha256)

    def close(self) -> None:
        """Leave what grows as it is."""
        for file in (self._shard, self._shard_ends, self._documents):
            if file is not None:
                file.close()

    def _shard_stop(self, ends: NDArray[np.uint64]) -> int | None:
        """The token at which the growing shard ends, None where it goes on behind those with these `ends`."""
        full = self._shard_start + self._shard_tokens
        if not self._layout.whole_documents:
            return full
        place = int(np.searchsorted(ends, full))
        return int(ends[place]) if place < len(ends) else None

    def _grow(self, ids: NDArray[Any]) -> None:
        if self._shard is None:
            path = self._folder / shard_name(len(self.shards), self._layout.suffix)
            self._shard = GrowingFile(path, self._layout.header(self._dtype, self._shard_tokens))
            if self._layout.companion_suffixes:
                self._shard_ends = GrowingFile(self._ends_path(), b"")
        self._shard.write(_as_bytes(ids, self._item))
        self.n_tokens += len(ids)

    def _note_ends(self, ends: NDArray[np.uint64], stop: int) -> NDArray[np.uint64]:
        """Keeps the ends that lie in the growing shard, which has come to `stop`; the others."""
        n_within = int(np.searchsorted(ends, stop, side="right"))
        if n_within and self._shard_ends is not None:
            self._shard_ends.write(_as_bytes(ends[:n_within], "<u8"))
        return ends[n_within:]

    def _finish_shard(self) -> None:
        shard = self._shard
        if shard is None:
            return
        n_tokens = self.n_tokens - self._shard_start
        # The companions first: a shard that stands under its name is complete.
        companions: list[FileInfo] = []
        if self._shard_ends is not None:
            ends = np.frombuffer(self._shard_ends.read(), "<u8").astype(np.uint64) - np.uint64(
                self._shard_start
            )
            if not len(ends) or int(ends[-1]) != n_tokens:
                ends = np.append(ends, np.uint64(n_tokens))
            stem = shard.path.name.removesuffix(self._layout.suffix)
            for suffix, content in self._layout.companions(self._dtype, ends, self._fingerprint):
                write_bytes(self._folder / (stem + suffix), content)
                companions.append(FileInfo(stem + suffix, len(content), hashlib.sha256(content).hexdigest()))
        sha256 = shard.finish(self._layout.header(self._dtype, n_tokens))
        if self._shard_ends is not None:
            self._shard_ends.close()
        self.shards.append(ShardInfo(shard.path.name, n_tokens, shard.n_bytes, sha256, tuple(companions)))
        self._shard_start = self.n_tokens
        self._shard = self._shard_ends = None

    def _go_on(self, state: dict[str, Any]) -> None:
        """Takes up what a writer left: what it wrote behind `state` is cut off."""
        self.n_tokens = int(state["n_tokens"])
        self.shards = [_shard_info(shard) for shard in state["shards"]]
        self._shard_start = sum(shard.n_tokens for shard in self.shards)
        growing = shard_name(len(self.shards), self._layout.suffix)
        kept = {name for shard in self.shards for name in _names(shard)}
        if state["shard"] is not None:
            header = self._layout.header(self._dtype, self._shard_tokens)
            self._shard = GrowingFile(self._folder / growing, header, n_bytes=state["shard"])
            if state["ends"] is not None:
                self._shard_ends = GrowingFile(self._ends_path(), b"", n_bytes=state["ends"])
        if state["documents"] is not None:
            path, header = self._folder / DOCUMENTS_NAME, self._documents_header(0)
            self._documents = GrowingFile(path, header, n_bytes=state["documents"])
        for name in [*shard_files(self._folder), *companion_files(self._folder)]:
            if name not in kept and name != DOCUMENTS_NAME:
                (self._folder / name).unlink()

    def _ends_path(self, index: int | None = None) -> Path:
        """Of the shard with this index, or of the growing one."""
        return self._folder / f"{shard_name(len(self.shards) if index is None else index, '')}.ends"

    @staticmethod
    def _documents_header(n_items: int) -> bytes:
        return npy_header("uint64", n_items)


def _as_bytes(items: NDArray[Any], dtype: Any) -> memoryview:
    return np.ascontiguousarray(items, dtype=dtype).data.cast("B")


def _names(shard: ShardInfo) -> list[str]:
    return [shard.file, *(companion.file for companion in shard.companions)]


def _shard_info(fields: dict[str, Any]) -> ShardInfo:
    return dataclasses.replace(
        ShardInfo(**fields), companions=tuple(FileInfo(**companion) for companion in fields["companions"])
    )
