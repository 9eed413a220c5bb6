"""Counting of pre-tokens: a counting in progress with its checkpoints, and how a corpus is counted."""

from __future__ import annotations

import importlib
import time
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, TypeAlias, cast

from bytemill._core import UNICODE_VERSION, PretokenCounter
from bytemill.corpus import Corpus, Source, not_utf8
from bytemill.corpus.compression import compression_of
from bytemill.corpus.content import format_of_head
from bytemill.corpus.documents import CorpusCounts, Position
from bytemill.corpus.formats import FORMATS
from bytemill.corpus.readers import checked_texts
from bytemill.corpus.sources import empty_corpus, unreadable
from bytemill.corpus.streams import TextPipe, head_of, open_pipe, plain_text_start
from bytemill.errors import CorpusError, OutputError, TokenizerError
from bytemill.profiling import phase
from bytemill.training.counts import (
    CountedCorpus,
    CountsInfo,
    canonical_pattern,
    common_scale,
    exact_weight,
    finish_weighted,
)
from bytemill.training.options import CHECKPOINT_SECONDS, SPECIAL_TOKENS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from bytemill.tokenizer.tokenizer import Tokenizer
    from bytemill.training.memory_budget import CountingPlan, MemoryBudget
    from bytemill.training.work_folder import WorkFolder


ReportCounted: TypeAlias = "Callable[[int, int | None], None]"
"""Takes the amount read and the total (None if unknown): bytes of files, or characters of texts."""

_TABLE_BYTES_PER_BYTE = 40
"""Upper bound on table bytes per byte of text: all pre-tokens have two bytes and are different, and the table has just
grown."""


@dataclass(frozen=True)
class CountingSettings:
    """What to count and within which limits; see `bytemill.train`."""

    special_tokens: Sequence[str] = SPECIAL_TOKENS
    pattern: str | None = "gpt2"
    num_threads: int | None = None
    chunk_bytes: int | None = None
    budget: MemoryBudget | None = None
    checkpoint_seconds: float = CHECKPOINT_SECONDS
    base: Tokenizer | None = None
    """Count the pre-tokens that this tokenizer merges. Special tokens and pattern are its own."""

    @property
    def rules(self) -> str | None:
        """What besides pattern and special tokens determines pre-tokens."""
        return None if self.base is None else self.base.text_rules


class CountingSession:
    """A counting in progress.

    Resumes from a checkpoint in the work folder if there is one for the same corpus and settings.

    Args:
        corpus: The corpus, or None for texts.
        settings: What to count and within which limits.
        work: Folder for runs and checkpoints.
    """

    def __init__(self, corpus: Corpus | None, settings: CountingSettings, work: WorkFolder) -> None:
        self._corpus = corpus
        self._settings = settings
        self._work = work
        self._special = sorted(settings.special_tokens)
        self._identity = None if corpus is None else corpus_identity(corpus)
        weights = [1.0] if corpus is None else corpus_weights(corpus)
        self._multiples, self._denominator = common_scale(weights)
        self._unit = str(min(map(exact_weight, weights)))
        self._plan: CountingPlan | None = None
        if settings.budget is not None:
            in_batches = corpus is None or not corpus.is_plain
            self._plan = settings.budget.counting(
                settings.num_threads, settings.chunk_bytes, in_batches=in_batches
            )
        self._counter: PretokenCounter | None = self._new_counter()
        self.position = Position()
        """Everything before this position is counted."""
        self._last_checkpoint = time.monotonic()
        self._has_checkpoints = self._identity is not None and work.can_resume
        if self._has_checkpoints:
            self._resume()
        if self._plan is not None and self._may_spill(self._plan):
            self._open_folder()

    @property
    def counter(self) -> PretokenCounter:
        """The core's counter."""
        if self._counter is None:
            raise ValueError("this counting session is closed")
        return self._counter

    def set_source(self, number: int) -> None:
        """Count what follows with the weight of a source."""
        self.counter.set_weight(self._multiples[number])

    def seconds_left(self) -> float | None:
        """Return the seconds until the next checkpoint; None if there are no checkpoints."""
        if not self._has_checkpoints:
            return None
        return max(0.0, self._last_checkpoint + self._settings.checkpoint_seconds - time.monotonic())

    def reach(self, position: Position) -> None:
        """Record that everything before `position` is counted, and write a checkpoint if it is due."""
        self.position = position
        if self.seconds_left() != 0:
            return
        with phase("spill"):
            self._open_folder()
            self._work.keep(self._fingerprint(), position, self.counter.checkpoint())
            self._last_checkpoint = time.monotonic()

    def finish(self) -> CountedCorpus:
        """Return the counts."""
        with phase("merge runs"):
            counts = finish_weighted(self.counter, self._denominator, may_stay=self._plan is not None)
        reading = self.position.counts
        if not reading.n_bytes:  # the core has read the text itself
            reading = CorpusCounts(
                reading.n_documents,
                counts.n_bytes,
                counts.n_replaced,
                n_byte_order_marks=reading.n_byte_order_marks,
            )
        info = CountsInfo(
            pattern=canonical_pattern(self._settings.pattern),
            special_tokens=dict(zip(self._special, counts.special_counts, strict=True)),
            n_bytes=counts.n_bytes,
            n_pretokens=counts.n_pretokens,
            reading=reading,
            corpus=self._identity,
            unit=self._unit,
            rules=self._settings.rules,
        )
        return CountedCorpus(counts, info, notes=list(self._work.notes))

    def close(self) -> None:
        """End the counter's threads, which the traceback of an exception would keep alive."""
        self._counter = None

    def _new_counter(self) -> PretokenCounter:
        settings, plan = self._settings, self._plan
        num_threads = settings.num_threads if plan is None else plan.num_threads
        chunk_bytes = settings.chunk_bytes if plan is None else plan.chunk_bytes
        table_bytes = None if plan is None else plan.table_bytes
        if settings.base is not None:
            return PretokenCounter.of_encoder(
                settings.base.own_core("counting"), num_threads, chunk_bytes, table_bytes
            )
        return PretokenCounter(settings.pattern, self._special, num_threads, chunk_bytes, table_bytes)

    def _fingerprint(self) -> dict[str, Any]:
        """Return what must be equal to resume from a checkpoint."""
        return {
            "inputs": self._identity,
            "pattern": canonical_pattern(self._settings.pattern),
            "special_tokens": self._special,
            "unicode_version": UNICODE_VERSION,
            **({} if self._settings.rules is None else {"rules": self._settings.rules}),
        }

    def _resume(self) -> None:
        journal = self._work.journal(self._fingerprint())
        if journal is None:
            return
        try:
            self.counter.resume(journal.state, str(self._work.open()))
        except (TokenizerError, OSError) as error:
            self._work.drop_journal(str(error))
            self._counter = self._new_counter()
            return
        self.position = journal.position

    def _may_spill(self, plan: CountingPlan) -> bool:
        # The decompressed size of compressed text is unknown.
        if self._corpus is None or not self._corpus.is_plain or (n_bytes := self._corpus.total_bytes) is None:
            return True
        return n_bytes * _TABLE_BYTES_PER_BYTE > plan.table_bytes

    def _open_folder(self) -> None:
        self.counter.set_folder(str(self._work.open()))


def corpus_identity(corpus: Corpus) -> dict[str, Any] | None:
    """Return what determines the counts of a corpus besides pattern and special tokens.

    None if the corpus cannot be read a second time.
    """
    if not corpus.can_resume:
        return None
    return {**corpus.description, "weights": corpus_weights(corpus)}


def corpus_weights(corpus: Corpus) -> list[float]:
    """Return how much each source counts; repeated documents are weighted already."""
    return [1.0] * len(corpus.source_names) if corpus.repeat_by_weight else list(corpus.weights)


CountFunction: TypeAlias = "Callable[[CountingSession, Corpus, ReportCounted | None], None]"

_BATCH_CHARACTERS = 1 << 20
"""Texts are counted in batches of this size, because a call per text would cost more than its work."""


def count_corpus(
    corpus: Corpus, settings: CountingSettings, work: WorkFolder, report: ReportCounted | None = None
) -> CountedCorpus:
    """Count the pre-tokens of a corpus.

    Args:
        corpus: The corpus.
        settings: What to count and within which limits.
        work: Folder for runs that do not fit into memory, and for checkpoints; an interrupted counting resumes there.
        report: Progress callback.

    Raises:
        CorpusError: The corpus is empty, cannot be read, or is not UTF-8.
    """
    count = choose_counter(corpus)
    if settings.budget is not None and count is count_documents:
        importlib.import_module("numpy")  # its memory must be in use before the rest is divided
    with closing(CountingSession(corpus, settings, work)) as session:
        count(session, corpus, report)
        if count is count_files:
            corpus.check_content()
        counted = session.finish()
    if not counted.counts.n_bytes:
        raise empty_corpus(corpus.source_names)
    return counted


def count_texts(
    texts: Iterable[str], settings: CountingSettings, work: WorkFolder, report: ReportCounted | None = None
) -> CountedCorpus:
    """Count the pre-tokens of texts, each a document; see `count_corpus`. The total in reports is None."""
    with closing(CountingSession(None, settings, work)) as session:
        n_characters = 0
        for batch, n_characters in _batches(checked_texts(texts)):
            session.counter.add_texts(batch)
            if report:
                report(n_characters, None)
        if not n_characters:
            raise CorpusError(
                "the corpus is empty: its texts contain no characters", hint="pass texts to train on"
            )
        return session.finish()


def choose_counter(corpus: Corpus) -> CountFunction:
    """Choose how to count: the core reads files of plain text and pipes itself, other corpora come as documents."""
    return count_files if corpus.is_plain or _is_plain_stream(corpus) else count_documents


def count_files(session: CountingSession, corpus: Corpus, report: ReportCounted | None) -> None:
    """Count entire files of plain text, standard input and pipes, read by the core."""
    progress = _FileProgress(report, corpus, session.position.source)
    for number in range(session.position.source, len(corpus.sources)):
        source = corpus.sources[number]
        session.set_source(number)
        try:
            n_marks = (_count_pipe if source.is_pipe else _count_file)(session, corpus, source, progress)
        except (OSError, UnicodeDecodeError) as error:
            if error is progress.raised or isinstance(error, (OutputError, CorpusError)):
                raise
            source.check_unchanged()
            if isinstance(error, UnicodeDecodeError):
                raise not_utf8(source, error) from error
            raise unreadable(source.name, error) from error
        progress.finish_file(source.n_bytes or 0)
        known = session.position.counts
        counts = replace(
            known,
            n_documents=known.n_documents + 1,
            n_byte_order_marks=known.n_byte_order_marks + n_marks,
        )
        session.reach(Position(number + 1, {}, counts))


def _count_file(session: CountingSession, corpus: Corpus, source: Source, progress: _FileProgress) -> int:
    """Count a file, with checkpoints; return the number of byte-order marks dropped."""
    source.check_unchanged()
    text_start = plain_text_start(source, corpus.options.format)
    start, is_finished = int(session.position.state.get("offset", text_start)), False
    while True:
        start, is_finished = session.counter.add_file(
            str(source.path), _errors(corpus), progress.in_file, start, session.seconds_left()
        )
        source.check_unchanged()
        if is_finished:
            return 1 if text_start else 0
        session.reach(Position(session.position.source, {"offset": start}, session.position.counts))


def _count_pipe(session: CountingSession, corpus: Corpus, source: Source, progress: _FileProgress) -> int:
    """Count a pipe; return the number of byte-order marks dropped."""
    with open_pipe(source) as pipe:
        stream = TextPipe(pipe, source, corpus.options.format)
        try:
            session.counter.add_stream(cast("BinaryIO", stream), _errors(corpus), progress.in_file)
        except UnicodeDecodeError as error:
            if error is not progress.raised:
                error.start += stream.start
            raise
        progress.in_file(stream.n_read)
        return 1 if stream.start else 0


def count_documents(session: CountingSession, corpus: Corpus, report: ReportCounted | None) -> None:
    """Count a corpus in batches of documents."""
    number = -1
    for batch in corpus.read(session.position):
        if batch.source != number:
            number = batch.source
            session.set_source(number)
        session.counter.add_documents(batch.data, batch.ends, batch.is_open)
        if report:
            report(batch.n_bytes_read, corpus.total_bytes)
        session.reach(batch.after)


def _errors(corpus: Corpus) -> Literal["strict", "replace"]:
    return "strict" if corpus.options.errors == "strict" else "replace"


def _is_plain_stream(corpus: Corpus) -> bool:
    """Check for standard input and pipes, possibly among plain files, each an entire document."""
    options = corpus.options
    return (
        any(source.is_pipe for source in corpus.sources)
        and all(source.remote is None and _may_be_text(source) for source in corpus.sources)
        and options.format in ("auto", "text")
        and options.documents == "file"
        and options.errors != "skip"
        and options.on_error == "fail"
        and options.limit_bytes is None
        and options.share == 1
    )


def _may_be_text(source: Source) -> bool:
    """Check for a pipe, whose content is unknown, or an uncompressed text file."""
    if source.is_pipe:
        return True
    is_text = source.path is not None and source.path.suffix in ("", *FORMATS["text"].suffixes)
    return is_text and compression_of(head_of(source)) is None and format_of_head(head_of(source)) == "text"


def _batches(texts: Iterable[str]) -> Iterator[tuple[list[str], int]]:
    """Yield the texts in batches, each with the number of characters so far."""
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


class _FileProgress:
    """Converts bytes read of one file to bytes read of all files, which never decrease.

    Args:
        report: The callback, or None.
        corpus: The corpus.
        first: Number of the file to start with.
    """

    def __init__(self, report: ReportCounted | None, corpus: Corpus, first: int) -> None:
        self._report = report
        self._total = corpus.total_bytes
        self._finished_bytes = self._done = sum(source.n_bytes or 0 for source in corpus.sources[:first])
        self.raised: Exception | None = None
        """The exception raised by the callback, to tell it from those of reading."""

    def in_file(self, n_bytes: int) -> None:
        """Report bytes read of the current file."""
        self._done = max(self._done, self._finished_bytes + n_bytes)
        if self._report is None:
            return
        try:
            self._report(self._done, self._total)
        except Exception as error:
            self.raised = error
            raise

    def finish_file(self, n_bytes: int) -> None:
        """Report that the current file, of `n_bytes`, is finished."""
        self.in_file(n_bytes)
        self._finished_bytes = self._done
