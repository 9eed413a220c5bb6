"""Encode a corpus to token shards by tasks, with the files of one process, byte for byte.

Two passes. Each unit of the corpus is encoded to files of ids (`encode_unit`). Their sizes tell where the shards begin
and end, so that every shard is then written by a task of its own from the units that it covers (`pack_shard`). A plan
that knows the bounds of the shards beforehand would have to tokenize; the second pass only copies and hashes.
"""

from __future__ import annotations

import contextlib
import tempfile
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from bytemill.corpus import Corpus, CorpusCounts
from bytemill.corpus.documents import CorpusRange
from bytemill.corpus.sources import empty_corpus
from bytemill.data.encode import finished_shards
from bytemill.data.executors.executor import Work, run
from bytemill.data.executors.plan import (
    Unit,
    default_unit_bytes,
    divisible_corpus,
    ranges_of,
    read_plan,
    units_of,
    write_plan,
)
from bytemill.data.layouts import layout_named, npy_header
from bytemill.data.manifest import FileInfo, Manifest, ShardInfo
from bytemill.data.pipeline import groups, in_sources
from bytemill.data.settings import EncodeSettings, EncodingJob, document_encoder
from bytemill.data.shard_writer import HashedFile, ShardWriter
from bytemill.data.stage import digest, note_damage
from bytemill.data.target import ShardTarget, target_of
from bytemill.data.unfinished import RESTART_HINT, PartCounts, as_json
from bytemill.errors import ClusterError, ShardError, SpecialTokenError
from bytemill.system.atomic_files import output_errors
from bytemill.system.records import parse_record

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Generator, Iterator

    from numpy.typing import NDArray

    from bytemill.corpus import CorpusInputs, DocumentBatch, DocumentSource
    from bytemill.data.corpus_reader import ShardCorpus
    from bytemill.data.executors.executor import Executor, Report
    from bytemill.data.manifest import ShardSettings
    from bytemill.data.settings import ShardTokenizer, WrittenShards
    from bytemill.data.stage import Stage
    from bytemill.formats.library import AnyDocumentEncoder


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


_COPY_IDS = 1 << 22
"""Ids that are copied at a time."""


@dataclass(frozen=True)
class PackItem:
    """A shard to write."""

    name: str
    number: int
    part: int
    """Number of the part of the corpus to which it belongs."""
    fingerprint: str
    ids: tuple[tuple[str, int, int], ...]
    """The ids of units that it consists of: the name of the file, the first id, and their number."""
    ends: tuple[tuple[str, int, int, int], ...]
    """Ends of documents: the name of the file, the first one, their number, and where the shard starts in it."""

    def __str__(self) -> str:
        return f"shard {self.number:,}"


@dataclass(frozen=True)
class EncodeContext:
    """What tasks have in common."""

    tokenizer: ShardTokenizer
    corpus: Corpus | ShardCorpus
    layout: str
    settings: ShardSettings
    target: ShardTarget
    num_threads: int


def encode_unit(context: EncodeContext, unit: Unit) -> dict[str, Any]:
    """Encode a unit of the corpus to files of ids and of ends of documents, one pair for each part."""
    if (known := context.target.stage.result(unit.name)) is not None:
        return known
    n_parts = 2 if context.settings.validation_fraction else 1
    dtype = np.dtype(layout_named(context.layout).dtype(context.tokenizer.core.dtype)).newbyteorder("<")
    with context.target.stage.attempt(unit.name) as attempt:
        with contextlib.ExitStack() as stack:
            files = [
                (
                    stack.enter_context(_new_file(attempt.file(f"{number}.ids"))),
                    stack.enter_context(_new_file(attempt.file(f"{number}.ends"))),
                )
                for number in range(n_parts)
            ]
            encoding = _UnitEncoding(context, unit.corpus_range, n_parts)
            for sides in encoding.sides():
                for (ids_file, ends_file), (chunks, ends) in zip(files, sides, strict=True):
                    with output_errors(ids_file.name):
                        for chunk in chunks:
                            ids_file.write(np.ascontiguousarray(chunk, dtype).data)
                    with output_errors(ends_file.name):
                        ends_file.write(np.ascontiguousarray(ends, "<u8").data)
        return attempt.publish(encoding.record())


@contextlib.contextmanager
def _new_file(path: Path) -> Generator[BinaryIO]:
    """Open a new file. Errors of opening and closing it, which writes what is buffered, name it."""
    with output_errors(path):
        file = path.open("xb")
    try:
        yield file
    finally:
        with output_errors(path):
            file.close()


class _UnitEncoding:
    """Encodes the documents of a unit. Those that it shares with its neighbours have encoders of their own."""

    def __init__(self, context: EncodeContext, corpus_range: CorpusRange, n_parts: int) -> None:
        self._context = context
        self._range = corpus_range
        self._n_tokens = [0] * n_parts
        self._counted = [PartCounts() for _ in range(n_parts)]
        self._counts = CorpusCounts()

    def sides(self) -> Iterator[list[tuple[list[NDArray[Any]], NDArray[np.uint64]]]]:
        """Yield (chunks of ids, ends of documents from the start of the unit) for each part of the corpus."""
        encoder, key = None, (False, False)
        for group in groups(self._context.corpus.read_range(self._range)):
            for batches, inside in _by_neighbour(group, self._range):
                if encoder is None or inside != key:
                    encoder, key = self._encoder(starts_inside=inside[0], ends_inside=inside[1]), inside
                yield self._encode(encoder, batches, ends_inside=inside[1])
            self._counts = group[-1].after.counts

    def record(self) -> dict[str, Any]:
        """Return what the driver needs to know."""
        # A document is counted where it ends.
        counts = replace(self._counts, n_documents=self._counts.n_documents - self._range.ends_inside)
        return {
            "counts": asdict(counts),
            "parts": [
                {"n_tokens": n_tokens, **counted.to_dict()}
                for n_tokens, counted in zip(self._n_tokens, self._counted, strict=True)
            ],
        }

    def _encoder(self, *, starts_inside: bool, ends_inside: bool) -> AnyDocumentEncoder:
        context = self._context
        encoder = document_encoder(
            context.tokenizer,
            layout_named(context.layout),
            context.settings,
            context.num_threads,
            starts_inside=starts_inside,
            ends_inside=ends_inside,
        )
        if starts_inside:
            encoder.resume(("", self._range.start, self._side(self._range.first), [], None))
        elif ends_inside:
            encoder.resume(("", 0, self._side(self._range.last), [], None))
        return encoder

    def _side(self, source: int) -> int:
        """Return the part of the corpus to which a source belongs that is one document: its beginning tells."""
        context = self._context
        if not context.settings.validation_fraction:
            return 0
        encoder = document_encoder(context.tokenizer, layout_named(context.layout), context.settings, 1)
        whole = CorpusRange(first=source, last=source, n_bytes=0)
        with contextlib.closing(context.corpus.read_range(whole)) as batches:
            for batch in batches:
                sides = encoder.encode([(batch.data, batch.ends, batch.is_open)])
                carry = encoder.carry()
                if carry is None:
                    return next(number for number, (_, _, n_bytes, _) in enumerate(sides) if sum(n_bytes))
                if carry[2] is not None:
                    return carry[2]
        raise ClusterError(f"{context.corpus.source_names[source]} changed while it was encoded")

    def _encode(
        self, encoder: AnyDocumentEncoder, batches: list[DocumentBatch], *, ends_inside: bool
    ) -> list[tuple[list[NDArray[Any]], NDArray[np.uint64]]]:
        found: list[tuple[list[NDArray[Any]], NDArray[np.uint64]]] = []
        is_end = ends_inside and not batches[-1].is_open
        try:
            sides = encoder.encode([(batch.data, batch.ends, batch.is_open) for batch in batches])
        except SpecialTokenError as error:
            raise in_sources(error, self._context.corpus.source_names, batches) from error
        for number, (chunks, ends, n_bytes, n_empty) in enumerate(sides[: len(self._counted)]):
            counted = self._counted[number]
            for batch, n_of_batch in zip(batches, n_bytes, strict=True):
                counted.add_bytes(batch.source - self._range.first, n_of_batch)
            # The last document ends in a later unit.
            inner = ends[:-1] if is_end else ends
            counted.n_documents += len(inner)
            counted.n_empty += n_empty
            found.append((chunks, inner + np.uint64(self._n_tokens[number])))
            self._n_tokens[number] += sum(map(len, chunks))
        return found


def _by_neighbour(
    group: list[DocumentBatch], corpus_range: CorpusRange
) -> Iterator[tuple[list[DocumentBatch], tuple[bool, bool]]]:
    """Yield consecutive batches, and whether their document begins before the unit and ends after it."""
    batches: list[DocumentBatch] = []
    key = (False, False)
    for batch in group:
        inside = (
            corpus_range.starts_inside and batch.source == corpus_range.first,
            corpus_range.ends_inside and batch.source == corpus_range.last,
        )
        if batches and inside != key:
            yield batches, key
            batches = []
        batches.append(batch)
        key = inside
    if batches:
        yield batches, key


def pack_shard(context: EncodeContext, item: PackItem) -> dict[str, Any]:
    """Write a shard from the files of units, and move it to its final name."""
    if (known := context.target.stage.result(item.name)) is not None and context.target.has_files(
        item.part, known["shard"]
    ):
        return known
    layout = layout_named(context.layout)
    dtype = layout.dtype(context.tokenizer.core.dtype)
    with context.target.stage.attempt(item.name) as attempt:
        folder = attempt.folder()
        writer = ShardWriter(folder, layout, dtype, context.settings.shard_tokens, item.fingerprint)
        with contextlib.closing(writer):
            ends = [
                _read(context.target.stage, name, "<u8", first, n).astype(np.int64) - start
                for name, first, n, start in item.ends
            ]
            all_ends = np.concatenate([np.empty(0, np.int64), *ends])
            done = 0
            for ids in _chunks(context.target.stage, item, np.dtype(dtype).newbyteorder("<")):
                first, last = np.searchsorted(all_ends, [done, done + len(ids)], "right")
                writer.append([ids], (all_ends[first:last] - done).astype(np.uint64))
                done += len(ids)
            shards, _ = writer.finish()
        if len(shards) != 1:
            raise ClusterError(f"{item} came out as {len(shards)} files", hint="report this")
        shard = context.target.add_shard(item.part, item.number, shards[0], folder, layout.suffix)
        return attempt.publish({"shard": as_json(shard.to_dict())})


def _chunks(stage: Stage, item: PackItem, dtype: np.dtype[Any]) -> Iterator[NDArray[Any]]:
    for name, first, n in item.ids:
        for start in range(first, first + n, _COPY_IDS):
            yield _read(stage, name, dtype, start, min(_COPY_IDS, first + n - start))


def _read(stage: Stage, name: str, dtype: Any, first: int, n: int) -> NDArray[Any]:
    item = np.dtype(dtype)
    return np.frombuffer(stage.read(name, first * item.itemsize, n * item.itemsize), item)
