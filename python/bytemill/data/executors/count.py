"""Count the pre-tokens of a corpus by tasks, with the counts of one process.

Each unit of the corpus is counted into a file of 64 partitions by the hash of the pre-token (`count_unit`). Tasks then
add up a few partitions of many files each, in a tree (`merge_counts`). This process adds up what is left: partitions
have no pre-token in common. No process holds more than its limit of memory; what exceeds it is on disk.
"""

from __future__ import annotations

import secrets
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from bytemill._core import N_COUNT_PARTITIONS, UNICODE_VERSION, PretokenCounter, safe_cut
from bytemill.corpus import Corpus, CorpusCounts, not_utf8
from bytemill.corpus.options import check_separator
from bytemill.corpus.ranges import divide
from bytemill.corpus.sources import empty_corpus, unreadable
from bytemill.corpus.streams import plain_text_start
from bytemill.data.executors.executor import Work, run
from bytemill.data.executors.plan import Unit, default_unit_bytes, read_plan, units_of, write_plan
from bytemill.data.stage import FolderStage, StoreStage, digest, note_damage
from bytemill.errors import CorpusError, OutputError
from bytemill.storage import StoreFolder, url_of
from bytemill.storage.input_check import check_folder_is_no_input
from bytemill.system.atomic_files import make_folder
from bytemill.system.locks import lock_output
from bytemill.system.paths import cache_folder
from bytemill.training.counting import CountingSettings, corpus_identity, corpus_weights
from bytemill.training.counts import (
    CountedCorpus,
    CountsInfo,
    canonical_pattern,
    common_scale,
    exact_weight,
    finish_weighted,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from bytemill._core import PretokenCounts
    from bytemill.corpus.documents import CorpusRange
    from bytemill.data.executors.executor import Executor, Report
    from bytemill.data.stage import Stage


_PARTITIONS_PER_TASK = 4
_FAN_IN = 64
"""Files that a task adds up."""
_FEW_UNITS = 4
"""So many files are added up by this process alone."""


def count_corpus(
    executor: Executor,
    corpus: Corpus,
    settings: CountingSettings,
    work_folder: str | os.PathLike[str],
    *,
    unit_bytes: int | None = None,
    progress: Report | None = None,
    note: Callable[[str], None] | None = None,
) -> CountedCorpus:
    """Count the pre-tokens of a corpus of files on an executor; `bytemill.train` accepts the result.

    The counts are those of one process, whatever the executor, the number of workers and the size of the units. After
    an interruption the same call resumes: what finished tasks have written is in the work folder.

    Args:
        executor: What runs the tasks.
        corpus: The corpus.
        settings: What to count, and within which limits. Threads and memory are those of a task, and of this process.
        work_folder: Folder for what tasks leave, seen by all workers under the same name, or a URL in an object store.
            The caller removes it when the counts are not needed any more (`remove_work`): those that exceed the memory
            stay in it.
        unit_bytes: Bytes of the inputs that a task counts; by default 16 MiB to 1 GiB, by their size.
        progress: Called in this thread a few times a second. An exception that it raises ends the work.
        note: Called with a sentence if what an interrupted run left is damaged, and is made again.

    Raises:
        ClusterError: A task failed for a reason other than its input, the cluster is lost, or the folder belongs to
            another counting.
        CorpusError: The corpus is empty, cannot be read or cannot be divided.
        SpecialTokenError: The corpus is divided at a token that is not one of the special tokens.
        OutputError: The folder cannot be written, another process is using it, or it holds an input.
        StorageError: The store cannot be read or written.
    """
    if corpus.options.separator is not None:
        check_separator(corpus.options.separator, settings.special_tokens)
    check_folder_is_no_input(work_folder, files=corpus.input_files, folders=corpus.input_folders)
    folder, url = _local_folder(work_folder), url_of(work_folder)
    unit_bytes = unit_bytes or default_unit_bytes(corpus.total_bytes or 0)
    make_folder(folder)
    with lock_output(folder / "counts"):
        stage = FolderStage(folder / "units") if url is None else StoreStage(StoreFolder(url) / "units")
        plan = folder / "plan.json" if url is None else f"{url}/plan.json"
        stage.create()
        note_damage(note, "unit", stage.sweep())
        units, seed = _plan(corpus, settings, unit_bytes, plan)
        multiples, denominator = common_scale(corpus_weights(corpus))
        executor.set_context(CountContext(corpus, settings, multiples, stage, seed))
        sizes = [unit.corpus_range.n_bytes for unit in units]
        known = stage.results(unit.name for unit in units)
        results = run(executor, Work("count", count_unit, units, sizes, known), progress)
        corpus.check_content()
        if not sum(result["n_bytes"] for result in results):
            raise empty_corpus(corpus.source_names)
        segments = _Merging(stage, executor, progress).merge(results)
        counts = _added_up(settings, stage, segments, denominator, folder)
    special = sorted(settings.special_tokens)
    n_special = [sum(result["special"][index] for result in results) for index in range(len(special))]
    readings = [result["reading"] for result in results]
    info = CountsInfo(
        pattern=canonical_pattern(settings.pattern),
        special_tokens=dict(zip(special, n_special, strict=True)),
        n_bytes=sum(result["n_bytes"] for result in results),
        n_pretokens=sum(result["n_pretokens"] for result in results),
        reading=CorpusCounts(
            **{name: sum(each[name] for each in readings) for name in asdict(CorpusCounts())}
        ),
        corpus=corpus_identity(corpus),
        unit=str(min(map(exact_weight, corpus_weights(corpus)))),
    )
    return CountedCorpus(counts, info)


def remove_work(work_folder: str | os.PathLike[str]) -> None:
    """Remove the work folder of a counting. Raises OutputError or StorageError."""
    FolderStage(_local_folder(work_folder)).remove()
    if (url := url_of(work_folder)) is not None:
        StoreStage(StoreFolder(url)).remove()


def _local_folder(work_folder: str | os.PathLike[str]) -> Path:
    """Return the work folder, or for a URL the folder of this machine beside it."""
    url = url_of(work_folder)
    return Path(work_folder).absolute() if url is None else cache_folder("counting") / digest(url)


@dataclass(frozen=True)
class MergeItem:
    """Partitions of some files to add up."""

    name: str
    partitions: tuple[int, int]
    segments: tuple[tuple[str, int, int], ...]
    """The name of a file, and where a partition starts and ends in it."""

    def __str__(self) -> str:
        return f"partitions {self.partitions[0]} to {self.partitions[1] - 1} of the counts"


@dataclass(frozen=True)
class CountContext:
    """What tasks have in common."""

    corpus: Corpus
    settings: CountingSettings
    multiples: list[int]
    """Weight of each source, in units of their common denominator."""
    stage: Stage
    seed: int

    def counter(
        self, *, pattern: str | None, special: list[str], in_batches: bool, seed: int | None
    ) -> PretokenCounter:
        """Return a counter within the limits of a task."""
        settings = self.settings
        plan = None
        if settings.budget is not None:
            plan = settings.budget.counting(settings.num_threads, settings.chunk_bytes, in_batches=in_batches)
        return PretokenCounter(
            pattern,
            special,
            settings.num_threads if plan is None else plan.num_threads,
            settings.chunk_bytes if plan is None else plan.chunk_bytes,
            None if plan is None else plan.table_bytes,
            seed,
        )


def count_unit(context: CountContext, unit: Unit) -> dict[str, Any]:
    """Count a unit of the corpus into a file of partitions."""
    if (known := context.stage.result(unit.name)) is not None:
        return known
    corpus, settings = context.corpus, context.settings
    with context.stage.attempt(unit.name) as attempt:
        counter = context.counter(
            pattern=settings.pattern,
            special=sorted(settings.special_tokens),
            in_batches=not corpus.is_plain,
            seed=context.seed,
        )
        counter.set_folder(str(attempt.folder()))
        count = _count_files if corpus.is_plain else _count_documents
        reading = count(counter, context, unit.corpus_range)
        counts = counter.finish(1, must_stay=True)
        ends = counts.save_partitions(str(attempt.file("counts")), "{}", (0, N_COUNT_PARTITIONS))
        if not reading.n_bytes:
            reading = CorpusCounts(
                reading.n_documents,
                counts.n_bytes,
                counts.n_replaced,
                n_byte_order_marks=reading.n_byte_order_marks,
            )
        record = {
            "ends": ends,
            "n_bytes": counts.n_bytes,
            "n_pretokens": counts.n_pretokens,
            "special": counts.special_counts,
            "reading": asdict(reading),
        }
        del counter, counts
        return attempt.publish(record)


def _count_files(counter: PretokenCounter, context: CountContext, corpus_range: CorpusRange) -> CorpusCounts:
    """Count files that the core reads itself."""
    corpus = context.corpus
    errors: Literal["strict", "replace"] = "strict" if corpus.options.errors == "strict" else "replace"
    n_marks = 0
    for number in range(corpus_range.first, corpus_range.last + 1):
        source = corpus.sources[number]
        counter.set_weight(context.multiples[number])
        start = corpus_range.start if number == corpus_range.first else 0
        stop = corpus_range.stop if number == corpus_range.last else None
        source.check_unchanged()
        try:
            if not start:
                start = plain_text_start(source, corpus.options.format)
                n_marks += start > 0
            counter.add_file(str(source.path), errors, None, start, None, stop)
            source.check_unchanged()
        except UnicodeDecodeError as error:
            source.check_unchanged()
            raise not_utf8(source, error) from error
        except OSError as error:
            if isinstance(error, (OutputError, CorpusError)):
                raise
            raise unreadable(source.name, error) from error
    n_documents = corpus_range.last - corpus_range.first + 1 - corpus_range.ends_inside
    return CorpusCounts(n_documents, n_byte_order_marks=n_marks)


def _count_documents(
    counter: PretokenCounter, context: CountContext, corpus_range: CorpusRange
) -> CorpusCounts:
    """Count the documents of a unit."""
    counts, number = CorpusCounts(), -1
    for batch in context.corpus.read_range(corpus_range):
        if batch.source != number:
            number = batch.source
            counter.set_weight(context.multiples[number])
        counter.add_documents(batch.data, batch.ends, batch.is_open)
        counts = batch.after.counts
    return CorpusCounts(**{**asdict(counts), "n_documents": counts.n_documents - corpus_range.ends_inside})


def merge_counts(context: CountContext, item: MergeItem) -> dict[str, Any]:
    """Add up partitions into a file of counts."""
    if (known := context.stage.result(item.name)) is not None:
        return known
    with context.stage.attempt(item.name) as attempt:
        # With the seed of the partitions, what belongs to a few of them would fill a small part of the table.
        counter = context.counter(pattern=None, special=[], in_batches=False, seed=None)
        counter.set_folder(str(attempt.folder()))
        for name, start, end in item.segments:
            with context.stage.range_as_file(name, start, end) as (path, first, last):
                counter.add_counts(str(path), 1, (first, last))
        counts: PretokenCounts = counter.finish(1, context.settings.budget is not None)
        counts.save(str(attempt.file("counts")), "{}")
        del counter, counts
        return attempt.publish({})


class _Merging:
    """The tree of merges."""

    def __init__(self, stage: Stage, executor: Executor, progress: Report | None) -> None:
        self._stage = stage
        self._executor = executor
        self._progress = progress

    def merge(self, results: list[dict[str, Any]]) -> list[tuple[str, int, int]]:
        """Return segments of files that have all counts."""
        groups = [
            (start, min(start + _PARTITIONS_PER_TASK, N_COUNT_PARTITIONS))
            for start in range(0, N_COUNT_PARTITIONS, _PARTITIONS_PER_TASK)
        ]
        if len(results) <= _FEW_UNITS:
            groups = [(0, N_COUNT_PARTITIONS)]
        files = {group: [_segments(result, group) for result in results] for group in groups}
        while len(results) > _FEW_UNITS and any(len(each) > 1 for each in files.values()):
            files = self._round(files)
        return [
            (name, start, end)
            for each in files.values()
            for segments in each
            for name, start, end in segments
        ]

    def _round(
        self, files: dict[tuple[int, int], list[list[tuple[str, int, int]]]]
    ) -> dict[tuple[int, int], list[list[tuple[str, int, int]]]]:
        """Add up groups of files."""
        items = [
            self._item(group, each[start : start + _FAN_IN])
            for group, each in files.items()
            for start in range(0, len(each), _FAN_IN)
        ]
        sizes = [sum(end - start for _, start, end in item.segments) for item in items]
        known = self._stage.results(item.name for item in items)
        results = run(self._executor, Work("merge", merge_counts, items, sizes, known), self._progress)
        merged: dict[tuple[int, int], list[list[tuple[str, int, int]]]] = {group: [] for group in files}
        for item, result in zip(items, results, strict=True):
            name, n_bytes = result["files"]["counts"]
            merged[item.partitions].append([(name, 0, n_bytes)])
        return merged

    @staticmethod
    def _item(group: tuple[int, int], files: list[list[tuple[str, int, int]]]) -> MergeItem:
        # Partition by partition, so that equal pre-tokens are added up soon.
        segments = tuple(segment for partition in zip(*files, strict=True) for segment in partition)
        return MergeItem(f"merge-{digest(group, segments)}", group, segments)


def _segments(result: dict[str, Any], partitions: tuple[int, int]) -> list[tuple[str, int, int]]:
    """Return where partitions are in the file of a unit."""
    name, bounds = result["files"]["counts"][0], [0, *result["ends"]]
    return [(name, bounds[number], bounds[number + 1]) for number in range(*partitions)]


def _added_up(
    settings: CountingSettings,
    stage: Stage,
    segments: list[tuple[str, int, int]],
    denominator: int,
    folder: Path,
) -> PretokenCounts:
    plan = None
    if settings.budget is not None:
        plan = settings.budget.counting(1, settings.chunk_bytes, in_batches=False)
    counter = PretokenCounter(None, [], 1, None, None if plan is None else plan.table_bytes)
    if plan is not None:
        runs = folder / "runs"
        make_folder(runs)
        counter.set_folder(str(runs))
    for name, start, end in segments:
        with stage.range_as_file(name, start, end) as (path, first, last):
            counter.add_counts(str(path), 1, (first, last))
    return finish_weighted(counter, denominator, may_stay=plan is not None)


def _plan(
    corpus: Corpus, settings: CountingSettings, unit_bytes: int, path: Path | str
) -> tuple[list[Unit], int]:
    """Return the units and the seed of the partitions, and write them down before work begins."""
    special = sorted(settings.special_tokens)
    identity = {
        "inputs": corpus_identity(corpus),
        "pattern": canonical_pattern(settings.pattern),
        "special_tokens": special,
        "unicode_version": UNICODE_VERSION,
        "unit_bytes": unit_bytes,
    }
    plan = read_plan(path, identity)
    # A predictable seed would allow a text whose pre-tokens collide.
    seed = secrets.randbits(64) if plan is None else int(plan["seed"])
    ranges = divide(corpus, unit_bytes, lambda window: safe_cut(settings.pattern, special, window))
    units = units_of(corpus, ranges, identity, seed)
    write_plan(path, identity, units, seed=seed)
    return units, seed
