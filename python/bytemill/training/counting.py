"""Counting the pre-tokens of a corpus, wherever it comes from: the first half of training."""

from __future__ import annotations

import importlib
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, TypeAlias, cast

from bytemill._core import UNICODE_VERSION, PretokenCounter, PretokenCounts
from bytemill.corpus import Corpus, CorpusInputs, is_texts, iter_texts, not_utf8
from bytemill.corpus.compression import Decompressed, compression_of
from bytemill.corpus.documents import CorpusCounts, Position
from bytemill.corpus.formats import format_of_head
from bytemill.corpus.pipes import open_pipe
from bytemill.corpus.sources import empty_corpus, unreadable
from bytemill.corpus.streams import HEAD_BYTES, head_of
from bytemill.errors import CorpusError, OutputError, TokenizerError
from bytemill.formats.patterns import Pattern, resolve_pattern
from bytemill.profiling import phase
from bytemill.training.counts import (
    CountedCorpus,
    CountsInfo,
    SavedCounts,
    canonical_pattern,
    check_fits,
    check_same_corpus,
    load,
    merge,
    read_info,
    save,
)
from bytemill.training.mixture import common_scale
from bytemill.training.work_folder import WorkFolder

if TYPE_CHECKING:
    import os

    from bytemill.corpus import Source
    from bytemill.training.memory_budget import CountingPlan, MemoryBudget

Report: TypeAlias = Callable[[int, int | None], None]
"""Takes how much is read and how much there is (None: nobody knows): bytes of files, characters of texts."""

CHECKPOINT_SECONDS = 30.0
"""So much work is lost at most when counting is interrupted."""

_BATCH_CHARACTERS = 1 << 20
"""Texts that go to the counting threads together: a call for each would cost more than its work."""

_TABLE_BYTES_A_BYTE = 40
"""What tables take for a byte of text at most: a pre-token of two bytes that is like no other, in a table that has just
grown."""


@dataclass(frozen=True)
class CountingOptions:
    """How a corpus is counted; see `bytemill.train`."""

    special_tokens: Sequence[str] = ()
    pattern: str | None = "gpt2"
    num_threads: int | None = None
    chunk_bytes: int | None = None
    budget: MemoryBudget | None = None
    checkpoint_seconds: float = CHECKPOINT_SECONDS
    """Time between two checkpoints, where the work folder is one that a later run finds."""


def count_pretokens(
    inputs: CorpusInputs | Corpus,
    special_tokens: Sequence[str],
    *,
    pattern: str | Pattern | None = "gpt2",
    errors: Literal["strict", "replace"] = "strict",
    num_threads: int | None = None,
    chunk_bytes: int | None = None,
    report: Report | None = None,
) -> PretokenCounts:
    """The unique pre-tokens of `inputs` and how often each occurs; options as for `bytemill.train`.

    Raises `CorpusError` for a corpus that cannot be read, is empty or is not UTF-8, and whatever `report` and
    an iterable of texts raise.

    >>> counts = count_pretokens(iter(["low low lower"]), [])
    >>> counts.items()
    [(b' low', 1), (b' lower', 1), (b'low', 1)]
    """
    options = CountingOptions(special_tokens, resolve_pattern(pattern), num_threads, chunk_bytes)
    corpus, texts = as_corpus(inputs, errors)
    with WorkFolder() as work:
        return count_corpus(corpus, texts, options, work, report).counts


def as_corpus(
    inputs: CorpusInputs | Corpus, errors: Literal["strict", "replace"] = "strict"
) -> tuple[Corpus | None, Iterable[str] | None]:
    """What is to be counted: a corpus, or an iterable of texts, which go to the core as they are."""
    if isinstance(inputs, Corpus):
        return inputs, None
    if not is_texts(inputs):
        return Corpus(inputs, encoding_errors=errors), None
    items: Iterator[Any] = iter(inputs)
    first = list(itertools.islice(items, 1))
    if first and isinstance(first[0], Mapping):
        # Rows: only the corpus knows their fields. What is no iterator is read from its beginning.
        rows: Any = itertools.chain(first, items) if items is inputs else inputs
        return Corpus(rows, encoding_errors=errors), None
    return None, cast("Iterable[str]", itertools.chain(first, items))


def obtain_counts(
    inputs: CorpusInputs | Corpus | CountedCorpus | SavedCounts,
    errors: Literal["strict", "replace"],
    options: CountingOptions,
    *,
    file: str | os.PathLike[str] | None,
    work: WorkFolder,
    report: Report | None = None,
) -> CountedCorpus:
    """The counts of `inputs`: those of `file` where there is such a file, else counted, and kept in `file`.

    Raises `CorpusError` where the file is of other inputs, or was counted in another way.
    """
    if isinstance(inputs, CountedCorpus):
        check_fits("the corpus", inputs.info, options.pattern, options.special_tokens)
        return inputs
    if isinstance(inputs, SavedCounts):
        for name, _ in inputs.files:
            check_fits(name, read_info(name), options.pattern, options.special_tokens)
        budget = options.budget
        plan = budget.counting(1, None, in_batches=False) if budget else None
        counted = merge(list(inputs.files), plan=plan, work=work)
        if file is not None:
            save(counted, file)
        return counted
    corpus, texts = as_corpus(inputs, errors)
    if file is not None and Path(file).exists():
        info = read_info(file)
        check_fits(file, info, options.pattern, options.special_tokens)
        check_same_corpus(file, info, describe(corpus) if corpus else None)
        return load(file)
    counted = count_corpus(corpus, texts, options, work, report)
    if file is not None:
        save(counted, file)
    return counted


def describe(corpus: Corpus) -> dict[str, Any] | None:
    """What decides the counts of a corpus, beside pattern and special tokens; None where it cannot be read again."""
    if not corpus.can_resume:
        return None
    return {**corpus.description, "weights": _weights(corpus)}


def count_corpus(
    corpus: Corpus | None,
    texts: Iterable[str] | None,
    options: CountingOptions,
    work: WorkFolder,
    report: Report | None = None,
) -> CountedCorpus:
    """Counts `corpus`, or `texts`.

    What does not fit into the budget goes to `work`; so do checkpoints, from which it goes on if it was interrupted.
    """
    counting = _Counting(corpus, options, work)
    try:
        if corpus is None:
            counting.count_texts(texts or (), report)
        elif corpus.is_plain or _is_plain_stream(corpus):
            counting.count_files(corpus, report)
        else:
            counting.count_batches(corpus, report)
        return counting.finish()
    finally:
        counting.close()  # with it end its threads, which the traceback of an exception would keep


@dataclass
class _Counting:
    """One counting."""

    corpus: Corpus | None
    options: CountingOptions
    work: WorkFolder
    position: Position = field(default_factory=Position)
    reading: CorpusCounts = field(default_factory=CorpusCounts)

    def __post_init__(self) -> None:
        corpus, options = self.corpus, self.options
        self._reporter: _FileReporter | None = None
        self._special = sorted(options.special_tokens)
        self._plan: CountingPlan | None = None
        if options.budget is not None:
            in_batches = corpus is None or not corpus.is_plain
            if in_batches:
                importlib.import_module("numpy")  # what it takes is there before what is left is divided
            self._plan = options.budget.counting(
                options.num_threads, options.chunk_bytes, in_batches=in_batches
            )
        self._multiples, self._denominator = common_scale(_weights(corpus) if corpus else [])
        self._counter: PretokenCounter | None = self._new_counter()
        self._last_checkpoint = time.monotonic()
        self._settings: dict[str, Any] | None = None
        if corpus is not None and work_resumes(self.work, corpus):
            self._settings = {
                "inputs": describe(corpus),
                "pattern": canonical_pattern(options.pattern),
                "special_tokens": self._special,
                "unicode_version": UNICODE_VERSION,
            }
            self._resume(self._settings)
        if self._plan is not None and self._may_spill(self._plan):
            self._open_folder()

    def _new_counter(self) -> PretokenCounter:
        options, plan = self.options, self._plan
        if plan is None:
            return PretokenCounter(options.pattern, self._special, options.num_threads, options.chunk_bytes)
        return PretokenCounter(
            options.pattern, self._special, plan.num_threads, plan.chunk_bytes, plan.table_bytes
        )

    @property
    def counter(self) -> PretokenCounter:
        """The core's counter."""
        if self._counter is None:
            raise ValueError("this counting is closed")
        return self._counter

    def close(self) -> None:
        """Ends the threads."""
        self._counter = None

    def _may_spill(self, plan: CountingPlan) -> bool:
        # Compressed text may be of any size.
        if self.corpus is None or not self.corpus.is_plain or (n_bytes := self.corpus.total_bytes) is None:
            return True
        return n_bytes * _TABLE_BYTES_A_BYTE > plan.table_bytes

    def _open_folder(self) -> None:
        self.counter.set_folder(str(self.work.open()))

    # Going on

    def _resume(self, settings: dict[str, Any]) -> None:
        journal = self.work.journal(settings)
        if journal is None:
            return
        try:
            self.counter.resume(journal.state, str(self.work.open()))
        except (TokenizerError, OSError) as error:
            self.work.drop_journal(str(error))
            self._counter = self._new_counter()
            return
        self.position = journal.position
        self.reading = journal.position.counts

    def seconds_left(self) -> float | None:
        """Seconds until the next checkpoint is due; None where there are none."""
        if self._settings is None:
            return None
        return max(0.0, self._last_checkpoint + self.options.checkpoint_seconds - time.monotonic())

    def reach(self, position: Position) -> None:
        """Everything in front of `position` is given to the counter: a place for a checkpoint, if it is time."""
        self.position, self.reading = position, position.counts
        if self._settings is None or self.seconds_left():
            return
        with phase("spill"):
            self._open_folder()
            self.work.keep(self._settings, position, self.counter.checkpoint())
        self._last_checkpoint = time.monotonic()

    # The three kinds of input

    def count_texts(self, texts: Iterable[str], report: Report | None) -> None:
        """Texts, each a document."""
        n_characters = 0
        for batch, n_characters in _batches(iter_texts(texts)):
            self.counter.add_texts(batch)
            if report:
                report(n_characters, None)
        if not n_characters:
            raise CorpusError(
                "the corpus is empty: its texts hold no character", hint="give texts to train on"
            )

    def count_files(self, corpus: Corpus, report: Report | None) -> None:
        """Whole files of text, read by the core."""
        errors = "strict" if corpus.encoding_errors == "strict" else "replace"
        self._reporter = reporter = _FileReporter(report, corpus, self.position.source)
        for number in range(self.position.source, len(corpus.sources)):
            source = corpus.sources[number]
            self.counter.set_weight(self._multiples[number])
            start, is_done = int(self.position.state.get("offset", 0)), False
            while not is_done:
                try:
                    if source.is_pipe:
                        with open_pipe(source) as pipe:
                            self.counter.add_stream(_decompressed(pipe, source), errors, reporter.report)
                        is_done = True
                    else:
                        start, is_done = self.counter.add_file(
                            str(source.path), errors, reporter.report, start, self.seconds_left()
                        )
                except (OSError, UnicodeDecodeError) as error:
                    if error is reporter.raised or isinstance(error, (OutputError, CorpusError)):
                        raise
                    if isinstance(error, UnicodeDecodeError):
                        raise not_utf8(source, error) from error
                    raise unreadable(source.name, error) from error
                if not is_done:
                    self.reach(Position(number, {"offset": start}, self.reading))
            reporter.end_source(source.n_bytes or 0)
            self.reach(Position(number + 1, {}, _one_more(self.reading)))

    def count_batches(self, corpus: Corpus, report: Report | None) -> None:
        """Documents in batches."""
        source = -1
        for batch in corpus.read(self.position):
            if batch.source != source:
                source = batch.source
                self.counter.set_weight(self._multiples[source])
            self.counter.add_documents(batch.data, batch.ends, batch.is_open)
            if report:
                report(batch.n_bytes_read, corpus.total_bytes)
            self.reach(batch.after)

    def finish(self) -> CountedCorpus:
        """What was counted."""
        options = self.options
        with phase("merge runs"):
            counts = self.counter.finish(self._denominator, self._plan is not None)
        if self._reporter is not None:
            self._reporter.report_all(counts.n_bytes)
        reading = self.reading
        if self.corpus is not None and not counts.n_bytes:
            raise empty_corpus(self.corpus.source_names)
        if not reading.n_bytes:  # else the corpus has counted
            reading = CorpusCounts(reading.n_documents, counts.n_bytes, counts.n_replaced)
        info = CountsInfo(
            pattern=canonical_pattern(options.pattern),
            special_tokens=dict(zip(self._special, counts.special_counts, strict=True)),
            n_bytes=counts.n_bytes,
            n_pretokens=counts.n_pretokens,
            reading=reading,
            corpus=describe(self.corpus) if self.corpus else None,
        )
        return CountedCorpus(counts, info, notes=list(self.work.notes))


def work_resumes(work: WorkFolder, corpus: Corpus) -> bool:
    """True where an interrupted counting of `corpus` can be gone on with."""
    return work.can_resume and corpus.can_resume


def _is_plain_stream(corpus: Corpus) -> bool:
    """True where sources are standard input, pipes or plain files, and each is a document that is wanted whole."""
    options = corpus.options
    return (
        bool(corpus.sources)
        and any(source.is_pipe for source in corpus.sources)
        and all(source.remote is None and _may_be_text(source) for source in corpus.sources)
        and options.format in ("auto", "text")
        and options.documents == "file"
        and options.encoding_errors != "skip"
        and options.on_error == "fail"
        and options.limit_bytes is None
        and options.share == 1
    )


def _may_be_text(source: Source) -> bool:
    """True of pipes, of which nobody knows, and of files of text that are not compressed."""
    if source.is_pipe:
        return True
    is_text = source.path is not None and source.path.suffix in ("", ".txt", ".text", ".md")
    return is_text and compression_of(head_of(source)) is None and format_of_head(head_of(source)) == "text"


def _decompressed(pipe: BinaryIO, source: Source) -> BinaryIO:
    """The bytes of a pipe, decompressed where they are compressed."""
    stream = Decompressed(pipe, source.name)
    if (kind := format_of_head(stream.raw.peek(HEAD_BYTES))) != "text":
        raise CorpusError(
            f"{source.name} is no text but {kind}", hint=f"say so: --format {kind} (format={kind!r})"
        )
    return cast("BinaryIO", stream)


def _weights(corpus: Corpus) -> list[float]:
    """How much each source counts; where documents come as often as their weights say, that is done already."""
    repeated = bool(getattr(corpus, "repeat_by_weight", False))
    return [1.0] * len(corpus.source_names) if repeated else list(corpus.weights)


def _one_more(counts: CorpusCounts) -> CorpusCounts:
    return CorpusCounts(**{**vars(counts), "n_documents": counts.n_documents + 1})


def _batches(texts: Iterable[str]) -> Iterator[tuple[list[str], int]]:
    """The texts in batches, each with the number of characters so far."""
    batch: list[str] = []
    n_characters = n_in_batch = 0
    for text in texts:
        batch.append(text)
        n_in_batch += len(text)
        if n_in_batch >= _BATCH_CHARACTERS:
            n_characters += n_in_batch
            yield batch, n_characters
            batch, n_in_batch = [], 0
    if batch:
        yield batch, n_characters + n_in_batch


class _FileReporter:
    """From bytes of one source to bytes of all, which never fall."""

    def __init__(self, report: Report | None, corpus: Corpus, first: int) -> None:
        self._report = report
        self._total = corpus.total_bytes
        self._before = self._done = sum(source.n_bytes or 0 for source in corpus.sources[:first])
        self.raised: Exception | None = None
        """What the callback raised, to be told from what reading raises."""

    def report(self, n_bytes: int) -> None:
        """So many bytes of the source at hand are read."""
        self.report_all(self._before + n_bytes)

    def report_all(self, n_bytes: int) -> None:
        """So many bytes of all sources are read."""
        self._done = max(self._done, n_bytes)
        if self._report is None:
            return
        try:
            self._report(self._done, self._total)
        except Exception as error:
            self.raised = error
            raise

    def end_source(self, n_bytes: int) -> None:
        """The source at hand is read."""
        self.report(n_bytes)
        self._before = self._done
