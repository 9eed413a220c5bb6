"""Selection of documents: sampling, weights and the size limit; packs chunks of readers into batches."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from bytemill._core import select_documents
from bytemill.corpus import documents as settings
from bytemill.corpus.documents import CorpusCounts, DocumentBatch, Position

if TYPE_CHECKING:
    import threading
    from collections.abc import Generator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from bytemill.corpus.documents import Chunk, Reader

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


@dataclass(frozen=True)
class Selection:
    """Which documents of its readers a corpus yields."""

    readers: Sequence[Reader]
    shares: Sequence[float]
    """How often each document of a reader is yielded: 2.5 is twice, and half of them a third time."""
    sample: float = 1.0
    seed: int = 0
    limit_bytes: int | None = None

    def read(self, start: Position, stop: threading.Event) -> Generator[DocumentBatch]:
        """Yield the batches from `start` on."""
        yield from _Selecting(self, start, stop).batches()

    def chosen(self, number: int, pass_number: int, first: int, n: int) -> NDArray[np.bool_] | None:
        """Return the mask of the documents `first` to `first + n` that are yielded in this pass; None for all.

        Only the document's number in its source, the source's number and the seed decide, not how documents are
        packed or what else is read.
        """
        share = min(1.0, self.shares[number] - pass_number)
        if self.sample >= 1 and share >= 1:
            return None
        keep = _drawn(self.seed, 2 * number, first, n, self.sample)
        return keep & _drawn(self.seed, 2 * number + 1, first, n, share)

    def n_passes(self, number: int) -> int:
        """Return how many times a source is read."""
        return math.ceil(self.shares[number])


def _drawn(seed: int, stream: int, first: int, n: int, share: float) -> NDArray[np.bool_]:
    """Sample a share of the numbers `first` to `first + n` by the hash of each."""
    import numpy as np

    if share >= 1:
        return np.ones(n, np.bool_)
    drawn = hashes(seed, stream, np.arange(first, first + n, dtype=np.uint64))
    return (drawn >> np.uint64(11)) < np.uint64(round(share * (1 << 53)))


def hashes(seed: int, stream: int, numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the splitmix64 (Steele, Lea & Flood 2014) of each number, in the stream of a seed."""
    import numpy as np

    key = _mixed(_mixed(seed & _MASK) ^ (stream * _GOLDEN & _MASK))
    x = (numbers + np.uint64(1)) * np.uint64(_GOLDEN) + np.uint64(key)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _mixed(x: int) -> int:
    x = (x + _GOLDEN) & _MASK
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & _MASK
    return x ^ (x >> 31)


@dataclass
class _SourcePosition:
    """Position within a source; the state of a `Position`."""

    pass_number: int = 0
    reader: dict[str, Any] = field(default_factory=dict[str, Any])
    """The reader's state before the next chunk."""
    document: int = 0
    """Number of the document that starts or continues with that chunk."""
    is_open: bool = False
    """True if it continues."""
    n_yielded: int = 0
    """Selected bytes of that chunk that were already yielded."""

    def position(self, number: int, counts: CorpusCounts) -> Position:
        state = {key: value for key, value in vars(self).items() if value}
        return Position(number, state, counts)


class _Selecting:
    def __init__(self, selection: Selection, start: Position, stop: threading.Event) -> None:
        self._selection = selection
        self._start = start
        self._stop = stop
        self._counts = start.counts
        self._pending: DocumentBatch | None = None
        """A batch is yielded when the next one is ready, because what lies between them (broken documents, the end of
        the source) belongs to its position."""
        self._is_finished = False
        """True once the limit is reached."""

    def batches(self) -> Generator[DocumentBatch]:
        selection, start = self._selection, self._start
        sizes = [reader.n_bytes or 0 for reader in selection.readers]
        passes = [selection.n_passes(number) for number in range(len(sizes))]
        before = sum(size * n for size, n in zip(sizes[: start.source], passes[: start.source], strict=True))
        at = _SourcePosition(**start.state)
        for number in range(start.source, len(sizes)):
            for pass_number in range(at.pass_number, passes[number]):
                yield from self._pass(
                    number, replace(at, pass_number=pass_number), before + pass_number * sizes[number]
                )
                if self._is_finished or self._stop.is_set():
                    break
                at = _SourcePosition(pass_number=pass_number + 1)
                self._move(at.position(number, self._counts), before + (pass_number + 1) * sizes[number])
            if self._is_finished or self._stop.is_set():
                break
            before += passes[number] * sizes[number]
            at = _SourcePosition()
            self._move(Position(number + 1, {}, self._counts), before)
        if self._pending is not None and not self._stop.is_set():
            yield self._pending

    def _pass(self, number: int, at: _SourcePosition, before: int) -> Generator[DocumentBatch]:
        """Yield the batches of one pass over a source."""
        selection = self._selection
        reader = selection.readers[number]
        if self._is_reached() and not at.is_open:
            self._finish()
            return
        if (
            reader.is_one_document()
            and (keep := selection.chosen(number, at.pass_number, 0, 1)) is not None
            and not keep[0]
        ):
            return
        for chunk in reader.read(at.reader, self._stop):
            after = _SourcePosition(
                at.pass_number, chunk.after, at.document + len(chunk.ends) - chunk.is_open, chunk.is_open
            )
            if not at.n_yielded:
                self._count(chunk)
            for batch in self._parts(chunk, number, at, after, before):
                if self._pending is not None:
                    yield self._pending
                self._pending = batch
                if self._is_finished:
                    return
            self._move(after.position(number, self._counts), before + chunk.n_bytes_read)
            if chunk.error is not None:
                if self._pending is not None:
                    yield self._pending
                    self._pending = None
                raise chunk.error
            at = after
            if self._is_reached() and not at.is_open:
                self._finish()
                return

    def _parts(
        self, chunk: Chunk, number: int, at: _SourcePosition, after: _SourcePosition, before: int
    ) -> Generator[DocumentBatch]:
        """Yield the selected part of a chunk as batches."""
        data, ends, is_open = chunk.data, chunk.ends, chunk.is_open
        keep = self._selection.chosen(number, at.pass_number, at.document, len(ends))
        if keep is not None and not keep.all():
            is_open = is_open and bool(keep[-1])
            data, ends = select_documents(data, ends, keep)
        start = at.n_yielded
        ends = ends[ends > start] if start else ends
        while len(ends):
            n, end = _first_part(data, ends, start)
            is_all = n == len(ends) and end == len(data)
            part_is_open = is_open if is_all else bool(ends[n - 1] > end)
            part_ends = ends[:n] - start
            part_ends[-1] = end - start
            next_position = after if is_all else replace(at, n_yielded=end)
            part = data if is_all and not start else data[start:end]
            yield self._batch(
                part, part_ends, part_is_open, number, next_position, before + chunk.n_bytes_read
            )
            if self._is_finished or is_all:
                return
            ends = ends[n - 1 :] if part_is_open else ends[n:]
            start = end

    def _batch(  # noqa: PLR0917
        self,
        data: bytes,
        ends: NDArray[np.int64],
        is_open: bool,
        number: int,
        after: _SourcePosition,
        n_bytes_read: int,
    ) -> DocumentBatch:
        """Make a batch, cut at the limit if it lies inside."""
        limit = self._limited(number, data, ends, is_open)
        if limit is not None:
            n, end = limit
            data, ends, is_open = data[:end], ends[:n].copy(), False
            ends[-1] = end
            self._is_finished = True
        counts = self._counts
        self._counts = replace(
            counts, n_documents=counts.n_documents + len(ends) - is_open, n_bytes=counts.n_bytes + len(data)
        )
        if limit is not None:
            position = Position(len(self._selection.readers), {}, self._counts)
        else:
            position = after.position(number, self._counts)
        return DocumentBatch(data, ends, is_open, number, n_bytes_read, position)

    def _limited(
        self, number: int, data: bytes, ends: NDArray[np.int64], is_open: bool
    ) -> tuple[int, int] | None:
        """Return the number of documents and bytes before the limit; None if it is not reached."""
        if self._selection.limit_bytes is None:
            return None
        remaining = self._selection.limit_bytes - self._counts.n_bytes
        if remaining > len(data):
            return None
        n = int(ends.searchsorted(remaining)) + 1
        if self._selection.readers[number].is_one_document():
            # A file may be many times the limit, so it is cut after the line that reaches it.
            end = data.find(b"\n", max(0, remaining - 1), int(ends[n - 1])) + 1
            if end:
                return n, end
        if n == len(ends) and is_open:
            return None
        return n, int(ends[n - 1])

    def _is_reached(self) -> bool:
        limit = self._selection.limit_bytes
        return limit is not None and self._counts.n_bytes >= limit

    def _finish(self) -> None:
        self._is_finished = True
        if self._pending is not None:
            self._pending = replace(
                self._pending, after=Position(len(self._selection.readers), {}, self._counts)
            )

    def _count(self, chunk: Chunk) -> None:
        counts = self._counts
        self._counts = replace(
            counts,
            n_replaced=counts.n_replaced + chunk.n_replaced,
            n_skipped_bytes=counts.n_skipped_bytes + chunk.n_skipped_bytes,
            n_broken=counts.n_broken + chunk.n_broken,
            n_byte_order_marks=counts.n_byte_order_marks + chunk.n_byte_order_marks,
        )

    def _move(self, position: Position, n_bytes_read: int) -> None:
        """Extend the pending batch up to this position."""
        if self._pending is not None:
            # A source of unknown size counts as 0 bytes when it is finished.
            n_bytes_read = max(n_bytes_read, self._pending.n_bytes_read)
            self._pending = replace(self._pending, after=position, n_bytes_read=n_bytes_read)


def _first_part(data: bytes, ends: NDArray[np.int64], start: int) -> tuple[int, int]:
    """Return the number of documents in the next batch, the last possibly cut, and its end in `data`.

    Takes everything up to the size of two batches.
    """
    if len(data) - start <= 2 * settings.BATCH_BYTES:
        return len(ends), len(data)
    end = start + settings.BATCH_BYTES
    n = int(ends.searchsorted(end, "right"))
    if n:
        return n, int(ends[n - 1])
    while data[end] & 0xC0 == 0x80:  # inside a character
        end -= 1
    return 1, end
