"""Documents that come as Python objects: texts, rows, and Hugging Face's datasets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

from bytemill.corpus import documents as batches
from bytemill.corpus.chunks import Piece
from bytemill.corpus.columns import ColumnReader, rows_of_a_piece
from bytemill.corpus.messages import SKIP_HINT, no_text
from bytemill.corpus.sources import is_dataset
from bytemill.errors import CorpusError

if TYPE_CHECKING:
    import threading
    from collections.abc import Generator

    from bytemill.corpus.options import CorpusOptions

_DATASET_ROWS = 1_000
"""As many as datasets write into a record batch."""


def rows_reader(inputs: Iterable[Any], options: CorpusOptions) -> IterableReader | DatasetReader:
    """What reads this iterable."""
    if is_dataset(inputs) and hasattr(inputs, "with_format"):
        if hasattr(inputs, "keys"):
            names = ", ".join(map(repr, cast("Mapping[str, Any]", inputs)))
            raise CorpusError(f"this is a dictionary of datasets: {names}", hint="give one of them")
        if hasattr(inputs, "__len__"):
            return DatasetReader(inputs, options)
    return IterableReader(inputs, options)


class IterableReader:
    """An iterable of texts, or of rows with a field that holds the text."""

    n_bytes = None

    def __init__(self, items: Iterable[Any], options: CorpusOptions) -> None:
        self._items = items
        self._options = options
        self._is_dataset = is_dataset(items)
        self.name = "<dataset>" if self._is_dataset else "<texts>"
        # A list of rows comes again; what an iterator has given is gone.
        self.comes_again = not isinstance(items, Iterator) and not self._is_dataset
        self.runs_own_code = not self._is_dataset

    def is_one_document(self) -> bool:
        """See `Reader`."""
        return False

    def describe(self) -> Any:
        """See `Reader`."""
        return [self.name]

    def read(self, state: dict[str, Any], stop: threading.Event) -> Generator[Piece]:
        """See `Reader`. What comes before `state` is drawn and dropped."""
        import numpy as np

        begin = int(state.get("item", 0))
        data, ends, n_read = bytearray(), list[int](), 0
        n_replaced = n_skipped = n_broken = 0
        for index, item in enumerate(self._items):
            if stop.is_set():
                return
            if index < begin:
                continue
            try:
                text, n_lone = self._encoded(self._text(item, index), index)
            except CorpusError as error:
                if self._options.on_error == "fail":
                    yield Piece(
                        bytes(data), np.array(ends, np.int64), False, n_read, {"item": index}, error=error
                    )
                    return
                n_broken += 1
            else:
                data += text
                n_read += len(text)
                ends.append(len(data))
                if self._options.encoding_errors == "replace":
                    n_replaced += n_lone
                else:
                    n_skipped += n_lone * 3
            if len(data) >= batches.BATCH_BYTES:
                after = {"item": index + 1}
                yield Piece(
                    bytes(data),
                    np.array(ends, np.int64),
                    False,
                    n_read,
                    after,
                    n_replaced,
                    n_skipped,
                    n_broken,
                )
                data, ends = bytearray(), []
                n_replaced = n_skipped = n_broken = 0
        yield Piece(bytes(data), np.array(ends, np.int64), False, n_read, {}, n_replaced, n_skipped, n_broken)

    def _text(self, item: object, index: int) -> str:
        if isinstance(item, str):
            return item
        if not isinstance(item, Mapping):
            raise no_text(item, index)
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
            names = ", ".join(map(str, cast("Mapping[Any, Any]", item)))
            raise CorpusError(f"{field} is missing", hint=f"name one with field=…: {names:.200}")
        raise CorpusError(f"{field} is no str: {value!r:.40}", hint=SKIP_HINT)

    def _encoded(self, text: str, index: int) -> tuple[bytes, int]:
        """The text in UTF-8, and how many lone surrogates were in it."""
        try:
            return text.encode(), 0
        except UnicodeEncodeError:
            # Two halves of a pair that stand together are a character.
            text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        n_lone = sum(0xD800 <= ord(character) <= 0xDFFF for character in text)
        if self._options.encoding_errors == "strict" and n_lone:
            place = next(at for at, character in enumerate(text) if 0xD800 <= ord(character) <= 0xDFFF)
            raise CorpusError(
                f"item {index} of the corpus holds a lone surrogate at character {place}",
                hint='give encoding_errors="replace" to read such as U+FFFD',
            )
        replacement = "\ufffd" if self._options.encoding_errors == "replace" else ""
        kept = (replacement if 0xD800 <= ord(each) <= 0xDFFF else each for each in text)
        return "".join(kept).encode(), n_lone


class DatasetReader:
    """A map-style dataset of Hugging Face's, in its own order, read through Arrow."""

    name = "<dataset>"
    n_bytes = None
    comes_again = True
    runs_own_code = False

    def __init__(self, dataset: Any, options: CorpusOptions) -> None:
        self._dataset = dataset
        self._options = options

    def is_one_document(self) -> bool:
        """See `Reader`."""
        return False

    def describe(self) -> Any:
        """See `Reader`. The fingerprint is datasets' own, and stays the same for the same data and transforms."""
        return [self.name, len(self._dataset), str(getattr(self._dataset, "_fingerprint", ""))]

    def read(self, state: dict[str, Any], stop: threading.Event) -> Generator[Piece]:
        """See `Reader`."""
        reader = ColumnReader(self.name, self._options)
        dataset, row = self._dataset, int(state.get("row", 0))
        dataset = dataset.select_columns([reader.check(dataset.features.arrow_schema)])
        dataset = dataset.with_format("arrow")
        n_read = int(state.get("read", 0))
        while row < len(dataset) and not stop.is_set():
            array = reader.array(dataset[row : row + _DATASET_ROWS])
            array = array.slice(0, rows_of_a_piece(array, 0))
            n_read += array.nbytes
            row_after = row + len(array)
            yield reader.piece(array, row, n_read, {"row": row_after, "read": n_read})
            row = row_after
