"""Documents in random order, in bounded memory.

The order is that of a hash of each document's number, so the seed alone determines it. A first pass distributes the
documents over files by the upper bits of their hashes. Each file is then sorted by itself: an external bucket sort.
"""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bytemill.corpus import documents as settings
from bytemill.corpus.documents import CorpusCounts, DocumentBatch, Position
from bytemill.corpus.selection import hashes
from bytemill.errors import OutputError
from bytemill.system.atomic_files import make_folder, output_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from pathlib import Path
    from typing import Self

    from numpy.typing import NDArray

    from bytemill.corpus.documents import DocumentSource

_ROW = np.dtype([("number", "<u8"), ("source", "<u4"), ("n_bytes", "<u8")])
_STREAM = -1
"""The streams of a `Selection` are not negative, so a sample with the same seed is independent of the order."""
_BUCKET_BYTES = 64 << 20
_UNKNOWN_BYTES = 16 << 30
"""Assumed size of a source of unknown size."""
_MAX_BUCKETS = 4096
_BUFFER_BYTES = 64 << 20
"""Text of all buckets that waits to be written."""
_MAX_LOADED_BYTES = 256 << 20
"""Largest bucket that is read as a whole; from a larger one, documents are read one at a time."""


@contextlib.contextmanager
def shuffled(
    source: DocumentSource,
    seed: int,
    folder: Path,
    progress: Callable[[DocumentBatch], None] | None = None,
) -> Generator[DocumentSource]:
    """Provide the documents of a source in random order inside the block.

    Document i (from 0) precedes document j if hash(seed, i) < hash(seed, j), whatever the size of the source, the
    machine and the memory.

    Args:
        source: The source, which is read once, when the block is entered.
        seed: Seed of the order.
        folder: Folder that holds all text inside the block. It must not be of any other use: it is replaced, and
            removed at the end of the block.
        progress: Called with each batch of that pass. An exception that it raises ends it.

    Raises:
        CorpusError: As the source's `read`.
        OutputError: The folder cannot be written.
    """
    shutil.rmtree(folder, ignore_errors=True)
    make_folder(folder)
    try:
        buckets = _Buckets(folder, seed, _n_bits(source.total_bytes))
        with contextlib.closing(source.read()) as batches:
            for batch in batches:
                buckets.add(batch)
                if progress is not None:
                    progress(batch)
        buckets.flush()
        yield _Shuffled(source, buckets)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _n_bits(n_bytes: int | None) -> int:
    """Return the bits that number the buckets of a source.

    >>> _n_bits(0), _n_bits(65 << 20), _n_bits(1 << 60)
    (0, 1, 12)
    """
    n_buckets = (_UNKNOWN_BYTES if n_bytes is None else n_bytes) // _BUCKET_BYTES + 1
    return min(n_buckets, _MAX_BUCKETS).bit_length() - 1


class _Buckets:
    """Files of documents, by the upper bits of their hashes; each has the documents in the order of the source."""

    def __init__(self, folder: Path, seed: int, n_bits: int) -> None:
        self._folder = folder
        self._seed = seed
        self._n_bits = n_bits
        n_buckets = 1 << n_bits
        self.n_documents = [0] * n_buckets
        self.counts = CorpusCounts()
        """Counts of the source."""
        self._n_done = 0
        """Documents that are complete."""
        self._n_open_bytes = 0
        """Bytes so far of the next document."""
        self._text = [bytearray() for _ in range(n_buckets)]
        self._rows = [bytearray() for _ in range(n_buckets)]
        self._n_buffered = 0

    def add(self, batch: DocumentBatch) -> None:
        """Add the next batch of the source."""
        self.counts = batch.after.counts
        n, n_complete = len(batch.ends), len(batch.ends) - batch.is_open
        if not n:
            return
        rows = np.zeros(n, _ROW)
        rows["number"] = np.arange(self._n_done, self._n_done + n)
        rows["source"] = batch.source
        rows["n_bytes"] = np.diff(batch.ends, prepend=0)
        rows["n_bytes"][0] += self._n_open_bytes
        data, packed, start = memoryview(batch.data), memoryview(rows.tobytes()), 0
        buckets = self._bucket_of(rows["number"]).tolist()
        for number, (bucket, end) in enumerate(zip(buckets, batch.ends.tolist(), strict=True)):
            self._text[bucket] += data[start:end]
            start = end
            if number < n_complete:
                self._rows[bucket] += packed[number * _ROW.itemsize : (number + 1) * _ROW.itemsize]
                self.n_documents[bucket] += 1
        self._n_open_bytes = int(rows["n_bytes"][-1]) if batch.is_open else 0
        self._n_done += n_complete
        self._n_buffered += len(data) + rows.nbytes
        if self._n_buffered >= _BUFFER_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what is buffered."""
        for buffers, suffix in ((self._text, "text"), (self._rows, "rows")):
            for bucket, buffer in enumerate(buffers):
                if buffer:
                    path = self._path(bucket, suffix)
                    with output_errors(path), path.open("ab") as file:
                        file.write(buffer)
                    buffer.clear()
        self._n_buffered = 0

    def parts(self, bucket: int, n_skipped: int, n_bytes: int) -> Generator[_Part]:
        """Yield the documents of a bucket in their final order.

        Args:
            bucket: The bucket, which has documents.
            n_skipped: Documents at its beginning to leave out.
            n_bytes: Bytes at the beginning of the next one to leave out.
        """
        path = self._path(bucket, "rows")
        with output_errors(path):
            rows = np.fromfile(path, _ROW)
        sizes = rows["n_bytes"].astype(np.int64)
        stops = np.cumsum(sizes)
        order = np.lexsort((rows["number"], self._hashes(rows["number"])))[n_skipped:]
        sources, sizes, stops = rows["source"][order].astype(np.int64), sizes[order], stops[order]
        with _Text(self._path(bucket, "text")) as text:
            for first, last in _groups(sizes.tolist()):
                if first == last:
                    start, stop = int(stops[first] - sizes[first]), int(stops[first])
                    yield from text.document(int(sources[first]), start, stop, n_bytes)
                else:
                    of_group = slice(first, last + 1)
                    starts = (stops[of_group] - sizes[of_group]).tolist()
                    spans = zip(starts, stops[of_group].tolist(), strict=True)
                    data = b"".join([text.read(start, stop) for start, stop in spans])
                    yield _Part(data, np.cumsum(sizes[of_group]), sources[of_group])
                n_bytes = 0

    def _bucket_of(self, numbers: NDArray[np.uint64]) -> NDArray[np.int64]:
        # In two steps: a shift by all 64 bits is undefined.
        return (self._hashes(numbers) >> np.uint64(1) >> np.uint64(63 - self._n_bits)).astype(np.int64)

    def _hashes(self, numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
        return hashes(self._seed, _STREAM, numbers)

    def _path(self, bucket: int, suffix: str) -> Path:
        return self._folder / f"{bucket:04d}.{suffix}"


@dataclass(frozen=True)
class _Part:
    """Documents, or a part of a long one."""

    data: bytes | memoryview
    ends: NDArray[np.int64]
    sources: NDArray[np.int64]
    open_bytes: int = 0
    """Bytes of the document up to here, if it continues in the next part."""


class _Text:
    """The text of a bucket."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> Self:
        with output_errors(self._path):
            self._path.touch()  # all documents may be empty
            self._file = self._path.open("rb")
            self._data = None
            if self._path.stat().st_size <= _MAX_LOADED_BYTES:
                self._data = memoryview(self._file.read())
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read(self, start: int, stop: int) -> bytes | memoryview:
        """Return the bytes from `start` to `stop`."""
        if self._data is not None:
            data = self._data[start:stop]
        else:
            with output_errors(self._path):
                self._file.seek(start)
                data = self._file.read(stop - start)
        if len(data) != stop - start:
            raise OutputError(f"{self._path} has been cut", hint="run the same command again")
        return data

    def document(self, source: int, start: int, stop: int, n_bytes: int) -> Generator[_Part]:
        """Yield the parts of the document from `start` to `stop` without its first bytes."""
        at = start + n_bytes
        while stop - at > settings.BATCH_BYTES:
            data, end = self.read(at, at + settings.BATCH_BYTES + 1), settings.BATCH_BYTES
            while data[end] & 0xC0 == 0x80:  # inside a character
                end -= 1
            at += end
            yield _Part(data[:end], np.array([end]), np.array([source]), at - start)
        yield _Part(self.read(at, stop), np.array([stop - at]), np.array([source]))


def _groups(sizes: list[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last document of each batch; a document that is longer is alone.

    >>> list(_groups([10, 20, 5 << 20, 30]))
    [(0, 1), (2, 2), (3, 3)]
    """
    first = n_bytes = 0
    for number, size in enumerate(sizes):
        if number > first and n_bytes + size > settings.BATCH_BYTES:
            yield first, number - 1
            first, n_bytes = number, 0
        n_bytes += size
    if sizes:
        yield first, len(sizes) - 1


class _Shuffled:
    """The documents of buckets in their final order: a `DocumentSource`."""

    def __init__(self, source: DocumentSource, buckets: _Buckets) -> None:
        self._source = source
        self._buckets = buckets

    @property
    def total_bytes(self) -> int:
        """See `DocumentSource`: bytes of text."""
        return self._buckets.counts.n_bytes

    @property
    def source_names(self) -> list[str]:
        """See `DocumentSource`."""
        return self._source.source_names

    @property
    def description(self) -> dict[str, Any]:
        """See `DocumentSource`. The order is not part of it."""
        return self._source.description

    @property
    def can_resume(self) -> bool:
        """See `DocumentSource`."""
        return self._source.can_resume

    def read(self, start: Position | None = None) -> Generator[DocumentBatch]:
        """See `DocumentSource`. The state of a position is the bytes before it of a document that continues there."""
        begin = start or Position()
        n_skipped, n_bytes = begin.counts.n_documents, int(begin.state.get("byte", 0))
        n_documents, n_bytes_read = n_skipped, begin.counts.n_bytes
        counts = self._buckets.counts
        for bucket, n_of_bucket in enumerate(self._buckets.n_documents):
            if n_skipped < n_of_bucket:
                for part in self._buckets.parts(bucket, n_skipped, n_bytes):
                    is_open = part.open_bytes > 0
                    n_documents += len(part.ends) - is_open
                    n_bytes_read += len(part.data)
                    state = {"byte": part.open_bytes} if is_open else {}
                    counts = replace(counts, n_documents=n_documents, n_bytes=n_bytes_read)
                    yield DocumentBatch(
                        part.data,
                        part.ends,
                        is_open,
                        int(part.sources[-1]),
                        n_bytes_read,
                        Position(0, state, counts),
                        sources=part.sources,
                    )
                n_bytes = 0
            n_skipped = max(0, n_skipped - n_of_bucket)
