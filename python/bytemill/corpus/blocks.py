"""Reading plain text and JSON lines: streams of bytes, block by block."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bytemill._core import JsonLines, TextSplitter, clean_text
from bytemill.corpus import documents as batches
from bytemill.corpus.chunks import Piece
from bytemill.corpus.messages import SKIP_HINT, not_text_hint
from bytemill.errors import CorpusError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from bytemill._core import BlockDocuments
    from bytemill.corpus.options import CorpusOptions
    from bytemill.corpus.sources import Source
    from bytemill.corpus.streams import ByteStream, OpenFile

    Cut = Callable[[bytes, bool, bool], BlockDocuments]
    """Takes a block, whether it begins inside a document, and whether it is the last one."""

_BOM = b"\xef\xbb\xbf"


def read_text(file: OpenFile, options: CorpusOptions, state: dict[str, Any]) -> Generator[Piece]:
    """The documents of a text file: itself, its lines, or what its separators end."""
    if options.documents != "file":
        splitter = TextSplitter(options.separator, options.encoding_errors, options.on_error == "skip")
        yield from _pieces(file, splitter.split, state)
        return
    if options.on_error == "skip" and options.encoding_errors == "strict" and not state:
        n_bytes_read = _first_malformed(file)
        if n_bytes_read is not None:
            yield _broken_file(n_bytes_read)
            return
    yield from _pieces(
        file, lambda block, _, is_last: clean_text(block, is_last, options.encoding_errors), state
    )


def read_json_lines(file: OpenFile, options: CorpusOptions, state: dict[str, Any]) -> Generator[Piece]:
    """The documents of a file of JSON lines: one field of each line's object."""
    lines = JsonLines(options.path, options.encoding_errors, options.on_error == "skip")

    def cut(block: bytes, _: bool, is_last: bool) -> BlockDocuments:
        return lines.parse(block, len(block) if is_last else block.rfind(b"\n") + 1)

    yield from _pieces(file, cut, state, is_json=True)


def _pieces(file: OpenFile, cut: Cut, state: dict[str, Any], *, is_json: bool = False) -> Generator[Piece]:
    offset, line, is_inside = state.get("offset", 0), state.get("line", 0), state.get("inside", False)
    with file.stream(offset) as stream:
        if is_json and not offset:
            offset = _json_begins(stream, file.source)
        n_bytes = batches.BATCH_BYTES
        while not file.stop.is_set():
            block, is_last = stream.block(n_bytes)
            documents = cut(block, is_inside, is_last)
            if not documents.consumed and not is_last and documents.broken is None:
                n_bytes *= 2  # not one whole document
                continue
            n_bytes = batches.BATCH_BYTES
            error = _broken(file.source, documents, block, offset, line)
            offset += documents.consumed
            line += documents.n_lines
            is_inside = documents.is_open
            after = {"offset": offset, "line": line, "inside": is_inside}
            yield Piece.of(documents, stream.n_bytes_read, after, error)
            if is_last:
                return
            stream.advance(documents.consumed)


def _json_begins(stream: ByteStream, source: Source) -> int:
    """Where the first line begins: behind a byte order mark. Raises `CorpusError` for what is one JSON document."""
    head, _ = stream.block(1 << 12)
    n_bom = len(_BOM) if head.startswith(_BOM) else 0
    stream.advance(n_bom)
    if head[n_bom:].lstrip().startswith(b"["):
        raise CorpusError(
            f"{source.name} is a JSON list, not JSON lines",
            hint=f"make lines of it: jq -c '.[]' {source.name} > lines.jsonl",
        )
    return n_bom


def _broken(
    source: Source, documents: BlockDocuments, block: bytes, offset: int, line: int
) -> CorpusError | None:
    if documents.broken is None:
        return None
    n_lines, place, message = documents.broken
    where = f"{source.name}:{line + n_lines + 1:,}"
    if place is None:
        return CorpusError(f"{where}: {message}", hint=SKIP_HINT)
    hint = not_text_hint(source, block[:4] if not offset else b"", place)
    if hint is None:
        hint = (
            f'encoding_errors="replace" (--encoding-errors replace) reads such bytes as U+FFFD; {SKIP_HINT}'
        )
    return CorpusError(
        f"{where}: byte offset {offset + place} (0x{block[place]:02x}) is not valid UTF-8", hint=hint
    )


def _first_malformed(file: OpenFile) -> int | None:
    """How much of a file is read when it is known to be no UTF-8; None where all of it is."""
    source = file.source
    if source.is_pipe:
        raise CorpusError(
            f"{source.name} can be read only once, so nobody knows beforehand whether it is UTF-8",
            hint='give encoding_errors="replace" (--encoding-errors replace), or documents="line"',
        )
    with file.stream() as stream:
        while not file.stop.is_set():
            block, is_last = stream.block(batches.BATCH_BYTES)
            documents = clean_text(block, is_last, "strict")
            if documents.broken is not None:
                return stream.n_bytes_read
            if is_last:
                break
            stream.advance(documents.consumed)
    return None


def _broken_file(n_bytes_read: int) -> Piece:
    import numpy as np

    return Piece(b"", np.empty(0, np.int64), False, n_bytes_read, {}, n_broken=1)
