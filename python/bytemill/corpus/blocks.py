"""Readers of plain text and JSON lines, block by block."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from bytemill._core import JsonLines, TextSplitter, clean_text
from bytemill.corpus import documents as batches
from bytemill.corpus.content import HEAD_BYTES, UTF8_BOM, check_text
from bytemill.corpus.documents import Chunk
from bytemill.corpus.options import REPLACE_HINT, SKIP_HINT, choose_field, document_too_large, fields_of
from bytemill.errors import CorpusError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from bytemill._core import BlockDocuments
    from bytemill.corpus.options import CorpusOptions
    from bytemill.corpus.sources import Source
    from bytemill.corpus.streams import ByteStream, OpenFile

    Cut = Callable[[bytes, bool, bool], BlockDocuments]
    """Arguments: a block, whether it begins inside a document, and whether it is the last block."""


_WORD_START = re.compile(rb"\s\S")
"""White space before another character: every pattern ends a pre-token there, so a block may end there. A text that has
no such place is held in memory whole while it is encoded."""


def read_text(file: OpenFile, options: CorpusOptions, state: dict[str, Any]) -> Generator[Chunk]:
    """Yield the documents of a text file: the file, its lines, or what its separators end."""
    if options.documents != "file":
        splitter = TextSplitter(options.separator, options.errors, options.on_error == "skip")
        end = "\n" if options.separator is None else options.separator
        yield from _chunks(file, options, splitter.split, state, end=end.encode())
        return
    if options.on_error == "skip" and options.errors == "strict" and not state:
        n_bytes_read = _first_broken(file, options.max_document_bytes)
        if n_bytes_read is not None:
            yield Chunk.broken(n_bytes_read, {})
            return

    def clean(block: bytes, _: bool, is_last: bool) -> BlockDocuments:
        return clean_text(block, is_last, options.errors)

    yield from _chunks(file, options, clean, state)


def read_json_lines(file: OpenFile, options: CorpusOptions, state: dict[str, Any]) -> Generator[Chunk]:
    """Yield the documents of a JSON lines file: one field of each line's object."""
    lines = JsonLines(options.path, options.errors, options.on_error == "skip")

    def cut(block: bytes, _: bool, is_last: bool) -> BlockDocuments:
        return lines.parse(block, len(block) if is_last else block.rfind(b"\n") + 1)

    yield from _chunks(file, options, cut, state, is_json=True)


def _chunks(
    file: OpenFile,
    options: CorpusOptions,
    cut: Cut,
    state: dict[str, Any],
    *,
    end: bytes = b"\n",
    is_json: bool = False,
) -> Generator[Chunk]:
    """Cut a stream into documents; `end` ends the documents that are held as a whole."""
    offset, is_inside = state.get("offset", 0), state.get("inside", False)
    # A part of a file begins at an offset whose line is not known until an error has to name it.
    line = state.get("line", 0)
    first = offset if "line" not in state else 0
    with file.stream(offset) as stream:
        n_marks = 0
        if not offset:
            offset = _text_start(stream, file.name, options, is_json=is_json)
            n_marks = 1 if offset else 0
        block_bytes, n_unbroken = batches.BATCH_BYTES, 0
        while not file.stop.is_set():
            block = b""  # free the last block before the next
            block, is_last = stream.block(block_bytes)
            documents = cut(block, is_inside, is_last)
            if not documents.consumed and not is_last and documents.broken is None:
                # The block is smaller than the document.
                if block_bytes <= options.max_document_bytes:
                    block_bytes = min(2 * block_bytes, options.max_document_bytes + 1)
                    continue
                if options.on_error == "fail":
                    line += _n_lines_before(file, first)
                    where = f"{file.name}:{line + 1:,}: the document at byte offset {offset:,}"
                    after = {"offset": offset, "line": line, "inside": is_inside}
                    error = document_too_large(where, options.max_document_bytes)
                    yield replace(Chunk.broken(stream.n_bytes_read, after), n_broken=0, error=error)
                    return
                block = b""
                n_bytes, n_lines = _skip_document(stream, end)
                offset, line = offset + n_bytes, line + n_lines
                after = {"offset": offset, "line": line, "inside": False}
                yield Chunk.broken(stream.n_bytes_read, after)
                block_bytes, is_inside = batches.BATCH_BYTES, False
                continue
            block_bytes = batches.BATCH_BYTES
            if documents.broken is not None:
                line += _n_lines_before(file, first)
            error = _broken(file.source, documents, block, offset, line, options.field if is_json else None)
            n_unbroken = 0 if _WORD_START.search(block) else n_unbroken + len(block)
            if documents.is_open and n_unbroken > options.max_document_bytes:
                error = _unbroken(f"{file.name}:{line + 1:,}", offset, options.max_document_bytes)
            offset += documents.consumed
            line += documents.n_lines
            is_inside = documents.is_open
            after = {"offset": offset, "line": line, "inside": is_inside}
            yield Chunk.of(documents, stream.n_bytes_read, after, error, n_byte_order_marks=n_marks)
            n_marks = 0
            if is_last:
                return
            stream.advance(documents.consumed)


def _n_lines_before(file: OpenFile, offset: int) -> int:
    """Count the lines before an offset."""
    n_lines = 0
    if offset:
        with file.stream() as stream:
            while offset > 0:
                block, _ = stream.block(min(offset, batches.BATCH_BYTES))
                n_lines += block.count(b"\n")
                stream.advance(len(block))
                offset -= len(block)
                if not block:
                    break
    return n_lines


def _text_start(stream: ByteStream, name: str, options: CorpusOptions, *, is_json: bool) -> int:
    """Advance past a byte-order mark; return its size. Raises `CorpusError` for what is not text or JSON lines."""
    head, _ = stream.block(HEAD_BYTES)
    check_text(name, head, "jsonl" if is_json else "text", is_chosen=options.format == "text")
    n_bytes = len(UTF8_BOM) if head.startswith(UTF8_BOM) else 0
    stream.advance(n_bytes)
    if is_json and head[n_bytes:].lstrip().startswith(b"["):
        raise CorpusError(
            f"{name} is a JSON list, not JSON lines",
            hint=f"convert it to lines: jq -c '.[]' {name} > lines.jsonl",
        )
    return n_bytes


def _skip_document(stream: ByteStream, end: bytes) -> tuple[int, int]:
    """Advance past the end of the current document; return the bytes and lines skipped."""
    n_bytes = n_lines = 0
    while True:
        block, is_last = stream.block(batches.BATCH_BYTES)
        found = block.find(end)
        # The end may lie across two blocks.
        n_skipped = len(block) if is_last else len(block) - len(end) + 1
        if found >= 0:
            n_skipped = found + len(end)
        n_lines += block.count(b"\n", 0, n_skipped)
        stream.advance(n_skipped)
        n_bytes += n_skipped
        if found >= 0 or is_last:
            return n_bytes, n_lines


def _broken(  # noqa: PLR0917 - what is broken, and where
    source: Source, documents: BlockDocuments, block: bytes, offset: int, line: int, field: str | None
) -> CorpusError | None:
    if documents.broken is None:
        return None
    n_lines, position, message = documents.broken
    where = f"{source.name}:{line + n_lines + 1:,}"
    if position is None:
        hints = [] if field is None else _choose_json_field(block, n_lines, field)
        if not hints or line + n_lines:  # without a field in the first line all documents would be left out
            hints.append(SKIP_HINT)
        return CorpusError(f"{where}: {message}", hint="; ".join(hints))
    return CorpusError(
        f"{where}: byte offset {offset + position} (0x{block[position]:02x}) is not valid UTF-8",
        hint=f"{REPLACE_HINT}; {SKIP_HINT}",
    )


def _choose_json_field(block: bytes, n_lines: int, field: str) -> list[str]:
    """Return a hint that names the fields of a line; none if the wanted one is there, or it is not an object."""
    line = next(islice(io.BytesIO(block), n_lines, None), b"")
    try:
        fields = fields_of(json.loads(line.decode(errors="replace")))
    except (ValueError, RecursionError):
        return []
    return [choose_field(field, fields, "--field (field=)")] if fields and field not in fields else []


def _unbroken(where: str, offset: int, max_document_bytes: int) -> CorpusError:
    return CorpusError(
        f"{where}: the text at byte offset {offset:,} has no white space within max_document_bytes "
        f"({max_document_bytes:,})",
        hint="check that the file is text, or raise max_document_bytes (--max-document-bytes)",
    )


def _first_broken(file: OpenFile, max_document_bytes: int) -> int | None:
    """Read a file until it is not UTF-8 or a pre-token is too large; return the bytes read, or None if all is well."""
    source = file.source
    if source.is_pipe:
        raise CorpusError(
            f"{source.name} can be read only once, so it cannot be checked to be UTF-8 beforehand",
            hint='use errors="replace" (--errors replace) or documents="line" (--documents line)',
        )
    n_unbroken = 0
    with file.stream() as stream:
        while not file.stop.is_set():
            block, is_last = stream.block(batches.BATCH_BYTES)
            documents = clean_text(block, is_last, "strict")
            n_unbroken = 0 if _WORD_START.search(block) else n_unbroken + len(block)
            if documents.broken is not None or n_unbroken > max_document_bytes:
                return stream.n_bytes_read
            if is_last:
                break
            stream.advance(documents.consumed)
    return None
