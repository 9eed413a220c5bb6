"""Reader of WARC files, through warcio: extracted text (WET), and web pages."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from bytemill.corpus import documents as batches
from bytemill.corpus.documents import Chunk
from bytemill.corpus.formats import library
from bytemill.corpus.html import is_html, page_text
from bytemill.corpus.options import damaged, document_too_large

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from bytemill.corpus.options import CorpusOptions
    from bytemill.corpus.streams import ByteStream, OpenFile
    from bytemill.errors import CorpusError

_READ_BYTES = 1 << 16


@dataclass(frozen=True)
class WarcRecord:
    """A record of a WARC file."""

    number: int
    """Counted from 1."""
    offset: int
    """Where it begins in the uncompressed file."""
    end: int
    kind: str
    """Its type, such as "response"."""
    content: bytes | None = None
    """The text of a conversion record, or the body of a response that succeeded."""
    url: str | None = None
    content_type: str = ""
    """The content type of a response."""
    error: CorpusError | None = None
    """Why the content is not there: it is too large to be held in memory."""


def read_warc(file: OpenFile, options: CorpusOptions, state: dict[str, Any]) -> Generator[Chunk]:
    """Yield the text of each conversion record and of each web page."""
    offset, n_records = state.get("offset", 0), state.get("records", 0)
    with file.stream(offset) as stream:
        texts, numbers, n_text_bytes, n_large = list[bytes](), list[int](), 0, 0
        records = warc_records(stream, file.name, offset, n_records, options.max_document_bytes)
        while not file.stop.is_set():
            record = next(records, None)
            too_large = None
            if record is not None:
                n_records = record.number
                if record.error is not None:
                    too_large = record.error if options.on_error == "fail" else None
                    n_large += 1
                elif (text := _text(record, file.name)) is not None:
                    texts.append(text)
                    numbers.append(n_records)
                    n_text_bytes += len(text)
                if too_large is None:
                    offset = record.end
                    if n_text_bytes < batches.BATCH_BYTES:
                        continue
            after = {"offset": offset, "records": n_records}
            names = [f"{file.name}: record {number:,}" for number in numbers]
            chunk = Chunk.of_texts(texts, options, stream.n_bytes_read, after, names.__getitem__)
            n_broken = chunk.n_broken + (n_large if options.on_error == "skip" else 0)
            yield replace(chunk, n_broken=n_broken, error=chunk.error or too_large)
            if record is None:
                return
            texts, numbers, n_text_bytes, n_large = [], [], 0, 0


def _text(record: WarcRecord, name: str) -> bytes | None:
    if record.content is None or record.kind == "conversion":
        return record.content
    if not is_html(record.content_type):
        return None
    return page_text(record.content, record.content_type, name=name).text.encode()


def warc_records(
    stream: ByteStream, name: str, offset: int, n_records: int, max_document_bytes: int
) -> Iterator[WarcRecord]:
    """Yield the records of a WARC file.

    Args:
        stream: The file from a record on.
        name: Name of the file.
        offset: Where that record begins.
        n_records: Number of records before it.
        max_document_bytes: Records that are larger have an error.

    Raises:
        CorpusError: The file is damaged.
    """
    archive = library("warcio.archiveiterator", name)
    records = archive.ArchiveIterator(cast("Any", _Tellable(stream, offset)), block_size=_READ_BYTES)
    try:
        for record in records:
            n_records += 1
            where = f"{name}: record {n_records:,}"
            found = WarcRecord(n_records, offset, 0, record.rec_type)
            if record.rec_type in {"conversion", "response"}:
                found = _with_content(found, record, where, max_document_bytes)
            records.read_to_end()
            if records.err_count:
                raise damaged(where, "it does not end where its header says")
            offset = records.offset
            yield replace(found, end=offset)
    except archive.ArchiveLoadFailed as error:
        raise damaged(f"{name}: what follows record {n_records:,}", str(error).splitlines()[0]) from error


def _with_content(found: WarcRecord, record: Any, where: str, max_document_bytes: int) -> WarcRecord:
    """Return the record with its content, if it is text or a response that succeeded."""
    n_declared: str | None = record.rec_headers.get_header("Content-Length")
    found = replace(found, url=record.rec_headers.get_header("WARC-Target-URI"))
    if (n_declared or "").isdecimal() and int(n_declared or 0) > max_document_bytes:
        error = document_too_large(f"{where} at byte offset {found.offset:,}", max_document_bytes)
        return replace(found, error=error)
    content = cast("bytes", record.content_stream().read())
    if record.rec_type == "conversion":
        if n_declared != str(len(content)):
            raise damaged(where, f"it holds {len(content):,} of {n_declared} bytes")
        return replace(found, content=content)
    if record.raw_stream.limit:
        raise damaged(where, f"{record.raw_stream.limit:,} of its {n_declared} bytes are missing")
    headers = record.http_headers
    if headers is None:
        return replace(found, content=content)
    if not (headers.get_statuscode() or "").startswith("2"):
        return found
    return replace(found, content=content, content_type=headers.get_header("Content-Type") or "")


class _Tellable:
    """A stream with the interface that warcio needs."""

    def __init__(self, stream: ByteStream, offset: int) -> None:
        self._stream = stream
        self._offset = offset

    def read(self, n_bytes: int) -> bytes:
        block, _ = self._stream.block(n_bytes)
        self._stream.advance(len(block))
        self._offset += len(block)
        return block

    def tell(self) -> int:
        return self._offset
