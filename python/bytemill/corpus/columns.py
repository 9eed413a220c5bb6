"""Reading a column of Parquet and Arrow files, and of Hugging Face's datasets: no string becomes a Python object."""

from __future__ import annotations

import contextlib
import os
import tempfile
from typing import TYPE_CHECKING, Any

from bytemill._core import check_documents
from bytemill.corpus import documents as batches
from bytemill.corpus import libraries
from bytemill.corpus.chunks import Piece
from bytemill.corpus.compression import compression_of
from bytemill.corpus.messages import SKIP_HINT
from bytemill.corpus.streams import HEAD_BYTES, OpenFile, head_of
from bytemill.errors import CorpusError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    import numpy as np
    from numpy.typing import NDArray

    from bytemill.corpus.options import CorpusOptions

_MAX_ROWS = 1 << 16
"""Rows that are read at once, however short their texts are."""
_ARROW_STREAM_MAGIC = b"\xff\xff\xff\xff"


class ColumnReader:
    """Turns arrays of strings into pieces."""

    def __init__(self, name: str, options: CorpusOptions) -> None:
        self._name = name
        self._options = options

    def check(self, schema: Any) -> str:
        """The name of the outermost column that leads to the strings. Raises `CorpusError` where there are none."""
        pa = libraries.pyarrow(self._name)
        names = self._names(schema)
        if names[0] not in schema.names:
            raise self._no_column(schema.names)
        kind = schema.field(names[0]).type
        for name in names[1:]:
            if not pa.types.is_struct(kind) or kind.get_field_index(name) < 0:
                raise self._no_column(schema.names)
            kind = kind.field(name).type
        strings = ("string", "large_string", "string_view", "binary", "large_binary", "binary_view", "null")
        if str(kind.value_type if pa.types.is_dictionary(kind) else kind) not in strings:
            raise CorpusError(
                f"{self._name}: column '{self._options.field}' holds {kind}, not strings",
                hint="name a column of strings with field=… (--column …)",
            )
        return names[0]

    def array(self, rows: Any) -> Any:
        """The strings of a RecordBatch or Table whose schema is checked, as an Array with 32-bit or 64-bit offsets."""
        pa = libraries.pyarrow(self._name)
        names = self._names(rows.schema)
        column = rows.column(names[0])
        for name in names[1:]:
            # With the nulls of what it is in.
            column = libraries.pyarrow(self._name, "pyarrow.compute").struct_field(column, name)
        if isinstance(column, pa.ChunkedArray):
            column = pa.concat_arrays(column.chunks)
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if str(column.type) in ("string_view", "binary_view", "null"):
            column = column.cast(
                pa.large_binary() if str(column.type) == "binary_view" else pa.large_string()
            )
        return column

    def piece(self, array: Any, row: int, n_bytes_read: int, after: dict[str, Any]) -> Piece:
        """The strings of an array whose first one stands in this row (from 0)."""
        data, ends = packed(array)
        missing = _missing(array) if array.null_count else None
        documents = check_documents(
            data, ends, missing, self._options.encoding_errors, self._options.on_error == "skip"
        )
        error = None
        if documents.broken is not None:
            number, offset, _ = documents.broken
            what = f"column '{self._options.field}' is missing"
            if offset is not None:
                what = f"byte offset {offset} of the text is not valid UTF-8"
            error = CorpusError(f"{self._name}: row {row + number + 1:,}: {what}", hint=SKIP_HINT)
        return Piece.of(documents, n_bytes_read, after, error)

    def _no_column(self, names: list[str]) -> CorpusError:
        listing = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
        return CorpusError(
            f"{self._name}: there is no column '{self._options.field}'",
            hint=f"name one with field=… (--column …): {listing}",
        )

    def _names(self, schema: Any) -> list[str]:
        return [self._options.field] if self._options.field in schema.names else self._options.path


def _missing(array: Any) -> NDArray[np.bool_]:
    """Which values are null. Neither this nor anything else here may bring in pandas, which `to_numpy` does."""
    import numpy as np

    nulls = array.is_null().cast("uint8")
    return np.frombuffer(nulls.buffers()[1], np.bool_)[nulls.offset : nulls.offset + len(nulls)]


def rows_of_a_piece(array: Any, first: int) -> int:
    """How many strings from the one at `first` on make about a batch; at least 1.

    >>> import pyarrow as pa
    >>> rows_of_a_piece(pa.array(["a", "b" * 5_000_000, "c"]), 0), rows_of_a_piece(pa.array(["a", "b", "c"]), 1)
    (1, 2)
    """
    import numpy as np

    places = _offsets(array)
    end = int(places[first]) + batches.BATCH_BYTES
    return max(1, int(np.searchsorted(places[first:], end, "right")) - 1)


def _offsets(array: Any) -> NDArray[Any]:
    """Where each string begins in the buffer, and where the last one ends."""
    import numpy as np

    if not len(array):
        return np.zeros(1, np.int64)
    is_large = str(array.type).startswith("large_")
    places = np.frombuffer(array.buffers()[1], np.int64 if is_large else np.int32)
    return places[array.offset : array.offset + len(array) + 1]


def packed(array: Any) -> tuple[bytes, NDArray[np.int64]]:
    """The bytes of an Array of strings, and where each of them ends.

    >>> import pyarrow as pa
    >>> packed(pa.array(["one", "", "two"]).slice(1))
    (b'two', array([0, 3]))
    """
    import numpy as np

    places, data = _offsets(array), array.buffers()[2]
    start, end = int(places[0]), int(places[-1])
    text = b"" if data is None else bytes(memoryview(data)[start:end])
    return text, places[1:].astype(np.int64) - start


def read_parquet(file: OpenFile, options: CorpusOptions, state: dict[str, Any]) -> Generator[Piece]:
    """A column of a Parquet file, row group by row group. Memory holds some pages of it, whatever its size."""
    reader = ColumnReader(file.name, options)
    pa, parquet = libraries.pyarrow(file.name), libraries.pyarrow(file.name, "pyarrow.parquet")
    row = int(state.get("row", 0))
    with _seekable(file) as opened, _failures(file.name, pa):
        parquet_file = parquet.ParquetFile(opened, buffer_size=1 << 20, pre_buffer=False)
        metadata = parquet_file.metadata
        names = parquet_file.schema_arrow.names
        columns = [options.field if options.field in names else ".".join(options.path)]
        reader.check(parquet_file.schema_arrow)
        first_row = 0
        for group in range(metadata.num_row_groups):
            n_rows = metadata.row_group(group).num_rows
            if first_row + n_rows <= row:
                first_row += n_rows
                continue
            batch_rows = _rows_of_a_batch(metadata.row_group(group), columns[0])
            at = first_row
            for batch in parquet_file.iter_batches(batch_rows, [group], columns, use_threads=False):
                if at + batch.num_rows > row and not file.stop.is_set():
                    n_read = (file.source.n_bytes or 0) * (at + batch.num_rows) // max(1, metadata.num_rows)
                    array = reader.array(batch)
                    yield reader.piece(array, at, n_read, {"row": at + batch.num_rows})
                at += batch.num_rows
                if file.stop.is_set():
                    return
            first_row += n_rows


def _rows_of_a_batch(group: Any, column: str) -> int:
    """Rows whose texts make about a batch."""
    n_bytes = sum(
        chunk.total_uncompressed_size
        for chunk in map(group.column, range(group.num_columns))
        if chunk.path_in_schema == column
    )
    return max(1, min(_MAX_ROWS, group.num_rows * batches.BATCH_BYTES // max(1, n_bytes)))


def read_arrow(file: OpenFile, options: CorpusOptions, state: dict[str, Any]) -> Generator[Piece]:
    """A column of an Arrow file (Feather version 2) or stream, record batch by record batch."""
    reader = ColumnReader(file.name, options)
    pa = libraries.pyarrow(file.name)
    number = int(state.get("batch", 0))
    row = int(state.get("row", 0))
    with _seekable(file) as opened, _failures(file.name, pa):
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
                continue  # of a stream, which is read from its beginning
            share = opened.tell() / size if is_stream else (index + 1) / n_batches
            done = int((file.source.n_bytes or 0) * share)
            array = reader.array(batch)
            first = int(state.get("first", 0)) if index == number else 0
            while first < len(array):
                part = array.slice(first, rows_of_a_piece(array, first))
                first += len(part)
                is_last = first == len(array)
                after = {"batch": index + is_last, "first": 0 if is_last else first, "row": row + len(part)}
                yield reader.piece(part, row, done, after)
                row += len(part)


def _record_batches(opened: Any, *, is_stream: bool, start: int) -> Iterator[tuple[int, Any, int]]:
    """(number, batch, number of all) from `start` on; a stream begins at its beginning, and does not know how many."""
    if is_stream:
        for index, batch in enumerate(opened):
            yield index, batch, 0
    else:
        for index in range(start, opened.num_record_batches):
            yield index, opened.get_batch(index), opened.num_record_batches


@contextlib.contextmanager
def _seekable(file: OpenFile) -> Generator[Any]:
    """The file for pyarrow; one that is compressed, or cannot be sought in, goes through a temporary file."""
    source = file.source
    if source.path is not None and source.n_bytes is not None:
        if source.n_bytes and compression_of(head_of(source)) is None:
            # Not mapped: pages of a mapping count as memory of the process, up to the size of the file.
            with libraries.pyarrow(source.name).OSFile(str(source.path), "rb") as opened:
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
                spooled.write(block)
                stream.advance(len(block))
        spooled.seek(0)
        yield spooled


@contextlib.contextmanager
def _failures(name: str, pa: Any) -> Generator[None]:
    """What pyarrow raises for damaged files, as `CorpusError`."""
    try:
        yield
    except CorpusError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorpusError(
            f"{name} is damaged, or no such file: {str(error).strip().splitlines()[0]:.200}",
            hint="get the file anew, or leave it out",
        ) from error
