"""Readers of a string column of Parquet and Arrow files, without a Python object per string."""

from __future__ import annotations

import contextlib
import os
import tempfile
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bytemill.corpus import documents as batches
from bytemill.corpus.compression import compression_of
from bytemill.corpus.content import HEAD_BYTES
from bytemill.corpus.documents import Chunk
from bytemill.corpus.formats import library
from bytemill.corpus.options import choose_field, damaged, document_too_large, fields_of
from bytemill.corpus.sources import unreadable
from bytemill.corpus.streams import OpenFile, head_of
from bytemill.errors import CorpusError, OutputError
from bytemill.system.atomic_files import output_errors

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    import numpy as np
    from numpy.typing import NDArray

    from bytemill.corpus.options import CorpusOptions

_MAX_ROWS = 1 << 16
"""Upper bound on the rows read at once."""
_ARROW_STREAM_MAGIC = b"\xff\xff\xff\xff"
_STRINGS = ("string", "large_string", "string_view", "binary", "large_binary", "binary_view", "null")


class ColumnReader:
    """Converts Arrow arrays of strings to chunks."""

    def __init__(self, name: str, options: CorpusOptions) -> None:
        self._name = name
        self._options = options

    def check(self, schema: Any) -> str:
        """Return the outermost column that leads to the strings. Raises `CorpusError` if there is none."""
        pa = library("pyarrow", self._name)
        names = self._names(schema)
        if names[0] not in schema.names:
            raise self.no_column(_columns_of(schema))
        kind = schema.field(names[0]).type
        for name in names[1:]:
            if not pa.types.is_struct(kind) or kind.get_field_index(name) < 0:
                raise self.no_column(_columns_of(schema))
            kind = kind.field(name).type
        if not _holds_strings(kind):
            raise CorpusError(
                f"{self._name}: column '{self._options.field}' holds {kind}, not strings",
                hint=choose_field(self._options.field, _columns_of(schema), "--column (field=)"),
            )
        return names[0]

    def array(self, rows: Any) -> Any:
        """Return the strings of a RecordBatch or Table with a checked schema, as an Array with offsets."""
        pa = library("pyarrow", self._name)
        names = self._names(rows.schema)
        column = rows.column(names[0])
        for name in names[1:]:
            # Keeps the nulls of the struct.
            column = library("pyarrow.compute", self._name).struct_field(column, name)
        if isinstance(column, pa.ChunkedArray):
            column = pa.concat_arrays(column.chunks)
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if str(column.type) in ("string_view", "binary_view", "null"):
            column = column.cast(
                pa.large_binary() if str(column.type) == "binary_view" else pa.large_string()
            )
        return column

    def chunk(self, array: Any, row: int, n_bytes_read: int, after: dict[str, Any]) -> Chunk:
        """Make a chunk of an array whose first string is in this row (from 0)."""
        import numpy as np

        large = np.flatnonzero(np.diff(_offsets(array)) > self._options.max_document_bytes)
        too_large = None
        if len(large):
            first = int(large[0])
            where = f"{self._name}: row {row + first + 1:,}"
            too_large = document_too_large(where, self._options.max_document_bytes)
            if self._options.on_error == "fail":
                array = array.slice(0, first)
            else:
                keep = np.ones(len(array), np.bool_)
                keep[large] = False
                array, too_large = array.filter(library("pyarrow", self._name).array(keep)), None
        missing = _missing(array) if array.null_count else None
        name, field = f"{self._name}: row", self._options.field
        chunk = Chunk.checked(
            *packed(array),
            options=self._options,
            n_bytes_read=n_bytes_read,
            after=after,
            name_of=lambda number: f"{name} {row + number + 1:,}",
            missing=missing,
            missing_message=f"column '{field}' is missing",
        )
        n_large = len(large) if self._options.on_error == "skip" else 0
        return replace(chunk, n_broken=chunk.n_broken + n_large, error=chunk.error or too_large)

    def no_column(self, names: list[str]) -> CorpusError:
        """Make the error for columns without the one that is read."""
        return CorpusError(
            f"{self._name}: there is no column '{self._options.field}'",
            hint=choose_field(self._options.field, names, "--column (field=)"),
        )

    def _names(self, schema: Any) -> list[str]:
        return [self._options.field] if self._options.field in schema.names else self._options.path


def _holds_strings(kind: Any) -> bool:
    kind = getattr(kind, "value_type", kind) if str(kind).startswith("dictionary") else kind
    return str(kind) in _STRINGS


def _columns_of(schema: Any) -> list[str]:
    """Return the paths of the columns of strings; of all columns if there are none."""

    def example(kind: Any) -> object:
        is_struct = str(kind).startswith("struct<")
        return (
            {each.name: example(each.type) for each in kind}
            if is_struct
            else ""
            if _holds_strings(kind)
            else None
        )

    return fields_of({name: example(schema.field(index).type) for index, name in enumerate(schema.names)})


def _missing(array: Any) -> NDArray[np.bool_]:
    """Return the mask of nulls. Avoids `to_numpy`, which imports pandas."""
    import numpy as np

    nulls = array.is_null().cast("uint8")
    return np.frombuffer(nulls.buffers()[1], np.bool_)[nulls.offset : nulls.offset + len(nulls)]


def n_rows_of_batch(array: Any, first: int) -> int:
    """Return how many strings from index `first` on fill a batch; at least 1.

    >>> import pyarrow as pa
    >>> n_rows_of_batch(pa.array(["a", "b" * 5_000_000, "c"]), 0), n_rows_of_batch(pa.array(["a", "b", "c"]), 1)
    (1, 2)
    """
    import numpy as np

    offsets = _offsets(array)
    end = int(offsets[first]) + batches.BATCH_BYTES
    return max(1, int(np.searchsorted(offsets[first:], end, "right")) - 1)


def _offsets(array: Any) -> NDArray[Any]:
    """Return the start of each string in the buffer, and the end of the last, shape (n + 1,)."""
    import numpy as np

    if not len(array):
        return np.zeros(1, np.int64)
    is_large = str(array.type).startswith("large_")
    offsets = np.frombuffer(array.buffers()[1], np.int64 if is_large else np.int32)
    return offsets[array.offset : array.offset + len(array) + 1]


def packed(array: Any) -> tuple[bytes, NDArray[np.int64]]:
    """Return the bytes of an Array of strings, and the end of each.

    >>> import pyarrow as pa
    >>> packed(pa.array(["one", "", "two"]).slice(1))
    (b'two', array([0, 3]))
    """
    import numpy as np

    offsets, data = _offsets(array), array.buffers()[2]
    start, end = int(offsets[0]), int(offsets[-1])
    text = b"" if data is None else bytes(memoryview(data)[start:end])
    return text, offsets[1:].astype(np.int64) - start


def read_parquet(file: OpenFile, options: CorpusOptions, state: dict[str, Any]) -> Generator[Chunk]:
    """Yield a column of a Parquet file, row group by row group, holding a few pages in memory."""
    reader = ColumnReader(file.name, options)
    pa, parquet = library("pyarrow", file.name), library("pyarrow.parquet", file.name)
    row = int(state.get("row", 0))
    with _seekable(file) as opened, failures(file.name, pa):
        parquet_file = parquet.ParquetFile(
            opened, buffer_size=1 << 20, pre_buffer=False, page_checksum_verification=True
        )
        metadata = parquet_file.metadata
        names = parquet_file.schema_arrow.names
        columns = [options.field if options.field in names else ".".join(options.path)]
        reader.check(parquet_file.schema_arrow)
        first_row = 0
        for group in range(metadata.num_row_groups):
            if file.source.stop is not None and first_row >= file.source.stop:
                return
            n_rows = metadata.row_group(group).num_rows
            if first_row + n_rows <= row:
                first_row += n_rows
                continue
            batch_rows = _rows_of_group(metadata.row_group(group), columns[0])
            at = first_row
            for batch in parquet_file.iter_batches(batch_rows, [group], columns, use_threads=False):
                if at + batch.num_rows > row and not file.stop.is_set():
                    n_read = (file.source.n_bytes or 0) * (at + batch.num_rows) // max(1, metadata.num_rows)
                    array = reader.array(batch)
                    yield reader.chunk(array, at, n_read, {"row": at + batch.num_rows})
                at += batch.num_rows
                if file.stop.is_set():
                    return
            first_row += n_rows


def _rows_of_group(group: Any, column: str) -> int:
    """Return the number of rows whose texts fill a batch on average."""
    n_bytes = sum(
        chunk.total_uncompressed_size
        for chunk in map(group.column, range(group.num_columns))
        if chunk.path_in_schema == column
    )
    return max(1, min(_MAX_ROWS, group.num_rows * batches.BATCH_BYTES // max(1, n_bytes)))


def read_arrow(file: OpenFile, options: CorpusOptions, state: dict[str, Any]) -> Generator[Chunk]:
    """Yield a column of an Arrow file (Feather version 2) or stream, record batch by record batch."""
    reader = ColumnReader(file.name, options)
    pa = library("pyarrow", file.name)
    number = int(state.get("batch", 0))
    row = int(state.get("row", 0))
    with _seekable(file) as opened, failures(file.name, pa):
        size = opened.seek(0, os.SEEK_END)
        opened.seek(0)
        is_stream = opened.read(4) == _ARROW_STREAM_MAGIC
        opened.seek(0)
        kind = pa.ipc.open_stream if is_stream else pa.ipc.open_file
        schema = kind(opened).schema
        column = schema.names.index(reader.check(schema))
        opened.seek(0)
        arrow = kind(opened, options=pa.ipc.IpcReadOptions(included_fields=[column]))
        for index, batch, n_batches in _record_batches(arrow, is_stream=is_stream, start=number):
            if file.stop.is_set():
                return
            if index < number:
                continue  # a stream is always read from its beginning
            share = opened.tell() / size if is_stream else (index + 1) / n_batches
            done = int((file.source.n_bytes or 0) * share)
            array = reader.array(batch)
            first = int(state.get("first", 0)) if index == number else 0
            while first < len(array):
                part = array.slice(first, n_rows_of_batch(array, first))
                first += len(part)
                is_last = first == len(array)
                after = {"batch": index + is_last, "first": 0 if is_last else first, "row": row + len(part)}
                yield reader.chunk(part, row, done, after)
                row += len(part)


def _record_batches(opened: Any, *, is_stream: bool, start: int) -> Iterator[tuple[int, Any, int]]:
    """Yield (number, batch, total number) from `start` on; a stream starts at 0 and has no total."""
    if is_stream:
        for index, batch in enumerate(opened):
            yield index, batch, 0
    else:
        for index in range(start, opened.num_record_batches):
            yield index, opened.get_batch(index), opened.num_record_batches


@contextlib.contextmanager
def _seekable(file: OpenFile) -> Generator[Any]:
    """Open the file for pyarrow; a compressed or unseekable one is copied to a temporary file."""
    source = file.source
    if source.path is not None and source.n_bytes is not None:
        if source.n_bytes and compression_of(head_of(source)) is None:
            # Not memory-mapped: mapped pages count as resident memory of the process.
            with library("pyarrow", source.name).OSFile(str(source.path), "rb") as opened:
                yield opened
            return
    elif source.remote is not None:
        with source.open() as remote:
            if remote.seekable():
                head = remote.read(HEAD_BYTES)
                remote.seek(0)
                if compression_of(head) is None:
                    yield remote
                    return
    with tempfile.TemporaryFile(prefix="bytemill-") as spooled:
        with file.stream() as stream:
            is_last = False
            while not is_last:
                block, is_last = stream.block(1 << 22)
                with output_errors(tempfile.gettempdir()):
                    spooled.write(block)
                stream.advance(len(block))
        with output_errors(tempfile.gettempdir()):
            spooled.seek(0)
        yield spooled


@contextlib.contextmanager
def failures(name: str, pa: Any) -> Generator[None]:
    """Convert what pyarrow raises for damaged files to `CorpusError`."""
    try:
        yield
    except (CorpusError, OutputError):
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise unreadable(name, error) from error
        raise damaged(name, f"{str(error).strip().splitlines()[0]:.200}") from error
