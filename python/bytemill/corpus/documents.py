"""Packed batches of documents, and positions between them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from bytemill.system.records import Count, Flag, Record

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    import numpy as np
    from numpy.typing import NDArray

BATCH_BYTES = 4 << 20
"""Approximate size of a batch; a longer document spans several batches. Batches are the same in every run."""


@dataclass(frozen=True)
class CorpusCounts:
    """Counts of what was read up to a position."""

    n_documents: Count = 0
    """Documents yielded, including empty ones."""
    n_bytes: Count = 0
    """UTF-8 bytes of their text."""
    n_replaced: Count = 0
    """Malformed sequences read as U+FFFD (`errors="replace"`)."""
    n_skipped_bytes: Count = 0
    """Bytes of malformed sequences left out (`errors="skip"`)."""
    n_broken: Count = 0
    """Broken documents left out (`on_error="skip"`)."""
    n_byte_order_marks: Count = 0
    """UTF-8 byte-order marks dropped from the beginning of files."""


@dataclass(frozen=True)
class Position:
    """A position between two batches, from which another process can resume reading.

    Callers that store one use only `source` and `counts`; `state` belongs to the reader.
    """

    source: int = 0
    """Number of the current source; all sources before it are finished."""
    state: dict[str, Any] = field(default_factory=dict[str, Any])
    """Position within the source; JSON values."""
    counts: CorpusCounts = CorpusCounts()
    """Counts up to here."""


@dataclass(frozen=True, kw_only=True)
class CorpusRange(Record):
    """A part of a corpus: from a place in one source to a place in the same or a later one."""

    first: Count
    """Number of the source in which it starts."""
    start: Count = 0
    """Where in that source: a byte, or a row of a Parquet file."""
    by_rows: Flag = False
    """Whether `start` is a row."""
    starts_inside: Flag = False
    """Whether it starts inside a document."""
    last: Count
    """Number of the source in which it ends."""
    stop: Count | None = None
    """Where in that source; None for its end."""
    ends_inside: Flag = False
    """Whether it ends inside a document."""
    n_bytes: Count
    """Its size in bytes of the files."""

    @property
    def position(self) -> Position:
        """Where reading starts."""
        if not self.start:
            return Position(self.first)
        reader = {"row" if self.by_rows else "offset": self.start}
        if not self.starts_inside:
            return Position(self.first, {"reader": reader})
        return Position(self.first, {"reader": {**reader, "inside": True}, "is_open": True})


@dataclass(frozen=True)
class DocumentBatch:
    """Consecutive documents, of one source if `sources` is None."""

    data: bytes | memoryview
    """Their text: valid UTF-8."""
    ends: NDArray[np.int64]
    """End of each document in `data`, ascending, shape (n_documents,); the last is `len(data)`."""
    is_open: bool
    """True if the last document continues in the next batch of the same source; cut between characters."""
    source: int
    """Number of the source of the last document."""
    n_bytes_read: int
    """Bytes read so far, out of `DocumentSource.total_bytes`."""
    after: Position
    """The position after this batch."""
    sources: NDArray[np.int64] | None = None
    """Number of the source of each document, shape (n_documents,), if they may differ."""

    def runs(self) -> Iterator[tuple[int, bytes | memoryview, NDArray[np.int64], bool]]:
        """Yield consecutive documents of one source: its number, their text, its ends, and whether the last is open."""
        import numpy as np

        if self.sources is None or (self.sources == self.source).all():
            yield self.source, self.data, self.ends, self.is_open
            return
        data, start, first = memoryview(self.data), 0, 0
        for stop in [*(np.flatnonzero(np.diff(self.sources)) + 1).tolist(), len(self.ends)]:
            end = int(self.ends[stop - 1])
            is_open = self.is_open and stop == len(self.ends)
            yield int(self.sources[first]), data[start:end], self.ends[first:stop] - start, is_open
            start, first = end, stop


class DocumentSource(Protocol):
    """A source of documents: a corpus, or shards of another tokenizer."""

    @property
    def total_bytes(self) -> int | None:
        """Bytes to read in total; None if unknown."""
        ...

    @property
    def source_names(self) -> list[str]:
        """Names of the sources, by number."""
        ...

    @property
    def description(self) -> dict[str, Any]:
        """What determines the documents (names, sizes, modification times, options), as JSON values.

        Work can only be resumed if it is equal before and after the interruption.
        """
        ...

    @property
    def can_resume(self) -> bool:
        """False if a second read may yield other documents: standard input, iterators."""
        ...

    def read(self, start: Position | None = None) -> Generator[DocumentBatch]:
        """Yield the batches from `start` on, the same in every run. Raises `CorpusError`."""
        ...
