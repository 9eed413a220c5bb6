"""Reader of WARC files of extracted text (WET), through warcio."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from bytemill.corpus import documents as batches
from bytemill.corpus.documents import Chunk
from bytemill.corpus.formats import library
from bytemill.corpus.options import damaged, document_too_large
from bytemill.errors import CorpusError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from bytemill.corpus.options import CorpusOptions
    from bytemill.corpus.streams import ByteStream, OpenFile

_READ_BYTES = 1 << 16


def read_warc(file: OpenFile, options: CorpusOptions, state: dict[str, Any]) -> Generator[Chunk]:
    """Yield the text of each conversion record."""
    offset, n_records = state.get("offset", 0), state.get("records", 0)
    with file.stream(offset) as stream:
        texts, numbers, n_text_bytes, n_large = list[bytes](), list[int](), 0, 0
        records = _records(stream, file.name, offset, n_records, options.max_document_bytes)
        while not file.stop.is_set():
            record = next(records, None)
            too_large = None
            if record is not None:
                end, text = record
                n_records += 1
                if isinstance(text, CorpusError):
                    too_large = text if options.on_error == "fail" else None
                    n_large += 1
                elif text is not None:
                    texts.append(text)
                    numbers.append(n_records)
                    n_text_bytes += len(text)
                if too_large is None:
                    offset = end
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


def _records(
    stream: ByteStream, name: str, offset: int, n_records: int, max_document_bytes: int
) -> Iterator[tuple[int, bytes | CorpusError | None]]:
    """Yield the end of each record with its text: None if it holds none, an error if it is too large to read.

    Raises:
        CorpusError: The file is damaged or holds web pages.
    """
    archive = library("warcio.archiveiterator", name)
    records = archive.ArchiveIterator(cast("Any", _Tellable(stream, offset)), block_size=_READ_BYTES)
    try:
        for record in records:
            n_records += 1
            where = f"{name}: record {n_records:,}"
            if record.rec_type == "response":
                raise CorpusError(
                    f"{where} is a web page; only conversion records hold text",
                    hint="use the WET file, which holds the text of the pages, or extract the text first",
                )
            n_declared: str | None = record.rec_headers.get_header("Content-Length")
            text: bytes | CorpusError | None = None
            if record.rec_type == "conversion":
                if (n_declared or "").isdecimal() and int(n_declared or 0) > max_document_bytes:
                    text = document_too_large(f"{where} at byte offset {offset:,}", max_document_bytes)
                else:
                    text = cast("bytes", record.content_stream().read())
                    if n_declared != str(len(text)):
                        raise damaged(where, f"it holds {len(text):,} of {n_declared} bytes")
            records.read_to_end()
            if records.err_count:
                raise damaged(where, "it does not end where its header says")
            offset = records.offset
            yield offset, text
    except archive.ArchiveLoadFailed as error:
        raise damaged(f"{name}: what follows record {n_records:,}", str(error).splitlines()[0]) from error


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
