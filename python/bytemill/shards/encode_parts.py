"""Encode the parts of a corpus to folders of this machine, from the start or from a checkpoint."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from bytemill.corpus.shuffle import shuffled
from bytemill.corpus.sources import empty_corpus
from bytemill.errors import ShardError
from bytemill.shards.journal import JOURNAL_NAME
from bytemill.shards.lock import SHUFFLE_NAME
from bytemill.shards.pipeline import EncodeProgress, Encoding

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bytemill.corpus import DocumentBatch, DocumentSource
    from bytemill.shards.journal import Checkpoint
    from bytemill.shards.manifest import Manifest, ShardInfo
    from bytemill.shards.settings import EncodingJob


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
