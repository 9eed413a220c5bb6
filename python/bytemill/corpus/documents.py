"""What passes from readers through a corpus: chunks of a source, packed batches of documents, and positions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from bytemill._core import check_documents
from bytemill.corpus.options import SKIP_HINT
from bytemill.errors import CorpusError
from bytemill.system.records import Count, Flag, Record

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Generator, Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from bytemill._core import BlockDocuments
    from bytemill.corpus.options import CorpusOptions


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


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive documents of one source, before selection."""

    data: bytes
    """Valid UTF-8."""
    ends: NDArray[np.int64]
    """End of each document in `data`, shape (n_documents,)."""
    is_open: bool
    """True if the last document continues in the next chunk."""
    n_bytes_read: int
    """Bytes of the source read so far, in the unit of its size (compressed bytes of compressed files)."""
    after: dict[str, Any]
    """State from which the next chunk can be read; JSON values."""
    n_replaced: int = 0
    n_skipped_bytes: int = 0
    n_broken: int = 0
    n_byte_order_marks: int = 0
    error: CorpusError | None = None
    """Error that ends reading after these documents."""

    @classmethod
    def of(
        cls,
        documents: BlockDocuments,
        n_bytes_read: int,
        after: dict[str, Any],
        error: CorpusError | None = None,
        *,
        n_byte_order_marks: int = 0,
    ) -> Chunk:
        """Make a chunk of the documents of a block."""
        return cls(
            documents.text,
            documents.ends,
            documents.is_open,
            n_bytes_read,
            after,
            documents.n_replaced,
            documents.n_skipped_bytes,
            documents.n_broken if error is None else 0,
            n_byte_order_marks,
            error,
        )

    @classmethod
    def of_texts(
        cls,
        texts: Sequence[bytes],
        options: CorpusOptions,
        n_bytes_read: int,
        after: dict[str, Any],
        name_of: Callable[[int], str],
    ) -> Chunk:
        """Make a chunk of documents, checked to be UTF-8.

        Args:
            texts: The documents.
            options: Options of the corpus, which decide about malformed UTF-8.
            n_bytes_read: Bytes of the source read so far.
            after: State from which the next chunk can be read.
            name_of: Returns the name of a document, by its index in `texts`, for the error message.
        """
        import numpy as np

        ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
        return cls.checked(
            b"".join(texts), ends, options=options, n_bytes_read=n_bytes_read, after=after, name_of=name_of
        )

    @classmethod
    def checked(
        cls,
        data: bytes,
        ends: NDArray[np.int64],
        *,
        options: CorpusOptions,
        n_bytes_read: int,
        after: dict[str, Any],
        name_of: Callable[[int], str],
        missing: NDArray[np.bool_] | None = None,
        missing_message: str = "",
    ) -> Chunk:
        """Make a chunk of packed documents, checked to be UTF-8.

        Args:
            data: Their bytes.
            ends: End of each document in `data`.
            options: As in `of_texts`, also below.
            n_bytes_read: As in `of_texts`.
            after: As in `of_texts`.
            name_of: As in `of_texts`.
            missing: Mask of the documents that are missing.
            missing_message: What to report of a missing document.
        """
        documents = check_documents(data, ends, missing, options.errors, options.on_error == "skip")
        error = None
        if documents.broken is not None:
            number, offset, _ = documents.broken
            problem = f"byte offset {offset} of the text is not valid UTF-8"
            problem = missing_message if offset is None else problem
            error = CorpusError(f"{name_of(number)}: {problem}", hint=SKIP_HINT)
        return cls.of(documents, n_bytes_read, after, error)

    @classmethod
    def broken(cls, n_bytes_read: int, after: dict[str, Any]) -> Chunk:
        """Make a chunk of one broken document that is left out."""
        import numpy as np

        return cls(b"", np.empty(0, np.int64), False, n_bytes_read, after, n_broken=1)


class Reader(Protocol):
    """A source of a corpus."""

    @property
    def name(self) -> str:
        """Name in error messages."""
        ...

    @property
    def n_bytes(self) -> int | None:
        """Size in bytes; None if unknown before reading."""
        ...

    @property
    def is_rereadable(self) -> bool:
        """True if a second read yields the same documents."""
        ...

    @property
    def runs_user_code(self) -> bool:
        """True if reading runs the caller's code, which has to stay in the caller's thread."""
        ...

    def is_one_document(self) -> bool:
        """Check whether the source is one document; False if that is unknown before reading."""
        ...

    def describe(self) -> Any:
        """Return what determines the documents, as JSON values."""
        ...

    def read(self, state: dict[str, Any], stop: threading.Event) -> Generator[Chunk]:
        """Yield the chunks from `state` on ({}: from the beginning), the same in every run.

        Args:
            state: `Chunk.after` of an earlier chunk.
            stop: Ends reading soon after it is set, also while waiting for input.

        Raises:
            CorpusError: The source cannot be read.
        """
        ...
