"""What a job will take: its units, and the time and memory measured on a sample of the corpus."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from bytemill._core import PretokenCounter, safe_cut
from bytemill.cluster.plan import default_unit_bytes, divisible_corpus, ranges_of
from bytemill.shards.settings import EncodingJob, document_encoder
from bytemill.training.memory_budget import resident_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from bytemill.cluster.executor import Executor
    from bytemill.corpus import Corpus, CorpusInputs, DocumentBatch, DocumentSource
    from bytemill.shards.corpus_reader import ShardCorpus
    from bytemill.shards.settings import EncodeSettings, ShardTokenizer
    from bytemill.training.counting_session import CountingSettings

SAMPLE_BYTES = 16 << 20
"""Text that is measured, from the middle of the corpus."""


@dataclass(frozen=True)
class Estimate:
    """The plan of a job, and what it will take."""

    executor: str
    n_sources: int
    total_bytes: int
    unit_sizes: list[int]
    """Bytes of the inputs in each unit."""
    sample_bytes: int
    """Bytes of the inputs that were measured."""
    rate: float
    """Bytes of the inputs per second and worker."""
    seconds: float
    """Time of the first pass on all workers, if nothing fails and all are as fast as this one."""
    memory_bytes: int
    """Resident memory of a worker after the sample."""
    output_bytes: int | None = None
    """Bytes of the ids; None for counting."""


def estimate_encoding(
    executor: Executor,
    tokenizer: ShardTokenizer,
    inputs: CorpusInputs | DocumentSource,
    settings: EncodeSettings,
    *,
    unit_bytes: int | None = None,
    num_threads: int = 1,
) -> Estimate:
    """Estimate `encode_corpus` with the same arguments; nothing is written. Raises as it does."""
    job = EncodingJob.of(tokenizer, inputs, settings, num_threads)
    corpus, core, allowed = divisible_corpus(job), tokenizer.core, job.settings.allowed_special
    encoder = document_encoder(tokenizer, job.layout, job.settings, num_threads)
    n_tokens = 0

    def measure(batch: DocumentBatch) -> None:
        nonlocal n_tokens
        for chunks, _, _, _ in encoder.encode([(batch.data, batch.ends, batch.is_open)]):
            n_tokens += sum(map(len, chunks))

    found = _estimate(executor, corpus, unit_bytes, lambda window: core.safe_cut(window, allowed), measure)
    item = np.dtype(job.layout.dtype(core.dtype)).itemsize
    output = n_tokens * item * found.total_bytes // max(1, found.sample_bytes)
    return replace(found, output_bytes=output)


def estimate_counting(
    executor: Executor, corpus: Corpus, settings: CountingSettings, *, unit_bytes: int | None = None
) -> Estimate:
    """Estimate `count_corpus` with the same arguments; nothing is written. Raises as it does."""
    special = sorted(settings.special_tokens)
    counter = PretokenCounter(settings.pattern, special, settings.num_threads, settings.chunk_bytes)

    def measure(batch: DocumentBatch) -> None:
        counter.add_documents(batch.data, batch.ends, batch.is_open)

    def cut(window: str) -> int | None:
        return safe_cut(settings.pattern, special, window)

    return _estimate(executor, corpus, unit_bytes, cut, measure)


def _estimate(
    executor: Executor,
    corpus: Corpus | ShardCorpus,
    unit_bytes: int | None,
    cut: Callable[[str], int | None],
    measure: Callable[[DocumentBatch], None],
) -> Estimate:
    total = corpus.total_bytes or 0
    units = ranges_of(corpus, unit_bytes or default_unit_bytes(total), cut)
    started, n_text, n_read = time.perf_counter(), 0, 0
    # From the middle: the beginning of a corpus is often different.
    for number in (len(units) // 2, 0):
        at = sum(unit.n_bytes for unit in units[:number])
        with closing(corpus.read_range(units[number])) as batches:
            for batch in batches:
                measure(batch)
                n_text += len(batch.data)
                n_read, at = n_read + max(0, batch.n_bytes_read - at), batch.n_bytes_read
                if n_text >= SAMPLE_BYTES:
                    break
        if n_text >= SAMPLE_BYTES or len(units) == 1:
            break
    seconds = max(time.perf_counter() - started, 1e-6)
    n_read = max(1, min(n_read, total))
    n_workers = min(executor.num_workers, len(units))
    rate = n_read / seconds
    return Estimate(
        executor.description,
        len(corpus.source_names),
        total,
        [unit.n_bytes for unit in units],
        n_read,
        rate,
        total / rate / n_workers,
        resident_bytes(),
    )
