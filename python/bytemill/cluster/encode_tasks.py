"""The tasks of an encoding: encode a unit of the corpus, write a shard."""

from __future__ import annotations

import contextlib
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from bytemill.corpus import CorpusCounts
from bytemill.corpus.documents import CorpusRange
from bytemill.errors import ClusterError, SpecialTokenError
from bytemill.shards.journal import PartCounts, as_json
from bytemill.shards.layouts import layout_named
from bytemill.shards.pipeline import groups, in_sources
from bytemill.shards.settings import document_encoder
from bytemill.shards.shard_writer import ShardWriter
from bytemill.system.atomic_files import output_errors

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from bytemill._core import DocumentEncoder
    from bytemill.cluster.plan import Unit
    from bytemill.corpus import Corpus, DocumentBatch
    from bytemill.shards.corpus_reader import ShardCorpus
    from bytemill.shards.manifest import ShardSettings
    from bytemill.shards.settings import ShardTokenizer
    from bytemill.shards.stage import Stage
    from bytemill.shards.target import ShardTarget

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

    def _encoder(self, *, starts_inside: bool, ends_inside: bool) -> DocumentEncoder:
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
        self, encoder: DocumentEncoder, batches: list[DocumentBatch], *, ends_inside: bool
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
