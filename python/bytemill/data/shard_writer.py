"""Writer that divides a stream of token ids into shards."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from bytemill.data.conversations import TARGET
from bytemill.data.layouts import npy_header
from bytemill.data.manifest import (
    MASK_SUFFIX,
    FileInfo,
    ShardInfo,
    documents_name,
    is_documents_name,
    shard_files,
    shard_name,
    sidecar_files,
)
from bytemill.data.unfinished import PartialInfo, WriterState
from bytemill.data.verification import file_problem
from bytemill.errors import OutputError
from bytemill.system.atomic_files import PartialFile, output_errors, partial_name, write_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from bytemill.data.layouts import Dtype, Layout


_SMALL_CHUNK_TOKENS = 1 << 14
"""Chunks with fewer ids on average are joined before they are written."""


class ShardWriter:
    """Writes token ids to shards of exactly `shard_tokens` ids, except the last one.

    In layouts of whole documents, the document that reaches `shard_tokens` ends a shard.

    Args:
        folder: The output folder.
        layout: Layout of the files.
        dtype: Type of the ids in the files.
        shard_tokens: Ids per shard.
        fingerprint: Fingerprint of the tokenizer, for the sidecar files.
        document_index: Write `documents.npy`.
        has_masks: The ids of targets have the bit `TARGET`; write it to a mask beside each shard.
        state: A `checkpoint` of another writer with the same arguments. The files come out identical.
        tag: Tag in the names of the files (`shard_name`).
        finished: Called with each shard when it is finished, in the thread that writes.

    Raises:
        OutputError: If writing fails. Also raised by every method.
        ShardError: If the layout cannot represent the ids or documents.
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
        has_masks: bool = False,
        state: WriterState | None = None,
        tag: str = "",
        finished: Callable[[ShardInfo], None] | None = None,
    ) -> None:
        self.shards: list[ShardInfo] = []
        """Finished shards."""
        self.n_tokens = 0
        """Ids written so far."""
        self._folder = folder
        self._layout = layout
        self._dtype: Dtype = dtype
        self._item = np.dtype(dtype).newbyteorder("<")
        self._shard_tokens = shard_tokens
        self._fingerprint = fingerprint
        self._tag = tag
        self._finished = finished
        self._shard_start = 0
        """Ids in the finished shards."""
        self._shard: HashedFile | None = None
        self._shard_ends: HashedFile | None = None
        """Ends of documents in the current shard, in tokens from the first shard, for layouts with sidecar files."""
        self._has_masks = has_masks
        self._shard_mask: HashedFile | None = None
        """The mask of the current shard, a byte for each id."""
        self._documents: HashedFile | None = None
        self._n_removable = self._n_removed = 0
        """Finished shards whose ends no checkpoint needs any more, and those whose ends are removed."""
        if state is not None:
            self._resume(state)
        elif document_index:
            self._documents = HashedFile(*self._index())

    def append(self, chunks: Sequence[NDArray[Any]], ends: NDArray[np.uint64]) -> None:
        """Write ids.

        Args:
            chunks: Consecutive arrays of ids.
            ends: Ends of documents, in ids from the start of the first chunk.
        """
        ends = ends + np.uint64(self.n_tokens)
        if len(ends) and self._documents is not None:
            self._documents.append(_as_bytes(ends, "<u8"))
        if len(chunks) > 1 and sum(map(len, chunks)) < _SMALL_CHUNK_TOKENS * len(chunks):
            chunks = [np.concatenate(chunks)]
        stop = self._shard_stop(ends)
        for chunk in chunks:
            start = 0
            while start < len(chunk):
                n_taken = len(chunk) - start
                if stop is not None:
                    n_taken = min(n_taken, stop - self.n_tokens)
                self._append_ids(chunk[start : start + n_taken])
                start += n_taken
                if stop is not None and self.n_tokens == stop:
                    ends = self._append_ends(ends, stop)
                    self._finish_shard()
                    stop = self._shard_stop(ends)
        self._append_ends(ends, self.n_tokens)

    def checkpoint(self) -> WriterState:
        """Sync all files and return the state from which another writer resumes."""
        # A run resumes from this checkpoint or the one before it.
        if self._layout.sidecar_suffixes or self._has_masks:
            for index in range(self._n_removed, self._n_removable):
                for name in (_ends_name(index), _mask_name(index)):
                    (self._folder / partial_name(name)).unlink(missing_ok=True)
            self._n_removed, self._n_removable = self._n_removable, len(self.shards)
        return WriterState(
            n_tokens=self.n_tokens,
            shards=tuple(self.shards),
            shard=self._shard and self._shard.checkpoint(),
            ends=self._shard_ends and self._shard_ends.checkpoint(),
            documents=self._documents and self._documents.checkpoint(),
            mask=self._shard_mask and self._shard_mask.checkpoint(),
        )

    def finish(self) -> tuple[tuple[ShardInfo, ...], FileInfo | None]:
        """Finish the last shard and return all shards in order, and the document index."""
        self._finish_shard()
        documents = self._documents
        if documents is None:
            return tuple(self.shards), None
        header = npy_header("uint64", (documents.n_bytes - len(documents.header)) // 8)
        sha256 = documents.finish(header)
        info = FileInfo(file=documents.path.name, n_bytes=documents.n_bytes, sha256=sha256)
        return tuple(self.shards), info

    def close(self) -> None:
        """Close all files and keep partial ones under their temporary names."""
        for file in (self._shard, self._shard_ends, self._shard_mask, self._documents):
            if file is not None:
                file.close()

    def _shard_stop(self, ends: NDArray[np.uint64]) -> int | None:
        """Return the token at which the current shard ends; None if no document in `ends` ends it."""
        full = self._shard_start + self._shard_tokens
        if not self._layout.whole_documents:
            return full
        index = int(np.searchsorted(ends, full))
        return int(ends[index]) if index < len(ends) else None

    def _append_ids(self, ids: NDArray[Any]) -> None:
        if self._shard is None:
            path, header = self._next_shard()
            self._shard = HashedFile(path, header)
            if self._layout.sidecar_suffixes:
                self._shard_ends = HashedFile(self._folder / _ends_name(len(self.shards)), b"")
            if self._has_masks:
                self._shard_mask = HashedFile(self._folder / _mask_name(len(self.shards)), b"")
        if self._shard_mask is not None:
            self._shard_mask.append(_as_bytes(ids >= TARGET, np.uint8))
            ids = ids & (TARGET - 1)
        self._shard.append(_as_bytes(ids, self._item))
        self.n_tokens += len(ids)

    def _append_ends(self, ends: NDArray[np.uint64], stop: int) -> NDArray[np.uint64]:
        """Append the ends up to `stop` to those of the current shard, and return the others."""
        n_within = int(np.searchsorted(ends, stop, side="right"))
        if n_within and self._shard_ends is not None:
            self._shard_ends.append(_as_bytes(ends[:n_within], "<u8"))
        return ends[n_within:]

    def _finish_shard(self) -> None:
        shard = self._shard
        if shard is None:
            return
        n_tokens = self.n_tokens - self._shard_start
        # Sidecar files first: a shard under its final name is complete.
        sidecars = (
            [] if self._shard_ends is None else self._write_sidecars(shard.path, self._shard_ends, n_tokens)
        )
        if self._shard_mask is not None:
            bits = np.packbits(np.frombuffer(self._shard_mask.content(), np.uint8), bitorder="little")
            self._shard_mask.close()
            sidecars.append(self._write_sidecar(shard.path, MASK_SUFFIX, bits.tobytes()))
        sha256 = shard.finish(self._layout.header(self._dtype, n_tokens))
        info = ShardInfo(
            file=shard.path.name,
            n_tokens=n_tokens,
            n_bytes=shard.n_bytes,
            sha256=sha256,
            sidecars=tuple(sidecars),
        )
        self.shards.append(info)
        self._shard_start = self.n_tokens
        self._shard = self._shard_ends = self._shard_mask = None
        if self._finished is not None:
            self._finished(info)

    def _write_sidecars(self, shard: Path, ends_file: HashedFile, n_tokens: int) -> list[FileInfo]:
        ends = np.frombuffer(ends_file.content(), "<u8").astype(np.uint64) - np.uint64(self._shard_start)
        ends_file.close()
        if not len(ends) or int(ends[-1]) != n_tokens:
            ends = np.append(ends, np.uint64(n_tokens))
        return [
            self._write_sidecar(shard, suffix, content)
            for suffix, content in self._layout.sidecars(self._dtype, ends, self._fingerprint)
        ]

    def _write_sidecar(self, shard: Path, suffix: str, content: bytes) -> FileInfo:
        name = shard.name.removesuffix(self._layout.suffix) + suffix
        write_bytes(self._folder / name, content)
        return FileInfo(file=name, n_bytes=len(content), sha256=hashlib.sha256(content).hexdigest())

    def _resume(self, state: WriterState) -> None:
        """Open the files of another writer and remove what it wrote after `state`."""
        self.n_tokens = state.n_tokens
        self.shards = list(state.shards)
        self._shard_start = sum(shard.n_tokens for shard in self.shards)
        if state.shard is not None:
            self._shard = HashedFile(*self._next_shard(), n_bytes=state.shard.n_bytes)
        if state.ends is not None:
            self._shard_ends = HashedFile(
                self._folder / _ends_name(len(self.shards)), b"", n_bytes=state.ends.n_bytes
            )
        if state.mask is not None:
            self._shard_mask = HashedFile(
                self._folder / _mask_name(len(self.shards)), b"", n_bytes=state.mask.n_bytes
            )
        if state.documents is not None:
            self._documents = HashedFile(*self._index(), n_bytes=state.documents.n_bytes)
        kept = {info.file for shard in self.shards for info in (shard, *shard.sidecars)}
        for name in [*shard_files(self._folder), *sidecar_files(self._folder)]:
            if name not in kept and not is_documents_name(name):
                (self._folder / name).unlink()

    def _next_shard(self) -> tuple[Path, bytes]:
        """Return the path and the provisional header of the shard after the finished ones."""
        name = shard_name(len(self.shards), self._layout.suffix, self._tag)
        return self._folder / name, self._layout.header(self._dtype, self._shard_tokens)

    def _index(self) -> tuple[Path, bytes]:
        """Return the path and the provisional header of the document index."""
        return self._folder / documents_name(self._tag), npy_header("uint64", 0)


def _as_bytes(items: NDArray[Any], dtype: Any) -> memoryview:
    return np.ascontiguousarray(items, dtype=dtype).data.cast("B")


def resume_problem(
    folder: Path,
    layout: Layout,
    dtype: Dtype,
    shard_tokens: int,
    state: WriterState,
    *,
    tag: str = "",
    is_uploaded: bool = False,
) -> str | None:
    """Return how the files of an interrupted writer contradict its last checkpoint, or None.

    Args:
        folder: The output folder.
        layout: As for `ShardWriter`, like the next two and the tag.
        dtype: Type of the ids in the files.
        shard_tokens: Ids per shard.
        state: The checkpoint.
        tag: Tag in the names of the files.
        is_uploaded: Finished files may be gone, since they are uploaded and removed.
    """
    number = len(state.shards)
    for info in (info for shard in state.shards for info in (shard, *shard.sidecars)):
        is_gone = is_uploaded and not (folder / info.file).exists()
        if not is_gone and (problem := file_problem(folder, info)):
            return problem
    partial = (
        (shard_name(number, layout.suffix, tag), layout.header(dtype, shard_tokens), state.shard),
        (_ends_name(number), b"", state.ends),
        (_mask_name(number), b"", state.mask),
        (documents_name(tag), npy_header("uint64", 0), state.documents),
    )
    problems = (
        partial_problem(folder / name, header, info) for name, header, info in partial if info is not None
    )
    return next(filter(None, problems), None)


def _ends_name(index: int) -> str:
    return f"{shard_name(index, '')}.ends"


def _mask_name(index: int) -> str:
    return f"{shard_name(index, '')}.targets"


_READ_BYTES = 1 << 20


class HashedFile(PartialFile):
    """A `PartialFile` that begins with a header of fixed size.

    The provisional header is hashed as it is written. If `finish` replaces it with another one, the file is read again.

    Args:
        path: The file to create or replace.
        header: Provisional header; empty for files without one.
        n_bytes: Bytes to keep of the file that an earlier process left, header included.
    """

    def __init__(self, path: Path, header: bytes, *, n_bytes: int = 0) -> None:
        super().__init__(path, n_bytes=n_bytes)
        self.header = header
        self._sha256 = hashlib.sha256()
        try:
            if n_bytes:
                # The earlier process may have finished the file with its final header.
                self._write_at(0, header)
                self._hash_again()
            else:
                self.append(header)
        except BaseException:
            self.close()
            raise

    def append(self, data: bytes | memoryview) -> None:
        """Append all of `data`."""
        super().append(data)
        self._sha256.update(data)

    def checkpoint(self) -> PartialInfo:
        """Sync the file and return what it holds so far."""
        self.sync()
        return PartialInfo(n_bytes=self.n_bytes, sha256=self._sha256.hexdigest())

    def content(self) -> bytes:
        """Return everything after the header."""
        with output_errors(self.path):
            self._file.seek(len(self.header))
            return self._file.readall()

    def finish(self, header: bytes) -> str:
        """Replace the header, publish the file and return its sha256."""
        if len(header) != len(self.header):
            raise OutputError(
                f"cannot write {self.path}: the header has {len(header)} bytes, not {len(self.header)}"
            )
        if header != self.header:
            self._write_at(0, header)
            self._hash_again()
        self.commit()
        return self._sha256.hexdigest()

    def _hash_again(self) -> None:
        self._sha256 = hashlib.sha256()
        with output_errors(self.path):
            self._file.seek(0)
            while block := self._file.read(_READ_BYTES):
                self._sha256.update(block)


def partial_problem(path: Path, header: bytes, info: PartialInfo) -> str | None:
    """Return how a file that an earlier process left unfinished contradicts a checkpoint, or None.

    Args:
        path: Its final name, which it may have already.
        header: The provisional header, which counts instead of the one in the file.
        info: What the file held.
    """
    file_path = path if path.exists() else path.with_name(partial_name(path.name))
    sha256, n_bytes = hashlib.sha256(header), len(header)
    try:
        with file_path.open("rb") as file:
            if (n_found := os.fstat(file.fileno()).st_size) < info.n_bytes:
                return f"{file_path.name} has {n_found:,} bytes of {info.n_bytes:,}"
            file.seek(n_bytes)
            while block := file.read(min(_READ_BYTES, info.n_bytes - n_bytes)):
                sha256.update(block)
                n_bytes += len(block)
    except OSError as error:
        return f"{file_path.name} cannot be read: {error.strerror or error}"
    return None if sha256.hexdigest() == info.sha256 else f"{file_path.name} has other content than it had"
