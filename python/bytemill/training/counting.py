"""Counting of pre-tokens: choose how to count a corpus, and count it."""

from __future__ import annotations

import importlib
from contextlib import closing
from typing import TYPE_CHECKING, BinaryIO, Literal, TypeAlias, cast

from bytemill.corpus import Corpus, Source, not_utf8
from bytemill.corpus.compression import compression_of
from bytemill.corpus.content import format_of_head
from bytemill.corpus.documents import CorpusCounts, Position
from bytemill.corpus.formats import FORMATS
from bytemill.corpus.readers import checked_texts
from bytemill.corpus.sources import empty_corpus, unreadable
from bytemill.corpus.streams import TextPipe, head_of, open_pipe, plain_text_start
from bytemill.errors import CorpusError, OutputError
from bytemill.training.counting_session import CountingSession, CountingSettings
from bytemill.training.progress import FileProgress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from bytemill.training.counts import CountedCorpus
    from bytemill.training.progress import ReportCounted
    from bytemill.training.work_folder import WorkFolder

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
    progress = FileProgress(report, corpus, session.position.source)
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
        session.reach(Position(number + 1, {}, _one_more(session.position.counts, n_marks)))


def _count_file(session: CountingSession, corpus: Corpus, source: Source, progress: FileProgress) -> int:
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


def _count_pipe(session: CountingSession, corpus: Corpus, source: Source, progress: FileProgress) -> int:
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


def _one_more(counts: CorpusCounts, n_marks: int) -> CorpusCounts:
    changed = {
        "n_documents": counts.n_documents + 1,
        "n_byte_order_marks": counts.n_byte_order_marks + n_marks,
    }
    return CorpusCounts(**{**vars(counts), **changed})


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
