"""Readers of a column of CSV and TSV files: blocks of whole rows, which pyarrow parses."""

from __future__ import annotations

import contextlib
import csv
import io
import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from bytemill.corpus import documents as batches
from bytemill.corpus.columns import ColumnReader, failures
from bytemill.corpus.content import HEAD_BYTES, UTF8_BOM, check_text
from bytemill.corpus.documents import Chunk
from bytemill.corpus.formats import library
from bytemill.corpus.options import SKIP_HINT, damaged, document_too_large
from bytemill.errors import CorpusError

if TYPE_CHECKING:
    from collections.abc import Generator

    from bytemill.corpus.options import CorpusOptions
    from bytemill.corpus.streams import ByteStream, OpenFile

_MAX_HEADER_BYTES = 1 << 20


def read_csv(file: OpenFile, options: CorpusOptions, state: dict[str, Any]) -> Generator[Chunk]:
    """Yield a column of a CSV file whose first row has the names of the columns."""
    return _read(file, options, state, _Dialect("CSV", ","))


def read_tsv(file: OpenFile, options: CorpusOptions, state: dict[str, Any]) -> Generator[Chunk]:
    """Yield a column of a file with tabs between the columns; otherwise as `read_csv`."""
    return _read(file, options, state, _Dialect("TSV", "\t"))


def _read(
    file: OpenFile, options: CorpusOptions, state: dict[str, Any], dialect: _Dialect
) -> Generator[Chunk]:
    with contextlib.ExitStack() as stack:
        stream = stack.enter_context(file.stream())
        start = _text_start(stream, file.name, dialect)
        head, is_all = stream.block(_MAX_HEADER_BYTES)
        columns, n_header_bytes = dialect.header(file.name, head[start:], is_last=is_all)
        if not columns:
            return
        reader = ColumnReader(file.name, options)
        if options.field not in columns:
            raise reader.no_column(columns)
        offset, row = state.get("offset", start + n_header_bytes), state.get("row", 0)
        if state:
            stream = stack.enter_context(file.stream(offset))
        else:
            stream.advance(offset)
        n_marks = int(start > 0 and not state)
        block_bytes, is_last = batches.BATCH_BYTES, False
        while not is_last and not file.stop.is_set():
            block, is_last = stream.block(block_bytes)
            n_consumed = dialect.end_of_rows(block, is_last=is_last)
            if not n_consumed and not is_last:
                if block_bytes <= options.max_document_bytes:
                    block_bytes = min(2 * block_bytes, options.max_document_bytes + 1)
                    continue
                if options.on_error == "fail":
                    raise document_too_large(f"{file.name}: row {row + 1:,}", options.max_document_bytes)
                block, block_bytes = b"", batches.BATCH_BYTES
                offset, row = offset + dialect.skip_row(stream), row + 1
                yield Chunk.broken(stream.n_bytes_read, {"offset": offset, "row": row})
                continue
            if is_last and n_consumed < len(block):
                raise damaged(file.name, f"a quoted value behind row {row:,} does not end")
            offset += n_consumed
            values, broken = _rows(file, options, dialect, columns, block[:n_consumed])
            error, n_broken, row_after = None, len(broken), row + len(values) + len(broken)
            if broken and options.on_error == "fail":
                at, problem = broken[0]
                error, n_broken = (
                    CorpusError(f"{file.name}: row {row + at + 1:,} has {problem}", hint=SKIP_HINT),
                    0,
                )
                values = values.slice(0, at)
            chunk = reader.chunk(values, row, stream.n_bytes_read, {"offset": offset, "row": row_after})
            row, n_broken = row_after, chunk.n_broken + n_broken
            yield replace(chunk, error=chunk.error or error, n_broken=n_broken, n_byte_order_marks=n_marks)
            stream.advance(n_consumed)
            n_marks, block_bytes = 0, batches.BATCH_BYTES


def _text_start(stream: ByteStream, name: str, dialect: _Dialect) -> int:
    """Return the size of the byte-order mark. Raises `CorpusError` for what is not a table."""
    head, _ = stream.block(HEAD_BYTES)
    check_text(name, head, dialect.name.lower())
    return len(UTF8_BOM) if head.startswith(UTF8_BOM) else 0


@dataclass(frozen=True)
class _Dialect:
    """How rows are written. A value that begins with a double quote ends with one and may contain line ends."""

    name: str
    delimiter: str

    @cached_property
    def _row(self) -> bytes:
        """A pattern for a row; like pyarrow, it takes what follows a quoted value up to the delimiter as it is."""
        plain = rb"[^%b\r\n]*+" % re.escape(self.delimiter.encode())
        value = rb'(?:"[^"]*+(?:""[^"]*+)*+"|(?!"))%b' % plain
        # A line feed may follow a carriage return at the end of a block.
        return rb"%b(?:%b%b)*+(?:\n|\r\n|\r(?=[^\n]))" % (value, re.escape(self.delimiter.encode()), value)

    def header(self, file_name: str, head: bytes, *, is_last: bool) -> tuple[list[str], int]:
        """Return the names in the first row that is not empty, and where it ends; no names if there is no such row.

        Args:
            file_name: Name of the file.
            head: Its first bytes.
            is_last: Whether these are all.
        """
        text = _with_line_end(head) if is_last else head
        if is_last and not head.strip():
            return [], len(head)
        first = re.match(rb"(?:\r\n?|\n)*+(%b)" % self._row, text)
        if first is not None:
            row = io.StringIO(first[1].decode(errors="replace"), newline="")
            with contextlib.suppress(csv.Error):  # a name of more than 128 kB
                return next(csv.reader(row, delimiter=self.delimiter)), min(first.end(), len(head))
        raise CorpusError(
            f"{file_name}: the first row does not end within {len(head):,} bytes",
            hint=f"check that it is a {self.name} file, whose first row has the names of the columns",
        )

    def end_of_rows(self, block: bytes, *, is_last: bool) -> int:
        """Return where the last whole row of a block ends, which starts with a row.

        Args:
            block: The block.
            is_last: Whether the file ends behind it.
        """
        text = _with_line_end(block) if is_last else block
        if b'"' not in text and (end := text.rfind(b"\n") + 1):
            return min(end, len(block))
        match = re.match(rb"(?:%b)*+" % self._row, text)
        return min(match.end(), len(block)) if match else 0

    def skip_row(self, stream: ByteStream) -> int:
        """Advance past the end of a row of any size; return the bytes skipped."""
        n_bytes, is_quoted, is_start = 0, False, True
        end_of_value = re.compile(b"[\r\n%b]" % re.escape(self.delimiter.encode()))
        while True:
            block, is_last = stream.block(batches.BATCH_BYTES)
            at = 0
            while at < len(block):
                if is_start and block[at : at + 1] == b'"':
                    is_quoted, at = True, at + 1
                is_start = False
                if is_quoted:
                    quote = block.find(b'"', at)
                    if quote < 0:
                        at = len(block)
                    elif quote + 1 == len(block) and not is_last:
                        at = quote  # the next block tells whether it is doubled
                        break
                    elif block[quote + 1 : quote + 2] == b'"':
                        at = quote + 2
                    else:
                        is_quoted, at = False, quote + 1
                    continue
                found = end_of_value.search(block, at)
                if found is None:
                    at = len(block)
                elif found[0] == self.delimiter.encode():
                    is_start, at = True, found.end()
                elif found[0] == b"\r" and found.end() == len(block) and not is_last:
                    at = found.start()
                    break
                else:
                    at = found.end() + (block[found.start() : found.end() + 1] == b"\r\n")
                    stream.advance(at)
                    return n_bytes + at
            stream.advance(at)
            n_bytes += at
            if is_last:
                return n_bytes


def _with_line_end(text: bytes) -> bytes:
    return text if text.endswith(b"\n") else text + b"\n"


def _rows(
    file: OpenFile, options: CorpusOptions, dialect: _Dialect, columns: list[str], data: bytes
) -> tuple[Any, list[tuple[int, str]]]:
    """Parse whole rows.

    Returns:
        The values of the column, and the rows with another number of columns: for each, the number of rows with the
        right number before it, and what is wrong.
    """
    pa, table = library("pyarrow", file.name), library("pyarrow.csv", file.name)
    broken: list[tuple[int, str]] = []

    def leave_out(row: Any) -> str:
        problem = f"{row.actual_columns:,} columns instead of {row.expected_columns:,}"
        broken.append((row.number - 1 - len(broken), problem))
        return "skip"

    field, kind = options.field, pa.large_binary()  # a value that is not UTF-8 is named by its row
    if not data.strip(b"\r\n"):
        return pa.array([], kind), broken
    with failures(file.name, pa):
        rows = table.read_csv(
            pa.BufferReader(data),
            table.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=columns),
            table.ParseOptions(
                delimiter=dialect.delimiter, newlines_in_values=True, invalid_row_handler=leave_out
            ),
            table.ConvertOptions(include_columns=[field], column_types={field: kind}, check_utf8=False),
        )
    return pa.concat_arrays(rows.column(0).chunks or [pa.array([], kind)]), broken
