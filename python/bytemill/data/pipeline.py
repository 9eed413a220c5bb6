"""Encoding pipeline: reading, encoding and writing overlap, with regular checkpoints.

A reader thread (in the corpus) reads ahead. This thread passes groups of batches to the encoder, which uses all cores.
A writer thread hashes and writes the ids.
"""

from __future__ import annotations

import contextlib
import copy
import queue
import threading
import time
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from bytemill.corpus import CorpusCounts, Position
from bytemill.corpus.shuffle import shuffled
from bytemill.corpus.sources import empty_corpus
from bytemill.data.unfinished import JOURNAL_NAME, SHUFFLE_NAME, Checkpoint, PartCounts, write_journal
from bytemill.errors import ShardError, SpecialTokenError
from bytemill.profiling import add, phase

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from pathlib import Path
    from types import TracebackType

    from bytemill.corpus import DocumentBatch, DocumentSource
    from bytemill.data.manifest import Manifest, ShardInfo
    from bytemill.data.settings import EncodingJob
    from bytemill.data.shard_writer import ShardWriter
    from bytemill.formats.library import AnyDocumentEncoder


_GROUP_BYTES = 4 << 20
"""Least text to encode at once: enough work for several threads."""
_GROUP_BATCHES = 4096
"""Most batches to encode at once."""
_QUEUE_SIZE = 3
"""Encoded groups that wait to be written."""
_CHECKPOINT_SECONDS = 10.0
_MAX_NAMES = 4
"""Most names of sources in an error."""


@dataclass(frozen=True)
class EncodeProgress:
    """Progress of the encoding of a corpus."""

    source: str
    """Name of the current source."""
    n_bytes: int
    """Bytes of all sources read so far, including those of an interrupted run."""
    total_bytes: int | None
    """Bytes of all sources; None if one is a stream of unknown size."""
    n_tokens: int
    n_shards: int
    """Finished shards."""
    already_complete: bool = False
    """True if the folder already contained the result."""
    n_bytes_before: int = 0
    """Bytes read by the interrupted run that this one resumes."""
    n_tokens_before: int = 0
    """Tokens written by the interrupted run that this one resumes."""
    is_shuffling: bool = False
    """True in the pass that distributes the documents of a shuffled corpus. `n_bytes` and `total_bytes` count the
    sources in this pass, and the text of all documents afterwards."""


class Encoding:
    """Encodes a corpus to one or more parts, from the start or from a checkpoint.

    Args:
        folder: Folder of the journal.
        source: The corpus.
        identity: What must be equal for another run to resume (see `write_journal`).
        checkpoint: Checkpoint of an interrupted run.
        checkpoint_bytes: Bytes of text between checkpoints; there is one every ten seconds too.
        progress: Called in this thread after each group of batches. An exception that it raises stops the encoding.
        saved: Called with each checkpoint that is written, in another thread.
    """

    def __init__(
        self,
        folder: Path,
        source: DocumentSource,
        identity: dict[str, Any],
        checkpoint: Checkpoint | None,
        *,
        checkpoint_bytes: int,
        progress: Callable[[EncodeProgress], None] | None,
        saved: Callable[[Checkpoint], None] | None = None,
    ) -> None:
        self._saved = saved
        self.parts: list[PartCounts] = checkpoint.parts if checkpoint else []
        self._folder = folder
        self._source = source
        self._identity = identity
        self._checkpoint = checkpoint
        self._checkpoint_bytes = checkpoint_bytes
        self._progress = progress
        self._position = checkpoint.position if checkpoint else Position()
        self._n_bytes_read = self._n_bytes_before = checkpoint.n_bytes_read if checkpoint else 0
        self._n_tokens = sum(state.n_tokens for state in checkpoint.writers) if checkpoint else 0
        self._n_tokens_before = self._n_tokens

    @property
    def counts(self) -> CorpusCounts:
        """Counts of what was read."""
        return self._position.counts

    def run(self, encoder: AnyDocumentEncoder, writers: list[ShardWriter]) -> None:
        """Encode the rest of the corpus.

        Args:
            encoder: The encoder, new.
            writers: A writer for each part.
        """
        if self._checkpoint is not None:
            encoder.resume(self._checkpoint.carry)
        else:
            self.parts = [PartCounts() for _ in writers]

        def write(item: list[Any] | Checkpoint) -> None:
            with phase("write"):
                if isinstance(item, Checkpoint):
                    states = [writer.checkpoint() for writer in writers]
                    checkpoint = replace(item, writers=states)
                    write_journal(self._folder, self._identity, checkpoint)
                    if self._saved is not None:
                        self._saved(checkpoint)
                else:
                    for writer, (chunks, ends) in zip(writers, item, strict=True):
                        writer.append(chunks, ends)

        start = self._position if self._checkpoint else None
        n_bytes_since, saved_at = 0, time.monotonic()
        with (
            closing(self._source.read(start)) as batches,
            BackgroundWorker(write, _QUEUE_SIZE, "write shards") as worker,
        ):
            for group in groups(batches):
                worker.put(self._encode(encoder, group, len(writers)))
                n_bytes_since += sum(len(batch.data) for batch in group)
                is_due = (
                    n_bytes_since >= self._checkpoint_bytes
                    or time.monotonic() - saved_at >= _CHECKPOINT_SECONDS
                )
                if is_due and self._source.can_resume:
                    worker.put(self._new_checkpoint(encoder))
                    n_bytes_since, saved_at = 0, time.monotonic()
                self._report(self._source.source_names[group[-1].source], writers)
            worker.finish()

    def report_end(self, writers: list[ShardWriter]) -> None:
        """Report that all shards are finished."""
        self._report(self._source.source_names[-1], writers)

    def _encode(self, encoder: AnyDocumentEncoder, group: list[DocumentBatch], n_parts: int) -> list[Any]:
        """Encode a group of batches and return (chunks of ids, ends of documents) for each part."""
        runs = [run for batch in group for run in batch.runs()]
        try:
            with phase("encode"):
                sides = encoder.encode([(data, ends, is_open) for _, data, ends, is_open in runs])
        except SpecialTokenError as error:
            raise in_sources(error, self._source.source_names, group) from error
        encoded: list[Any] = []
        n_tokens_before = self._n_tokens
        for counts, (chunks, ends, n_bytes, n_empty) in zip(self.parts, sides[:n_parts], strict=True):
            for (source, *_), n_of_run in zip(runs, n_bytes, strict=True):
                counts.add_bytes(source, n_of_run)
            counts.n_documents += len(ends)
            counts.n_empty += n_empty
            self._n_tokens += sum(map(len, chunks))
            encoded.append((chunks, ends))
        n_text_bytes = sum(len(batch.data) for batch in group)
        add("encode", n_bytes=n_text_bytes, n_tokens=self._n_tokens - n_tokens_before)
        self._position, self._n_bytes_read = group[-1].after, group[-1].n_bytes_read
        return encoded

    def _new_checkpoint(self, encoder: AnyDocumentEncoder) -> Checkpoint:
        """Make a checkpoint; the writer thread adds the state of the writers."""
        return Checkpoint(
            position=self._position,
            n_bytes_read=self._n_bytes_read,
            carry=encoder.carry(),
            parts=[copy.deepcopy(part) for part in self.parts],
        )

    def _report(self, source: str, writers: list[ShardWriter]) -> None:
        if self._progress:
            self._progress(
                EncodeProgress(
                    source,
                    self._n_bytes_read,
                    self._source.total_bytes,
                    self._n_tokens,
                    sum(len(writer.shards) for writer in writers),
                    n_bytes_before=self._n_bytes_before,
                    n_tokens_before=self._n_tokens_before,
                )
            )


def in_sources(
    error: SpecialTokenError, source_names: Sequence[str], group: Sequence[DocumentBatch]
) -> SpecialTokenError:
    """Return an error of the encoder with the names of the sources of a group of batches."""
    names = list(dict.fromkeys(source_names[source] for batch in group for source, *_ in batch.runs()))
    which = (
        " or ".join(names) if len(names) <= _MAX_NAMES else f"one of {names[0]} and {len(names) - 1:,} others"
    )
    return SpecialTokenError(f"{which}: {error} of a document", hint=error.hint)


def groups(batches: Generator[DocumentBatch]) -> Iterator[list[DocumentBatch]]:
    """Yield groups of batches to encode at once: many small ones, or one large one."""
    group: list[DocumentBatch] = []
    n_bytes = 0
    while True:
        with phase("read"):
            batch = next(batches, None)
        if batch is not None:
            group.append(batch)
            n_bytes += len(batch.data)
        if group and (batch is None or n_bytes >= _GROUP_BYTES or len(group) >= _GROUP_BATCHES):
            yield group
            group, n_bytes = [], 0
        if batch is None:
            return


def encode_parts(
    job: EncodingJob,
    folder: Path,
    checkpoint: Checkpoint | None,
    *,
    checkpoint_bytes: int,
    progress: Callable[[EncodeProgress], None] | None,
    tag: str = "",
    finished: Callable[[int, ShardInfo], None] | None = None,
    saved: Callable[[Checkpoint], None] | None = None,
) -> list[Manifest]:
    """Write the shards of each part of a corpus, and return the manifests, which are not written yet.

    Args:
        job: The job.
        folder: The locked output folder, which contains the folders of the parts.
        checkpoint: Where to resume.
        checkpoint_bytes: As for `encode_corpus`.
        progress: As for `encode_corpus`.
        tag: Tag in the names of the files.
        finished: Called with the number of the part and each shard that is finished, in another thread.
        saved: Called with each checkpoint that is written, in another thread.
    """
    parts = job.folders(folder)
    with contextlib.ExitStack() as stack:
        source = job.source
        if job.settings.shuffle_seed is not None:
            report = _shuffling_progress(source, checkpoint, progress)
            shuffling = shuffled(source, job.settings.shuffle_seed, folder / SHUFFLE_NAME, report)
            source = stack.enter_context(shuffling)
        encoding = Encoding(
            folder,
            source,
            job.identity,
            checkpoint,
            checkpoint_bytes=checkpoint_bytes,
            progress=progress,
            saved=saved,
        )
        states = checkpoint.writers if checkpoint else [None] * len(parts)
        writers = [
            stack.enter_context(contextlib.closing(job.writer(part, state, tag, _for_part(finished, index))))
            for index, (part, state) in enumerate(zip(parts, states, strict=True))
        ]
        encoding.run(job.encoder, writers)
        if not encoding.counts.n_bytes:
            raise empty_corpus(job.source.source_names)
        try:
            job.check_parts(encoding.parts)
        except ShardError:
            (folder / JOURNAL_NAME).unlink(missing_ok=True)  # only other options help
            raise
        manifests = [
            job.manifest(index, encoding.parts[index], encoding.counts, (*writer.finish(), writer.n_tokens))
            for index, writer in enumerate(writers)
        ]
        encoding.report_end(writers)
    return manifests


def _for_part(
    finished: Callable[[int, ShardInfo], None] | None, index: int
) -> Callable[[ShardInfo], None] | None:
    return None if finished is None else lambda shard: finished(index, shard)


def _shuffling_progress(
    source: DocumentSource, checkpoint: Checkpoint | None, progress: Callable[[EncodeProgress], None] | None
) -> Callable[[DocumentBatch], None] | None:
    """Return what reports the pass that distributes the documents."""
    if progress is None:
        return None
    writers = checkpoint.writers if checkpoint else []
    n_tokens = sum(state.n_tokens for state in writers)
    n_shards = sum(len(state.shards) for state in writers)
    names, total = source.source_names, source.total_bytes
    return lambda batch: progress(
        EncodeProgress(
            names[batch.source],
            batch.n_bytes_read,
            total,
            n_tokens,
            n_shards,
            n_bytes_before=checkpoint.n_bytes_read if checkpoint else 0,
            n_tokens_before=n_tokens,
            is_shuffling=True,
        )
    )


_T = TypeVar("_T")


class BackgroundWorker(Generic[_T]):
    """A thread that calls a function with each item of a queue.

    An exception of the function is raised by the next `put` or by `finish`; later items are dropped. As a context
    manager it stops the thread at the end of the block and drops queued items, unless `finish` was called.

    Args:
        process: Called with each item.
        queue_size: Most items in the queue.
        name: Name of the thread.
    """

    def __init__(self, process: Callable[[_T], None], queue_size: int, name: str) -> None:
        self._process = process
        self._items: queue.Queue[_T | None] = queue.Queue(queue_size)
        self._error: BaseException | None = None
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, item: _T) -> None:
        """Add an item, waiting while the queue is full. Ctrl-C ends the wait."""
        self._items.put(item)
        self._raise()

    def finish(self) -> None:
        """Wait until all items are processed."""
        self._items.put(None)
        self._thread.join()
        self._raise()

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        # Items are taken after an error too, so that `put` never waits for ever.
        while (item := self._items.get()) is not None:
            if self._error is None and not self._is_stopped:
                try:
                    self._process(item)
                except BaseException as error:
                    self._error = error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_stopped = True
        if self._thread.is_alive():
            self._items.put(None)
            self._thread.join()
