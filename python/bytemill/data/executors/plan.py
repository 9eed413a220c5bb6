"""The plan of a job: its units, written down before work begins, and the time and memory that they will take."""

from __future__ import annotations

import json
import time
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bytemill._core import PretokenCounter, safe_cut
from bytemill.corpus import Corpus
from bytemill.corpus.ranges import divide
from bytemill.data.corpus_reader import ShardCorpus
from bytemill.data.settings import EncodingJob, document_encoder
from bytemill.data.stage import digest
from bytemill.data.unfinished import RESTART_HINT, as_json, first_difference
from bytemill.errors import ClusterError
from bytemill.storage import StoreFolder, split_url, write_file
from bytemill.system.atomic_files import indented_json
from bytemill.system.records import read_json_object
from bytemill.training.memory_budget import resident_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from bytemill.corpus import CorpusInputs, DocumentBatch, DocumentSource
    from bytemill.corpus.documents import CorpusRange
    from bytemill.data.executors.executor import Executor
    from bytemill.data.settings import EncodeSettings, ShardTokenizer
    from bytemill.training.counting import CountingSettings


MIN_UNIT_BYTES = 16 << 20
MAX_UNIT_BYTES = 1 << 30
_WANTED_UNITS = 256


@dataclass(frozen=True)
class Unit:
    """A range of the corpus that one task reads."""

    name: str
    """Digest of everything that determines the result."""
    corpus_range: CorpusRange
    sources: tuple[str, ...]
    """Names of its sources."""
    place: str = "byte"
    """What the start of the range counts: "byte", "row" or "token"."""

    def __str__(self) -> str:
        start, n_more = self.corpus_range.start, len(self.sources) - 1
        offset = f" from {self.place} {start:,}" if start else ""
        more = f" and {n_more} more files" if n_more else ""
        return self.sources[0] + offset + more


def divisible_corpus(job: EncodingJob) -> Corpus | ShardCorpus:
    """Return the corpus of an encoding; raise ClusterError if several processes cannot share it."""
    if not isinstance(job.source, Corpus | ShardCorpus):
        raise ClusterError(
            "only files and shards are encoded by several processes", hint="encode it without an executor"
        )
    if job.settings.shuffle_seed is not None:
        raise ClusterError(
            "documents are shuffled by one process",
            hint="leave out --executor (that process encodes on all cores), or leave out --shuffle",
        )
    if job.settings.conversations is not None:
        raise ClusterError("conversations are encoded by one process", hint="leave out --executor")
    if job.settings.dropout is not None:
        raise ClusterError("with dropout, documents are encoded by one process", hint="leave out --executor")
    return job.source


def units_of(corpus: Corpus | ShardCorpus, ranges: Iterable[CorpusRange], *determined_by: Any) -> list[Unit]:
    """Return a unit for each range.

    Args:
        corpus: The corpus.
        ranges: Its ranges.
        determined_by: What determines the results besides the range, as JSON values.
    """
    shared, names = digest(*determined_by), corpus.source_names
    return [
        Unit(digest(shared, each.to_dict()), each, tuple(names[each.first : each.last + 1]), place)
        for each in ranges
        for place in ["token" if isinstance(corpus, ShardCorpus) else "row" if each.by_rows else "byte"]
    ]


def ranges_of(
    corpus: Corpus | ShardCorpus, unit_bytes: int, safe_cut: Callable[[str], int | None]
) -> list[CorpusRange]:
    """Divide a corpus into ranges of about `unit_bytes` bytes, in order.

    Args:
        corpus: The corpus.
        unit_bytes: Bytes of the inputs in each.
        safe_cut: Returns where a text may be cut without changing the result, if there is such a place.

    Raises:
        CorpusError: The corpus cannot be divided.
        ShardError: The ends of documents in the shards are unknown.
    """
    return (
        corpus.divide(unit_bytes) if isinstance(corpus, ShardCorpus) else divide(corpus, unit_bytes, safe_cut)
    )


def default_unit_bytes(total_bytes: int) -> int:
    """Return the size of a unit for a corpus: enough units for many workers, and seconds of work in each.

    >>> default_unit_bytes(10**9) / 2**20, default_unit_bytes(10**12) / 2**20
    (16.0, 1024.0)
    """
    return max(MIN_UNIT_BYTES, min(MAX_UNIT_BYTES, total_bytes // _WANTED_UNITS))


def read_plan(path: Path | str, identity: dict[str, Any]) -> dict[str, Any] | None:
    """Read the plan of the run that is resumed; None if there is none.

    Args:
        path: The file, or its URL in an object store.
        identity: What must be equal to resume, as JSON values.

    Raises:
        ClusterError: The plan is damaged or of another job; names the first difference.
    """
    plan = _read_object(path)
    if plan is None:
        return None
    folder = path.parent if isinstance(path, Path) else split_url(path)[0]
    if difference := first_difference(plan.get("identity"), as_json(identity)):
        raise ClusterError(
            f"{folder} contains unfinished work with other settings: {difference}",
            hint=f"resume with the same settings, choose another folder, or {RESTART_HINT}",
        )
    return plan


def write_plan(path: Path | str, identity: dict[str, Any], units: Iterable[Unit], **more: Any) -> None:
    """Write a plan.

    Args:
        path: The file, or its URL in an object store.
        identity: What must be equal to resume.
        units: The units.
        more: Further fields.

    Raises:
        OutputError: The file cannot be written.
        StorageError: The store cannot be written.
    """
    listed = [{"name": unit.name, **unit.corpus_range.to_dict()} for unit in units]
    write_file(path, indented_json({"version": 1, "identity": identity, **more, "units": listed}))


def _read_object(path: Path | str) -> dict[str, Any] | None:
    try:
        if isinstance(path, Path):
            return read_json_object(path, ClusterError, RESTART_HINT)
        folder, name = split_url(path)
        found = StoreFolder(folder).get(name)
        return None if found is None else dict(json.loads(found.data))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        if isinstance(error, ClusterError):
            raise
        raise ClusterError(f"{path} is damaged: {error}", hint=RESTART_HINT) from error


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
