"""Documents on their way from where they come from to who counts or encodes them: packed, in batches."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Generator

    import numpy as np
    from numpy.typing import NDArray

BATCH_BYTES = 4 << 20
"""Text that a batch holds, about; a longer document takes several batches. Batches are the same in every run."""


@dataclass(frozen=True)
class CorpusCounts:
    """What reading came across up to some place."""

    n_documents: int = 0
    """Documents given, empty ones too."""
    n_bytes: int = 0
    """Bytes of their text, in UTF-8, as given."""
    n_replaced: int = 0
    """Malformed sequences that were read as U+FFFD (`encoding_errors="replace"`)."""
    n_skipped_bytes: int = 0
    """Bytes of malformed sequences that were left out (`encoding_errors="skip"`)."""
    n_broken: int = 0
    """Documents that were left out because they are broken (`on_error="skip"`)."""


@dataclass(frozen=True)
class Position:
    """A place between two batches, from which reading can go on in another process.

    Whoever keeps one looks at nothing but `source` and `counts`; `state` is the reader's own.
    """

    source: int = 0
    """Number of the source that is being read; all before it are finished."""
    state: dict[str, Any] = field(default_factory=dict[str, Any])
    """Where in it: values that JSON can hold."""
    counts: CorpusCounts = CorpusCounts()
    """What was given so far."""


@dataclass(frozen=True)
class DocumentBatch:
    """Some documents of one source, one after another."""

    data: bytes | memoryview
    """Their text: valid UTF-8."""
    ends: NDArray[np.int64]
    """Where each document ends in `data`, ascending; shape (n_documents,), the last is `len(data)`."""
    is_open: bool
    """True where the last document goes on in the next batch (of the same source); cut at a character."""
    source: int
    """Number of the source."""
    n_bytes_read: int
    """Bytes read so far of all that `DocumentSource.total_bytes` counts."""
    after: Position
    """The place behind this batch."""


class DocumentSource(Protocol):
    """Where documents come from: a corpus, or the shards of another tokenizer."""

    @property
    def total_bytes(self) -> int | None:
        """Bytes that are to be read in all, None where nobody knows."""
        ...

    @property
    def source_names(self) -> list[str]:
        """The sources, by their numbers."""
        ...

    @property
    def description(self) -> dict[str, Any]:
        """What decides the documents (names, sizes, times, options), as JSON can hold it: equal before and after an
        interruption, or the work cannot go on."""
        ...

    @property
    def can_resume(self) -> bool:
        """False where the same documents may not come again: standard input, iterables."""
        ...

    def read(self, start: Position | None = None) -> Generator[DocumentBatch]:
        """The batches from `start` on, the same in every run. Raises `CorpusError`."""
        ...
