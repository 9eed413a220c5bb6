"""The documents of a range of a corpus, with what is known of them: where they are, URLs, and web pages to extract."""

from __future__ import annotations

import threading
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bytemill.corpus.html import whole_file
from bytemill.corpus.readers import FileReader
from bytemill.corpus.streams import OpenFile, open_stream
from bytemill.corpus.warc import warc_records
from bytemill.curation.documents import joined
from bytemill.curation.steps import Page, Payload
from bytemill.errors import CorpusError, CurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bytemill.corpus import Corpus, DocumentBatch
    from bytemill.corpus.documents import CorpusRange

_PAGES = ("warc", "html")
"""Formats that hold web pages."""
_ERRORS = {"strict": "strict", "replace": "replace", "skip": "ignore"}
_NOT_UTF8 = 'use errors="replace" (--errors replace), or leave it out with on_error="skip" (--on-error skip)'


@dataclass
class UnitReader:
    """Reads the documents of a unit of work.

    Args:
        corpus: The corpus.
        corpus_range: The part of it.
        number: Number of the unit.
    """

    corpus: Corpus
    corpus_range: CorpusRange
    number: int
    n_bytes_read: int = 0
    """Bytes of the inputs read so far."""
    n_broken: int = 0
    """Documents left out because they are broken (`on_error="skip"`)."""

    def pages(self) -> Iterator[Page]:
        """Yield the documents in order. Raises CorpusError."""
        n_pages, n_before, number = 0, 0, self.corpus_range.first
        while number <= self.corpus_range.last:
            stop = number + 1
            match self._format(number):
                case "warc":
                    found = self._records(number)
                case "html":
                    found = self._html(number)
                case _:
                    while stop <= self.corpus_range.last and self._format(stop) not in _PAGES:
                        stop += 1
                    found = self._texts(number, stop - 1)
            for page, n_read in found:
                self.n_bytes_read = n_before + n_read
                page.id = f"{self.number:05}-{n_pages}"
                n_pages += 1
                yield page
            n_before += sum(source.n_bytes or 0 for source in self.corpus.sources[number:stop])
            number = stop

    def _format(self, number: int) -> str | None:
        return FileReader(self.corpus.sources[number], self.corpus.options).format

    def _html(self, number: int) -> Iterator[tuple[Page, int]]:
        source = self.corpus.sources[number]
        source.check_unchanged()
        data, n_read = whole_file(OpenFile(source, threading.Event()), self.corpus.options.max_document_bytes)
        source.check_unchanged()
        yield Page("", source.name, "", len(data), payload=Payload(data), source_number=number), n_read

    def _records(self, number: int) -> Iterator[tuple[Page, int]]:
        source, options = self.corpus.sources[number], self.corpus.options
        source.check_unchanged()
        with open_stream(source, 0, threading.Event()) as stream:
            for record in warc_records(stream, source.name, 0, 0, options.max_document_bytes):
                if record.error is not None:
                    self._broken(record.error)
                if record.content is None:
                    continue
                page = Page("", source.name, "", len(record.content), record.offset, record.url)
                page.source_number = number
                if record.kind == "response":
                    page.payload = Payload(record.content, record.content_type)
                else:
                    try:
                        page.text = record.content.decode(errors=_ERRORS[options.errors])
                    except UnicodeDecodeError as error:
                        where = f"{source.name}: record {record.number:,}"
                        self._broken(CorpusError(f"{where} is not UTF-8: {error.reason}", hint=_NOT_UTF8))
                        continue
                yield page, stream.n_bytes_read
        source.check_unchanged()

    def _broken(self, error: CorpusError) -> None:
        if self.corpus.options.on_error == "fail":
            raise error
        self.n_broken += 1

    def _texts(self, first: int, last: int) -> Iterator[tuple[Page, int]]:
        """Yield the documents of consecutive sources; of the bytes read only the text is known."""
        whole, n_read = self.corpus_range, 0
        part = replace(
            whole,
            first=first,
            last=last,
            start=whole.start if first == whole.first else 0,
            by_rows=whole.by_rows and first == whole.first,
            stop=whole.stop if last == whole.last else None,
        )
        for batch in joined(self._counted(part)):
            begin, source = 0, self.corpus.source_names[batch.source]
            for end in batch.ends.tolist():
                n_read = min(whole.n_bytes, n_read + end - begin)
                page = Page(str(batch.data[begin:end], "utf-8"), source, "", end - begin)
                page.source_number = batch.source
                yield page, n_read
                begin = end

    def _counted(self, part: CorpusRange) -> Iterator[DocumentBatch]:
        n_broken = 0
        with closing(self.corpus.read_range(part)) as batches:
            for batch in batches:
                n_broken = batch.after.counts.n_broken
                yield batch
        self.n_broken += n_broken


def check_inputs(corpus: Corpus, first_step: str) -> None:
    """Check that a recipe can read the inputs.

    Args:
        corpus: The corpus.
        first_step: The kind of the first step.

    Raises:
        CurationError: An input is a PDF file, or holds web pages and nothing extracts their text; or documents have
            weights, or web pages are to be sampled.
    """
    if any(weight != 1 for weight in corpus.weights):
        raise CurationError("a curation reads every document once", hint="leave out --weight (weights=)")
    for source in corpus.sources:
        name = source.name.lower()
        if name.endswith(".pdf"):
            raise CurationError(
                f"{source.name} is a PDF document", hint="extract its text first (pdftotext), or leave it out"
            )
        # WET files are archives of text.
        if first_step != "extract" and name.endswith((".html", ".htm", ".xhtml", ".warc", ".warc.gz")):
            raise CurationError(
                f"{source.name} holds web pages, and the recipe does not extract their text",
                hint='begin the recipe with [[step]] and use = "extract"',
            )
        if corpus.options.share < 1 and FileReader(source, corpus.options).format in _PAGES:
            raise CurationError(
                f"{source.name} is an archive or a page, of which no sample is taken",
                hint="leave out --sample (sample=), or name fewer files",
            )
