"""Reading WARC files of extracted text (WET), through warcio."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from bytemill._core import check_documents
from bytemill.corpus import documents as batches
from bytemill.corpus import libraries
from bytemill.corpus.chunks import Piece
from bytemill.corpus.messages import SKIP_HINT
from bytemill.errors import CorpusError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from bytemill.corpus.options import CorpusOptions
    from bytemill.corpus.streams import ByteStream, OpenFile

_READ_BYTES = 1 << 16


def read_warc(file: OpenFile, options: CorpusOptions, state: dict[str, Any]) -> Generator[Piece]:
    """The text of each conversion record."""
    import numpy as np

    offset, n_records = state.get("offset", 0), state.get("records", 0)
    with file.stream(offset) as stream:
        packed, ends, numbers = bytearray(), list[int](), list[int]()
        records = _records(stream, file.name, offset, n_records)
        while not file.stop.is_set():
            record = next(records, None)
            if record is not None:
                offset, text = record
                n_records += 1
                if text is not None:
                    packed += text
                    ends.append(len(packed))
                    numbers.append(n_records)
                if len(packed) < batches.BATCH_BYTES:
                    continue
            documents = check_documents(
                bytes(packed),
                np.array(ends, np.int64),
                None,
                options.encoding_errors,
                options.on_error == "skip",
            )
            error = None
            if documents.broken is not None:
                number, place, _ = documents.broken
                error = CorpusError(
                    f"{file.name}: record {numbers[number]:,}: byte offset {place} of the text is not valid UTF-8",
                    hint=SKIP_HINT,
                )
            yield Piece.of(documents, stream.n_bytes_read, {"offset": offset, "records": n_records}, error)
            if record is None:
                return
            packed, ends, numbers = bytearray(), [], []


def _records(
    stream: ByteStream, name: str, offset: int, n_records: int
) -> Iterator[tuple[int, bytes | None]]:
    """Where each record ends, and its text, None for one that holds none. Raises `CorpusError`."""
    archive = libraries.warcio(name)
    records = archive.ArchiveIterator(cast("Any", _Tellable(stream, offset)), block_size=_READ_BYTES)
    try:
        for record in records:
            n_records += 1
            where = f"{name}: record {n_records:,}"
            if record.rec_type == "response":
                raise CorpusError(
                    f"{where} is a web page; text is read from conversion records alone",
                    hint="take the WET file, which holds the text of the pages, or extract it first",
                )
            text = record.content_stream().read() if record.rec_type == "conversion" else None
            n_declared = record.rec_headers.get_header("Content-Length")
            if text is not None and n_declared != str(len(text)):
                raise _damaged(where, f"it holds {len(text):,} bytes of {n_declared}")
            records.read_to_end()
            if records.err_count:
                raise _damaged(where, "it does not end where it says")
            yield records.offset, text
    except archive.ArchiveLoadFailed as error:
        raise _damaged(f"{name}: what follows record {n_records:,}", str(error).splitlines()[0]) from error


def _damaged(where: str, why: str) -> CorpusError:
    return CorpusError(f"{where} is damaged: {why}", hint="get the file anew, or leave it out")


class _Tellable:
    """A stream as warcio wants it."""

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
