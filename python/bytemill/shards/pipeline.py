"""Reading, encoding and writing at the same time, with a note now and then of how far all three have come.

This thread takes batches of documents from the corpus, which reads ahead, and has them encoded by the threads of the
core; another one hashes and writes what comes of it.
"""

from __future__ import annotations

import dataclasses
import time
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bytemill.corpus import CorpusCounts, Position
from bytemill.errors import SpecialTokenError
from bytemill.profiling import add, phase
from bytemill.shards.journal import Checkpoint, write_journal
from bytemill.shards.writer_thread import Background

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from pathlib import Path

    from bytemill._core import DocumentEncoder
    from bytemill.corpus import DocumentBatch, DocumentSource
    from bytemill.shards.shard_writer import ShardWriter

_GROUP_BYTES = 4 << 20
"""Text that is encoded at a time, at least: enough to keep some threads busy."""
_MOST_BATCHES = 4096
_WAITING = 3
"""Groups that may wait to be written."""
_CHECKPOINT_SECONDS = 10.0


@dataclass(frozen=True)
class EncodeProgress:
    """How far the encoding of a corpus has come."""

    source: str
    """Name of the source that is being read."""
    n_bytes: int
    """Bytes read so far, of all sources, by an interrupted run that this one goes on with too."""
    total_bytes: int | None
    """Bytes of all sources; None where one of them is a stream of unknown size."""
    n_tokens: int
    n_shards: int
    """Shards that stand under their names."""
    already_complete: bool = False
    """True where the folder held the result before, and nothing was done."""
    n_bytes_before: int = 0
    """Bytes read by the interrupted run that this one resumes."""
    n_tokens_before: int = 0
    """Tokens written by the interrupted run that this one resumes."""


@dataclass
class PartCounts:
    """What was encoded of a part of the corpus."""

    source_bytes: list[int] = field(default_factory=list[int])
    """Bytes of text, by sources, as far as they have been read."""
    n_documents: int = 0
    """Documents that have tokens."""
    n_empty: int = 0
    """Documents that have none."""

    def add_bytes(self, source: int, n_bytes: int) -> None:
        """Text of this source."""
        self.source_bytes.extend([0] * (source + 1 - len(self.source_bytes)))
        self.source_bytes[source] += n_bytes


class Encoding:
    """The encoding of a corpus to the shards of each of its parts, from the beginning or from a checkpoint."""

    def __init__(
        self,
        folder: Path,
        source: DocumentSource,
        identity: dict[str, Any],
        checkpoint: Checkpoint | None,
        *,
        checkpoint_bytes: int,
        progress: Callable[[EncodeProgress], None] | None,
    ) -> None:
        self.parts: list[PartCounts] = []
        self._folder = folder
        self._source = source
        self._identity = identity
        self._checkpoint = checkpoint
        self._checkpoint_bytes = checkpoint_bytes
        self._progress = progress
        self._position = checkpoint.position if checkpoint else Position()
        self._n_bytes_read = checkpoint.n_bytes_read if checkpoint else 0
        shards = checkpoint.shards if checkpoint else []
        self._n_tokens = self._n_tokens_before = sum(int(state["n_tokens"]) for state in shards)

    @property
    def counts(self) -> CorpusCounts:
        """What reading has come across."""
        return self._position.counts

    def run(self, encoder: DocumentEncoder, writers: list[ShardWriter]) -> None:
        """Encode all that is left of the corpus; `writers` has one for each part."""
        if self._checkpoint is not None:
            encoder.go_on(self._checkpoint.carry)
            self.parts = [PartCounts(**counts) for counts in self._checkpoint.parts]
        else:
            self.parts = [PartCounts() for _ in writers]

        def write(item: list[Any] | Checkpoint) -> None:
            with phase("write"):
                if isinstance(item, Checkpoint):
                    shards = [writer.checkpoint() for writer in writers]
                    write_journal(self._folder, self._identity, dataclasses.replace(item, shards=shards))
                else:
                    for writer, (pieces, ends) in zip(writers, item, strict=True):
                        writer.append(pieces, ends)

        start = self._position if self._checkpoint else None
        n_bytes_noted, noted_at = 0, time.monotonic()
        with (
            closing(self._source.read(start)) as batches,
            Background(write, _WAITING, "write shards") as background,
        ):
            for group in _groups(batches):
                background.put(self._encode(encoder, group, len(writers)))
                n_bytes_noted += sum(len(batch.data) for batch in group)
                is_due = (
                    n_bytes_noted >= self._checkpoint_bytes
                    or time.monotonic() - noted_at >= _CHECKPOINT_SECONDS
                )
                if is_due and self._source.can_resume:
                    background.put(self._note(encoder))
                    n_bytes_noted, noted_at = 0, time.monotonic()
                self._report(self._source.source_names[group[-1].source], writers)
            background.finish()

    def report_end(self, writers: list[ShardWriter]) -> None:
        """Tell that all is done."""
        self._report(self._source.source_names[-1], writers)

    def _encode(self, encoder: DocumentEncoder, group: list[DocumentBatch], n_parts: int) -> list[Any]:
        """What a group of batches gives for each part: pieces of ids, ends of documents."""
        try:
            with phase("encode"):
                sides = encoder.encode([(batch.data, batch.ends, batch.is_open) for batch in group])
        except SpecialTokenError as error:
            names = dict.fromkeys(self._source.source_names[batch.source] for batch in group)
            raise SpecialTokenError(
                f"{' or '.join(names)}: {error} of a document", hint=error.hint
            ) from error
        taken: list[Any] = []
        n_tokens_before = self._n_tokens
        for counts, (pieces, ends, n_bytes, n_empty) in zip(self.parts, sides[:n_parts], strict=True):
            for batch, n_of_batch in zip(group, n_bytes, strict=True):
                counts.add_bytes(batch.source, n_of_batch)
            counts.n_documents += len(ends)
            counts.n_empty += n_empty
            self._n_tokens += sum(map(len, pieces))
            taken.append((pieces, ends))
        n_text_bytes = sum(len(batch.data) for batch in group)
        add("encode", n_bytes=n_text_bytes, n_tokens=self._n_tokens - n_tokens_before)
        self._position, self._n_bytes_read = group[-1].after, group[-1].n_bytes_read
        return taken

    def _note(self, encoder: DocumentEncoder) -> Checkpoint:
        parts = [dataclasses.asdict(part) for part in self.parts]
        return Checkpoint(self._position, self._n_bytes_read, encoder.carry(), parts, [])

    def _report(self, source: str, writers: list[ShardWriter]) -> None:
        if self._progress:
            self._progress(
                EncodeProgress(
                    source,
                    self._n_bytes_read,
                    self._source.total_bytes,
                    self._n_tokens,
                    sum(len(writer.shards) for writer in writers),
                    n_bytes_before=self._checkpoint.n_bytes_read if self._checkpoint else 0,
                    n_tokens_before=self._n_tokens_before,
                )
            )


def _groups(batches: Generator[DocumentBatch]) -> Iterator[list[DocumentBatch]]:
    """Batches that are encoded together: many small ones, one large one."""
    group: list[DocumentBatch] = []
    n_bytes = 0
    while True:
        with phase("read"):
            batch = next(batches, None)
        if batch is not None:
            group.append(batch)
            n_bytes += len(batch.data)
        if group and (batch is None or n_bytes >= _GROUP_BYTES or len(group) >= _MOST_BATCHES):
            yield group
            group, n_bytes = [], 0
        if batch is None:
            return
