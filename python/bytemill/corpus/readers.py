"""Readers of a corpus: of a file in any format, of Python objects, and of a Hugging Face dataset."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from bytemill.corpus import documents as batches
from bytemill.corpus.columns import ColumnReader, n_rows_of_batch
from bytemill.corpus.content import HEAD_BYTES, check_magic, format_of_head
from bytemill.corpus.documents import Chunk
from bytemill.corpus.formats import FORMATS, format_of_name
from bytemill.corpus.options import SKIP_HINT, choose_field, document_too_large, fields_of
from bytemill.corpus.streams import OpenFile, open_stream
from bytemill.errors import CorpusError

if TYPE_CHECKING:
    from collections.abc import Generator

    from bytemill.corpus.options import CorpusOptions
    from bytemill.corpus.sources import Source


class FileReader:
    """Reads a source of bytes: a file, a URL, or standard input."""

    runs_user_code = False

    def __init__(self, source: Source, options: CorpusOptions) -> None:
        self._source = source
        self._options = options
        self.name = source.name
        self._format = format_of_name(source.name) if options.format == "auto" else options.format
        self.n_bytes = source.n_bytes
        self.is_rereadable = source.remote is not None or (
            source.path is not None and source.n_bytes is not None
        )

    @property
    def format(self) -> str | None:
        """The format: by option, name, or first bytes; None for a pipe that is not open yet."""
        if self._format is None and self.is_rereadable:
            self._format = format_of_head(self._head())
        return self._format

    def _head(self) -> bytes:
        with open_stream(replace(self._source, stop=None), 0, threading.Event()) as stream:
            return stream.block(HEAD_BYTES)[0]

    def is_one_document(self) -> bool:
        """See `Reader`."""
        return self._options.documents == "file" and self.format == "text"

    def describe(self) -> Any:
        """See `Reader`. Name, size, and version (modification time, or what the file system has)."""
        version: int | str | None = None
        if self._source.remote is not None:
            version = self._source.remote.version
        elif self._source.path is not None:
            with contextlib.suppress(OSError):
                version = self._source.path.stat().st_mtime_ns
        return [self.name, self.n_bytes, version]

    def read(self, state: dict[str, Any], stop: threading.Event) -> Generator[Chunk]:
        """See `Reader`."""
        with contextlib.ExitStack() as stack:
            file = OpenFile(self._source, stop)
            name = self.format
            if name is None:
                stream = stack.enter_context(open_stream(self._source, 0, stop))
                name = self._format = format_of_head(stream.block(HEAD_BYTES)[0])
                file = OpenFile(self._source, stop, stream)
            elif self.is_rereadable and not state and FORMATS[name].magic:
                check_magic(self.name, name, self._head())
            if self._source.remote is None:  # a store is asked once, at the end
                self._source.check_unchanged()
            try:
                for chunk in FORMATS[name].read_function()(file, self._options, state):
                    if chunk.error is not None:
                        self._source.check_unchanged()
                    yield chunk
            except CorpusError:
                self._source.check_unchanged()  # which explains the error
                raise
            self._source.check_unchanged()


_DATASET_ROWS = 1_000
"""Rows of a record batch as datasets write it."""


def is_dataset(rows: object) -> bool:
    """Check for a Hugging Face dataset by its class, without importing `datasets`."""
    return type(rows).__module__.startswith("datasets.")


def rows_reader(rows: Iterable[Any], options: CorpusOptions) -> IterableReader | DatasetReader:
    """Make the reader of an iterable of rows or of a dataset."""
    if is_dataset(rows):
        if hasattr(rows, "with_format") and hasattr(rows, "keys"):
            names = ", ".join(map(repr, cast("Mapping[str, Any]", rows)))
            raise CorpusError(f"this is a dictionary of datasets: {names}", hint="pass one of them")
        if hasattr(rows, "with_format") and hasattr(rows, "__len__"):
            return DatasetReader(rows, options)
        return IterableReader(rows, options, "<dataset>")
    if isinstance(rows, (str, bytes, Mapping)):
        name = type(cast("object", rows)).__name__
        raise TypeError(f"expected an iterable of rows (mappings), not {name}")
    return IterableReader(rows, options, "<rows>")


class IterableReader:
    """Reads an iterable of texts, or of rows with a field that holds the text."""

    n_bytes = None

    def __init__(self, items: Iterable[Any], options: CorpusOptions, name: str) -> None:
        if not isinstance(cast("object", items), Iterable):
            raise TypeError(f"expected an iterable, not {type(items).__name__}")
        self._items = items
        self._options = options
        self.name = name
        is_streaming = name == "<dataset>"
        self.is_rereadable = not isinstance(items, Iterator) and not is_streaming
        self.runs_user_code = not is_streaming

    def is_one_document(self) -> bool:
        """See `Reader`."""
        return False

    def describe(self) -> Any:
        """See `Reader`."""
        return [self.name]

    def read(self, state: dict[str, Any], stop: threading.Event) -> Generator[Chunk]:
        """See `Reader`. Items before `state` are drawn and dropped."""
        import numpy as np

        begin = int(state.get("item", 0))
        data, ends, n_read = bytearray(), list[int](), 0
        n_replaced = n_skipped = n_broken = 0

        def chunk(after: dict[str, Any], error: CorpusError | None = None) -> Chunk:
            found = np.array(ends, np.int64)
            return Chunk(
                bytes(data), found, False, n_read, after, n_replaced, n_skipped, n_broken, error=error
            )

        for index, item in enumerate(self._items):
            if stop.is_set():
                return
            if index < begin:
                continue
            try:
                text, n_lone = self._encoded(self._text(item, index), index)
            except CorpusError as error:
                if self._options.on_error == "fail":
                    yield chunk({"item": index}, error)
                    return
                n_broken += 1
            else:
                data += text
                n_read += len(text)
                ends.append(len(data))
                if self._options.errors == "replace":
                    n_replaced += n_lone
                else:
                    n_skipped += n_lone * 3
            if len(data) >= batches.BATCH_BYTES:
                yield chunk({"item": index + 1})
                data, ends = bytearray(), []
                n_replaced = n_skipped = n_broken = 0
        yield chunk({})

    def _text(self, item: object, index: int) -> str:
        if isinstance(item, str):
            if self.name == "<texts>":
                return item
            raise CorpusError(
                f"item {index} of the corpus is a str, not a row", hint="pass texts to Corpus.from_texts"
            )
        if self.name == "<texts>" or not isinstance(item, Mapping):
            raise not_a_str(item, index) if self.name == "<texts>" else _not_a_row(item, index)
        value: object = cast("object", item)
        if self._options.field in item:
            value = cast("Mapping[str, object]", item)[self._options.field]
        else:
            for name in self._options.path:
                value = cast("Mapping[str, object]", value).get(name) if isinstance(value, Mapping) else None
        if isinstance(value, str):
            return value
        field = f"item {index} of the corpus: field '{self._options.field}'"
        if value is None:
            hint = choose_field(
                self._options.field, fields_of(dict(cast("Mapping[Any, Any]", item))), "field="
            )
            raise CorpusError(f"{field} is missing", hint=hint)
        raise CorpusError(f"{field} is not a str: {value!r:.40}", hint=SKIP_HINT)

    def _encoded(self, text: str, index: int) -> tuple[bytes, int]:
        """Return the text in UTF-8, and the number of lone surrogates in it."""
        n_lone = 0
        try:
            encoded = text.encode()
        except UnicodeEncodeError:
            encoded, n_lone = self._without_surrogates(text, index)
        if len(encoded) > self._options.max_document_bytes:
            raise document_too_large(f"item {index} of the corpus", self._options.max_document_bytes)
        return encoded, n_lone

    def _without_surrogates(self, text: str, index: int) -> tuple[bytes, int]:
        # Two adjacent halves of a pair are a character.
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        lone = [at for at, character in enumerate(text) if 0xD800 <= ord(character) <= 0xDFFF]
        if self._options.errors == "strict" and lone:
            raise CorpusError(
                f"item {index} of the corpus holds a lone surrogate at character {lone[0]}",
                hint='use errors="replace" to read it as U+FFFD',
            )
        replacement = "\ufffd" if self._options.errors == "replace" else ""
        kept = (replacement if 0xD800 <= ord(each) <= 0xDFFF else each for each in text)
        return "".join(kept).encode(), len(lone)


def _not_a_row(item: object, index: int) -> CorpusError:
    return CorpusError(
        f"item {index} of the corpus is not a row: {item!r:.80}", hint="make every item a dict with the field"
    )


class DatasetReader:
    """Reads a map-style Hugging Face dataset in its own order, through Arrow."""

    name = "<dataset>"
    n_bytes = None
    is_rereadable = True
    runs_user_code = False

    def __init__(self, dataset: Any, options: CorpusOptions) -> None:
        self._dataset = dataset
        self._options = options

    def is_one_document(self) -> bool:
        """See `Reader`."""
        return False

    def describe(self) -> Any:
        """See `Reader`. The fingerprint of `datasets` is the same for the same data and transforms."""
        return [self.name, len(self._dataset), str(getattr(self._dataset, "_fingerprint", ""))]

    def read(self, state: dict[str, Any], stop: threading.Event) -> Generator[Chunk]:
        """See `Reader`."""
        reader = ColumnReader(self.name, self._options)
        dataset, row = self._dataset, int(state.get("row", 0))
        dataset = dataset.select_columns([reader.check(dataset.features.arrow_schema)])
        dataset = dataset.with_format("arrow")
        n_read = int(state.get("read", 0))
        while row < len(dataset) and not stop.is_set():
            array = reader.array(dataset[row : row + _DATASET_ROWS])
            array = array.slice(0, n_rows_of_batch(array, 0))
            n_read += array.nbytes
            row_after = row + len(array)
            yield reader.chunk(array, row, n_read, {"row": row_after, "read": n_read})
            row = row_after


def check_texts(texts: object) -> None:
    """Raise TypeError for a single str or bytes, whose items would be its characters."""
    if isinstance(texts, (str, bytes)):
        raise TypeError(f"expected an iterable of str, not a single {type(texts).__name__}: use [text]")


def checked_texts(texts: Iterable[object]) -> Iterator[str]:
    """Yield the items of an iterable, checking that each is a str.

    Raises:
        CorpusError: An item is not a str.
        TypeError: `texts` is a single str, or not iterable.
    """
    check_texts(texts)
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise not_a_str(text, index)
        yield text


def not_a_str(item: object, index: int) -> CorpusError:
    """Make the error for an item of an iterable that is not a text."""
    return CorpusError(
        f"item {index} of the corpus is not a str: {item!r:.80}",
        hint="pass file names to train or Corpus as a list, for example sorted(folder.glob('*.txt'))"
        if isinstance(item, os.PathLike)
        else "pass rows to Corpus.from_rows"
        if isinstance(item, dict)
        else "convert every item to a str",
    )
