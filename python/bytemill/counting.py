"""Counting the pre-tokens of a corpus, wherever it comes from: the first half of training."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, TypeAlias

from bytemill._core import PretokenCounter, PretokenCounts
from bytemill.corpus import CorpusInputs, Source, is_texts, iter_texts, not_utf8, resolve_inputs
from bytemill.corpus.sources import empty_corpus, unreadable
from bytemill.errors import CorpusError

Report: TypeAlias = Callable[[int, int | None], None]
"""Takes how much is read and how much there is (None: nobody knows): bytes of files, characters of texts."""

_BATCH_CHARACTERS = 1 << 20
"""Texts that go to the counting threads together: a call for each would cost more than its work."""


def count_pretokens(
    inputs: CorpusInputs,
    special_tokens: Sequence[str],
    *,
    pattern: str | None = "gpt2",
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

    def new_counter() -> PretokenCounter:
        return PretokenCounter(pattern, special_tokens, num_threads, chunk_bytes)

    if is_texts(inputs):
        return _count_texts(new_counter, inputs, report)
    return _count_files(new_counter, resolve_inputs(inputs), errors, report)


def _count_texts(
    new_counter: Callable[[], PretokenCounter], texts: Iterable[str], report: Report | None
) -> PretokenCounts:
    counter = new_counter()
    try:
        for batch, n_characters in _batches(iter_texts(texts)):
            counter.add_texts(batch)
            if report:
                report(n_characters, None)
        counts = counter.finish()
    finally:
        del counter  # with it end its threads, which the traceback of an exception would keep
    if not counts.n_bytes:
        raise CorpusError("the corpus is empty: its texts hold no character", hint="give texts to train on")
    return counts


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


def _count_files(
    new_counter: Callable[[], PretokenCounter],
    sources: list[Source],
    errors: Literal["strict", "replace"],
    report: Report | None,
) -> PretokenCounts:
    reporter = _FileReporter(report, sources)
    counter = new_counter()
    try:
        for source in sources:
            _count_source(counter, source, errors, reporter)
            reporter.end_source(source)
        counts = counter.finish()
    finally:
        del counter  # with it end its threads, which the traceback of an exception would keep
    if not counts.n_bytes:
        raise empty_corpus([source.name for source in sources])
    reporter.report_all(counts.n_bytes)
    return counts


def _count_source(
    counter: PretokenCounter,
    source: Source,
    errors: Literal["strict", "replace"],
    reporter: _FileReporter,
) -> None:
    try:
        if source.path is not None and source.n_bytes is not None:
            counter.add_file(str(source.path), errors, reporter.report)
        else:
            # A pipe may keep one waiting, and only Python's own open and read hear Ctrl-C meanwhile.
            with source.open() as stream:
                counter.add_stream(stream, errors, reporter.report)
    except (OSError, UnicodeDecodeError) as error:
        if error is reporter.raised:
            raise
        if isinstance(error, UnicodeDecodeError):
            raise not_utf8(source, error) from error
        raise unreadable(source.name, error) from error


class _FileReporter:
    """From bytes of one source to bytes of all, which never fall."""

    def __init__(self, report: Report | None, sources: list[Source]) -> None:
        sizes = [source.n_bytes for source in sources]
        self._report = report
        self._total = sum(size or 0 for size in sizes) if None not in sizes else None
        self._before = self._done = 0
        self.raised: Exception | None = None
        """What the callback raised, to be told from what reading raises."""

    def report(self, n_bytes: int) -> None:
        """So many bytes of the source at hand are read."""
        self.report_all(self._before + n_bytes)

    def end_source(self, source: Source) -> None:
        """The source at hand is read."""
        self.report(source.n_bytes or 0)
        self._before = self._done

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
