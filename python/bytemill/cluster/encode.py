"""Encode a corpus to token shards by tasks, with the files of one process, byte for byte.

Two passes. Each unit of the corpus is encoded to files of ids (`encode_unit`). Their sizes tell where the shards begin
and end, so that every shard is then written by a task of its own from the units that it covers (`pack_shard`). A plan
that knows the bounds of the shards beforehand would have to tokenize; the second pass only copies and hashes.
"""

from __future__ import annotations

import contextlib
import tempfile
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bytemill.cluster.encode_tasks import EncodeContext, PackItem, encode_unit, pack_shard
from bytemill.cluster.plan import (
    Unit,
    default_unit_bytes,
    divisible_corpus,
    ranges_of,
    read_plan,
    units_of,
    write_plan,
)
from bytemill.cluster.schedule import Work, run
from bytemill.corpus import Corpus, CorpusCounts
from bytemill.corpus.sources import empty_corpus
from bytemill.errors import ClusterError, ShardError
from bytemill.shards.encode import finished_shards
from bytemill.shards.hashed_file import HashedFile
from bytemill.shards.journal import RESTART_HINT, PartCounts
from bytemill.shards.layouts.npy import npy_header
from bytemill.shards.manifest import FileInfo, ShardInfo
from bytemill.shards.settings import EncodeSettings, EncodingJob
from bytemill.shards.stage import digest, note_damage
from bytemill.shards.target import ShardTarget, target_of
from bytemill.system.records import parse_record

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from numpy.typing import NDArray

    from bytemill.cluster.executor import Executor
    from bytemill.cluster.schedule import Report
    from bytemill.corpus import CorpusInputs, DocumentSource
    from bytemill.shards.corpus_reader import ShardCorpus
    from bytemill.shards.settings import ShardTokenizer, WrittenShards
from bytemill.shards.manifest import Manifest


def encode_corpus(
    executor: Executor,
    tokenizer: ShardTokenizer,
    inputs: CorpusInputs | DocumentSource,
    out_folder: str | os.PathLike[str],
    *,
    unit_bytes: int | None = None,
    num_threads: int = 1,
    progress: Report | None = None,
    note: Callable[[str], None] | None = None,
    overwrite: bool = False,
    recheck: bool = False,
    **settings: Any,
) -> Manifest:
    """Encode a corpus of files, or shards with another tokenizer, on an executor; see `bytemill.encode_corpus`.

    The files are those of `bytemill.encode_corpus` with the same options, whatever the executor, the number of workers
    and the size of the units. All workers must see the inputs and the output under the same names. After an
    interruption the same call resumes: what finished tasks have written is in the folder `.units` of the output.

    Args:
        executor: What runs the tasks.
        tokenizer: The tokenizer; it is pickled.
        inputs: A `Corpus` of files, names, or a `ShardCorpus`.
        out_folder: The output folder, or the URL of one in an object store, where the results of tasks go too.
        unit_bytes: Bytes of the inputs that a task encodes; by default 16 MiB to 1 GiB, by their size.
        num_threads: Threads of a task.
        progress: Called in this thread a few times a second. An exception that it raises ends the work.
        note: Called with a sentence if what an interrupted run left is damaged, and is made again.
        overwrite: Replace existing shards.
        recheck: As for `bytemill.encode_corpus`; this process compares the text alone.
        settings: Of `EncodeSettings`, as for `bytemill.encode_corpus`.

    Raises:
        ClusterError: A task failed for a reason other than its input, or the cluster is lost.
        CorpusError: Also if the corpus cannot be divided: standard input, iterators, a limit of bytes. After bad input
            the other units are encoded before it is raised.
    """
    return encode_with(
        executor,
        tokenizer,
        inputs,
        out_folder,
        EncodeSettings(**settings),
        unit_bytes=unit_bytes,
        num_threads=num_threads,
        progress=progress,
        note=note,
        overwrite=overwrite,
        recheck=recheck,
    )


def encode_with(
    executor: Executor,
    tokenizer: ShardTokenizer,
    inputs: CorpusInputs | DocumentSource,
    out_folder: str | os.PathLike[str],
    settings: EncodeSettings,
    *,
    unit_bytes: int | None = None,
    num_threads: int = 1,
    progress: Report | None = None,
    note: Callable[[str], None] | None = None,
    overwrite: bool = False,
    recheck: bool = False,
) -> Manifest:
    """Encode a corpus with these settings; see `encode_corpus`."""
    job = EncodingJob.of(tokenizer, inputs, settings, num_threads)
    corpus = divisible_corpus(job)
    job.check_output(out_folder)
    target = target_of(out_folder, job.parts)
    if not overwrite and (complete := finished_shards(job, target, note, recheck=recheck)):
        return complete[0]
    unit_bytes = unit_bytes or default_unit_bytes(corpus.total_bytes or 0)
    with target.prepared(overwrite=overwrite) as resumes:
        units = _plan(job, corpus, unit_bytes, target.plan, resumes=resumes)
        stage = target.stage
        stage.create()
        note_damage(note, "unit", stage.sweep())
        executor.set_context(
            EncodeContext(tokenizer, corpus, job.layout.name, job.settings, target, num_threads)
        )
        known = stage.results(unit.name for unit in units)
        sizes = [unit.corpus_range.n_bytes for unit in units]
        encoded = run(executor, Work("encode", encode_unit, units, sizes, known), progress)
        if isinstance(corpus, Corpus):
            corpus.check_content()
        counts = _total_counts(encoded)
        if not counts.n_bytes:
            raise empty_corpus(corpus.source_names)
        parts = [_part_counts(units, encoded, index) for index in range(len(job.parts) or 1)]
        try:
            job.check_parts(parts)
        except ShardError:
            target.discard_work()  # only other options help
            raise
        manifests: list[Manifest] = []
        for index, part in enumerate(parts):
            written = _Packing(target, job, index, encoded).run(executor, progress, note)
            manifests.append(job.manifest(index, part, counts, written))
        manifests = target.publish(manifests, job.request, overwrite=overwrite)
    return manifests[0]


def _plan(
    job: EncodingJob, corpus: Corpus | ShardCorpus, unit_bytes: int, path: Path | str, *, resumes: bool
) -> list[Unit]:
    """Return the units, and write them down before any of them is encoded."""
    identity = {**job.identity, "unit_bytes": unit_bytes}
    if resumes:
        read_plan(path, identity)
    core, allowed = job.tokenizer.core, job.settings.allowed_special
    ranges = ranges_of(corpus, unit_bytes, lambda window: core.safe_cut(window, allowed))
    units = units_of(corpus, ranges, identity)
    write_plan(path, identity, units)
    return units


def _total_counts(encoded: list[dict[str, Any]]) -> CorpusCounts:
    counts = [result["counts"] for result in encoded]
    return CorpusCounts(**{name: sum(each[name] for each in counts) for name in asdict(CorpusCounts())})


def _part_counts(units: list[Unit], encoded: list[dict[str, Any]], index: int) -> PartCounts:
    """Add up the counts of one part of the corpus."""
    total = PartCounts()
    for unit, result in zip(units, encoded, strict=True):
        counted = result["parts"][index]
        for number, n_bytes in enumerate(counted["source_bytes"]):
            total.add_bytes(unit.corpus_range.first + number, n_bytes)
        total.n_documents += counted["n_documents"]
        total.n_empty += counted["n_empty"]
    return total


class _Packing:
    """Writes the shards of one part of the corpus from the results of its units."""

    def __init__(
        self, target: ShardTarget, job: EncodingJob, index: int, encoded: list[dict[str, Any]]
    ) -> None:
        self._target = target
        self._stage = target.stage
        self._job = job
        self._index = index
        self._ids = [result["files"][f"{index}.ids"][0] for result in encoded]
        self._ends = [result["files"][f"{index}.ends"][0] for result in encoded]
        n_tokens = [result["parts"][index]["n_tokens"] for result in encoded]
        self._starts = np.concatenate([[0], np.cumsum(n_tokens, dtype=np.int64)])
        """Where the ids of each unit start in the part; at the end their number."""
        self._last_ends: tuple[int, NDArray[np.uint64]] = (-1, np.empty(0, "<u8"))
        """The unit whose ends were read last, and the ends in it."""

    def run(
        self, executor: Executor, progress: Report | None, note: Callable[[str], None] | None
    ) -> WrittenShards:
        """Write the shards and the document index."""
        items = [self._item(number, *bounds) for number, bounds in enumerate(pairwise(self._bounds()))]
        known = self._stage.results(item.name for item in items)
        damaged = {
            index: problem
            for index, result in known.items()
            if (problem := self._target.damage(self._index, self._info(result)))
        }
        note_damage(note, "shard", list(damaged.values()))
        known = {index: result for index, result in known.items() if index not in damaged}
        item_bytes = np.dtype(self._job.layout.dtype(self._job.tokenizer.core.dtype)).itemsize
        sizes = [sum(n for _, _, n in item.ids) * item_bytes for item in items]
        results = run(executor, Work("pack", pack_shard, items, sizes, known), progress)
        shards = [self._info(result) for result in results]
        documents = self._write_documents() if self._job.settings.document_index else None
        return tuple(shards), documents, int(self._starts[-1])

    def _info(self, result: dict[str, Any]) -> ShardInfo:
        return parse_record(ShardInfo, result["shard"], str(self._target.plan), ClusterError, RESTART_HINT)

    def _bounds(self) -> list[int]:
        """Return where the shards start, and at the end the number of ids."""
        total, size = int(self._starts[-1]), self._job.settings.shard_tokens
        if not self._job.layout.whole_documents:
            return [*range(0, total, size), total] if total else [0]
        # The document that reaches the size of a shard ends it.
        bounds = [0]
        for number in range(len(self._ends)):
            ends = self._unit_ends(number)
            while (at := int(np.searchsorted(ends, bounds[-1] + size))) < len(ends):
                bounds.append(int(ends[at]))
        return bounds if bounds[-1] == total else [*bounds, total]

    def _item(self, number: int, start: int, stop: int) -> PackItem:
        layout = self._job.layout
        first = int(np.searchsorted(self._starts, start, "right")) - 1
        last = int(np.searchsorted(self._starts, stop))
        ids: list[tuple[str, int, int]] = []
        ends: list[tuple[str, int, int, int]] = []
        for unit in range(first, last):
            begin, end = int(self._starts[unit]), int(self._starts[unit + 1])
            low, high = max(start, begin), min(stop, end)
            if low < high:
                ids.append((self._ids[unit], low - begin, high - low))
                if layout.sidecar_suffixes or layout.whole_documents:
                    bounds = np.searchsorted(self._unit_ends(unit), [start, stop], "right").tolist()
                    ends.append((self._ends[unit], bounds[0], bounds[1] - bounds[0], start - begin))
        fingerprint = self._job.tokenizer.fingerprint
        name = "shard-" + digest(self._index, number, ids, ends, layout.name, self._job.settings.shard_tokens)
        return PackItem(name, number, self._index, fingerprint, tuple(ids), tuple(ends))

    def _unit_ends(self, unit: int) -> NDArray[np.int64]:
        """Return the ends of documents of a unit, in ids from the start of the part."""
        if self._last_ends[0] != unit:
            self._last_ends = (unit, np.frombuffer(self._stage.read_all(self._ends[unit]), "<u8"))
        ends = self._last_ends[1]
        return ends.astype(np.int64) + self._starts[unit]

    def _write_documents(self) -> FileInfo:
        with tempfile.TemporaryDirectory(prefix="bytemill-") as folder:
            path = self._target.documents_path(self._index, Path(folder))
            info = self._written_documents(path)
            self._target.add_documents(self._index, path)
        return info

    def _written_documents(self, path: Path) -> FileInfo:
        with contextlib.closing(HashedFile(path, npy_header("uint64", 0))) as file:
            for unit in range(len(self._ends)):
                file.append(self._unit_ends(unit).astype("<u8").data.cast("B"))
            header = npy_header("uint64", (file.n_bytes - len(file.header)) // 8)
            sha256 = file.finish(header)
            return FileInfo(file=file.path.name, n_bytes=file.n_bytes, sha256=sha256)
