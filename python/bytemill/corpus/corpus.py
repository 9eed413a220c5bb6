"""A corpus: sources of documents and how they are read."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack

from bytemill.corpus.compression import compression_of
from bytemill.corpus.documents import CorpusRange, DocumentBatch, Position
from bytemill.corpus.formats import check_format
from bytemill.corpus.options import MAX_DOCUMENT_BYTES, CorpusOptions, Errors, OnError, checked_weight
from bytemill.corpus.readers import FileReader, IterableReader, check_texts, rows_reader
from bytemill.corpus.selection import Selection
from bytemill.corpus.sources import CorpusInputs, Source, changed, resolve_inputs
from bytemill.corpus.streams import head_of
from bytemill.errors import CorpusError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence

    from bytemill.corpus.documents import Reader


class ObjectOptions(TypedDict, total=False):
    """Options of `Corpus` that apply to Python objects."""

    field: str
    limit_bytes: int | None
    sample: float | None
    seed: int
    errors: Errors
    on_error: OnError
    max_document_bytes: int


class Corpus:
    """Documents from files in any format or from standard input.

    `from_texts` and `from_rows` make a corpus of Python objects.

    Args:
        inputs: A name or a list of names: files, folders, globs, lists of names ("@list.txt"), URLs, "-" for standard
            input (see `resolve_inputs`). Files may be compressed (gzip, zstd, xz, bzip2).
        format: "text", "jsonl", "csv", "tsv", "parquet", "arrow", "warc", or a registered format (see
            `corpus.formats`); "auto" goes by each file's name, else by its first bytes.
        field: The JSON field or the column that holds the text; "meta.text" is the field `text` of `meta`.
        documents: What a document is in text files: "file", "line" (without its line end; empty lines are skipped),
            or a special token that ends documents and stays in the text.
        limit_bytes: Stop after the document that reaches this many bytes of text. A text file that is one document
            is cut after the line that reaches it.
        sample: Fraction of documents to take, chosen by `seed`.
        seed: Seed of the sample.
        weights: How much the documents of an input count, by the input's name as passed, or a file's own name.
        errors: Malformed UTF-8: an error ("strict"), U+FFFD ("replace"), or left out ("skip").
        on_error: A broken document (invalid JSON, no such field, not UTF-8, too large) ends reading with
            `CorpusError` ("fail"), or is left out and counted ("skip"). Damaged or missing files always end it.
        max_document_bytes: Bound on a document that is held in memory as a whole: a JSON line, a row, a WARC record.
            A larger one is broken. Plain text is streamed and not bounded.
        repeat_by_weight: Make `read` repeat documents by weight: 2.5 is twice, and half of them a third time.
        verify_input: Hash every file before it is read and after all are, and raise CorpusError if the content differs.
            Sizes and modification times are always compared.

    Raises:
        CorpusError: An input cannot be found or read, or an option is out of range.
        TypeError: `inputs` are not names.

    >>> from pathlib import Path
    >>> path = getfixture("tmp_path") / "corpus.txt"
    >>> _ = path.write_text("one\\ntwo\\n")
    >>> [bytes(batch.data) for batch in Corpus(path, documents="line").read()]
    [b'onetwo']
    """

    def __init__(
        self,
        inputs: CorpusInputs,
        *,
        format: str = "auto",  # noqa: A002
        field: str = "text",
        documents: str = "file",
        limit_bytes: int | None = None,
        sample: float | None = None,
        seed: int = 0,
        weights: Mapping[str, float] | None = None,
        errors: Errors = "strict",
        on_error: OnError = "fail",
        max_document_bytes: int = MAX_DOCUMENT_BYTES,
        repeat_by_weight: bool = False,
        verify_input: bool = False,
    ) -> None:
        options = CorpusOptions(
            format, field, documents, limit_bytes, sample, seed, errors, on_error, max_document_bytes
        )
        check_format(format)
        sources = resolve_inputs(inputs, format)
        readers = [FileReader(source, options) for source in sources]
        self._initialize(options, sources, readers, weights or {}, repeat_by_weight=repeat_by_weight)
        if verify_input:
            self._hash_sources()

    @classmethod
    def from_texts(cls, texts: Iterable[str], **options: Unpack[ObjectOptions]) -> Corpus:
        """Make a corpus of texts, each a document.

        An iterator is drawn once, in the caller's thread; a list can be read several times.

        Args:
            texts: Any iterable of str, such as a list, a generator or an open file.
            options: As for `Corpus`: `limit_bytes`, `sample`, `seed`, `errors`, `on_error`, `max_document_bytes`.

        Raises:
            CorpusError: An option is out of range.
            TypeError: `texts` is a single str, or not iterable.

        >>> corpus = Corpus.from_texts(["one", "two"])
        >>> [bytes(batch.data) for batch in corpus.read()]
        [b'onetwo']
        """
        check_texts(texts)
        corpus_options = CorpusOptions(**options)
        return cls._of_reader(IterableReader(texts, corpus_options, "<texts>"), corpus_options)

    @classmethod
    def from_rows(cls, rows: Iterable[Mapping[str, Any]], **options: Unpack[ObjectOptions]) -> Corpus:
        """Make a corpus of rows, each a document in its field `field`.

        Args:
            rows: Any iterable of mappings, or a Hugging Face dataset; a map-style dataset is read through Arrow.
            options: As for `Corpus`: `field` and those of `from_texts`.

        Raises:
            CorpusError: An option is out of range, or `rows` is a dictionary of datasets.
            TypeError: `rows` is not an iterable of rows.

        >>> corpus = Corpus.from_rows([{"story": "one"}, {"story": "two"}], field="story")
        >>> [bytes(batch.data) for batch in corpus.read()]
        [b'onetwo']
        """
        corpus_options = CorpusOptions(**options)
        return cls._of_reader(rows_reader(rows, corpus_options), corpus_options)

    @classmethod
    def _of_reader(cls, reader: Reader, options: CorpusOptions) -> Corpus:
        corpus = cls.__new__(cls)
        corpus._initialize(options, [], [reader], {}, repeat_by_weight=False)
        return corpus

    def _initialize(
        self,
        options: CorpusOptions,
        sources: list[Source],
        readers: Sequence[Reader],
        weights: Mapping[str, float],
        *,
        repeat_by_weight: bool,
    ) -> None:
        self.options = options
        self.sources = sources
        """The files; empty if the documents are Python objects."""
        self._readers = readers
        self.weights: list[float] = _weights_of(sources, weights) if sources else [1.0]
        """How much each source counts."""
        self.repeat_by_weight = repeat_by_weight
        self._hashes: list[str] | None = None
        shares = self.weights if repeat_by_weight else [1.0] * len(readers)
        for reader, share in zip(readers, shares, strict=True):
            if share > 1 and not reader.is_rereadable:
                raise CorpusError(
                    f"{reader.name} can be read only once, but its weight is {share:g}",
                    hint="save it to a file, or use a weight of at most 1",
                )
        self._selection = Selection(readers, shares, options.share, options.seed, options.limit_bytes)

    @cached_property
    def is_plain(self) -> bool:
        """True if every document is an entire regular file of uncompressed text, used exactly once."""
        options = self.options
        if not self.sources or options.documents != "file" or options.errors == "skip":
            return False
        if options.share < 1 or options.limit_bytes is not None or options.on_error == "skip":
            return False
        if any(share != 1 for share in self._selection.shares):
            return False
        return all(
            _is_plain(source, reader) for source, reader in zip(self.sources, self._readers, strict=True)
        )

    @property
    def total_bytes(self) -> int | None:
        """See `DocumentSource`. Compressed files count with their compressed size."""
        total = 0
        for number, reader in enumerate(self._readers):
            if reader.n_bytes is None:
                return None
            total += reader.n_bytes * self._selection.n_passes(number)
        return total

    def n_passes(self, number: int) -> int:
        """Return how many times a source is read."""
        return self._selection.n_passes(number)

    def share(self, number: int) -> float:
        """Return how often each document of a source is yielded."""
        return self._selection.shares[number]

    @property
    def source_names(self) -> list[str]:
        """See `DocumentSource`."""
        return [reader.name for reader in self._readers]

    @property
    def is_one_document(self) -> bool:
        """True for a single text file that is one document."""
        return len(self._readers) == 1 and self._readers[0].is_one_document()

    @property
    def input_files(self) -> list[str]:
        """Names of the files that are read, and of the lists that name them."""
        lists = [source.input[1:] for source in self.sources if source.input.startswith("@")]
        return [*dict.fromkeys(lists), *(source.name for source in self.sources if not source.is_stdin)]

    @property
    def input_folders(self) -> list[str]:
        """Folders whose files are read, or their URLs."""
        return list(dict.fromkeys(source.folder for source in self.sources if source.folder))

    @property
    def can_resume(self) -> bool:
        """See `DocumentSource`."""
        return all(reader.is_rereadable and not reader.runs_user_code for reader in self._readers)

    @property
    def description(self) -> dict[str, Any]:
        """See `DocumentSource`: names, sizes and modification times of the sources, and the options."""
        hashes = {} if self._hashes is None else {"sha256": self._hashes}
        return {
            "sources": [reader.describe() for reader in self._readers],
            "weights": self.weights,
            "repeat_by_weight": self.repeat_by_weight,
            "options": self.options.describe(),
            **hashes,
        }

    def check_content(self) -> None:
        """With `verify_input`, raise `CorpusError` if a file has another content than when the corpus was opened.

        Who reads the corpus by other methods than `read` calls it at the end.
        """
        for source, known in zip(self.sources, self._hashes or (), strict=False):
            if source.sha256() != known:
                raise changed(source.name, "its content has another sha256")

    def _hash_sources(self) -> None:
        for source in self.sources:
            if source.is_pipe:
                raise CorpusError(
                    f"{source.name} can be read only once, so its content cannot be verified",
                    hint="save it to a file, or leave out --verify-input (verify_input=)",
                )
        self._hashes = [source.sha256() for source in self.sources]

    def read(self, start: Position | None = None) -> Generator[DocumentBatch]:
        """Yield the batches from `start` on; see `DocumentSource`.

        A background thread reads, decompresses and parses files and datasets a few batches ahead and ends with the
        generator. Other iterables are drawn in the caller's thread.

        Raises:
            CorpusError: A source cannot be read, a document is broken (raised after the documents before it), or
                there is no document at all.
        """
        begin = start or Position()
        last = begin.counts
        for batch in self._batches(self._selection, begin):
            last = batch.after.counts
            yield batch
        self.check_content()
        if not last.n_documents:
            raise self._no_document()

    def read_range(self, part: CorpusRange) -> Generator[DocumentBatch]:
        """Yield the batches of a part of the corpus (`corpus.ranges.divide`), possibly none.

        A document that continues in the next part ends with this one. Raises `CorpusError` as `read`.
        """
        readers = list(self._readers[: part.last + 1])
        if part.stop is not None:
            source = replace(self.sources[part.last], stop=part.stop)
            readers[part.last] = FileReader(source, self.options)
        shares = self._selection.shares[: part.last + 1]
        selection = replace(self._selection, readers=readers, shares=shares)
        yield from self._batches(selection, part.position)

    def _batches(self, selection: Selection, begin: Position) -> Iterator[DocumentBatch]:
        def batches(stop: threading.Event) -> Iterator[DocumentBatch]:
            return selection.read(begin, stop)

        in_thread = not any(reader.runs_user_code for reader in self._readers)
        return prefetched(batches) if in_thread else batches(threading.Event())

    def _no_document(self) -> CorpusError:
        names = self.source_names
        what = names[0] if len(names) == 1 else f"each of the {len(names)} inputs ({names[0]}, …)"
        if self.options.share < 1:
            return CorpusError(
                f"the sample holds no document of {what}", hint="use a larger --sample (sample=)"
            )
        hint = (
            'all documents are broken: on_error="fail" (--on-error fail) shows the first error'
            if self.options.on_error == "skip"
            else "use an input that contains text"
        )
        return CorpusError(f"the corpus is empty: {what} holds no document", hint=hint)


def _is_plain(source: Source, reader: Reader) -> bool:
    if source.path is None or source.n_bytes is None or not reader.is_one_document():
        return False
    return compression_of(head_of(source)) is None


def _weights_of(sources: Sequence[Source], weights: Mapping[str, float]) -> list[float]:
    checked = {name: checked_weight(name, weight) for name, weight in weights.items()}
    for name in checked:
        if not any(name in (source.name, source.input) for source in sources):
            known = ", ".join(dict.fromkeys(source.input for source in sources))
            raise CorpusError(f"{name} has a weight but is not an input", hint=f"the inputs are {known:.300}")
    # A file's own name is more specific than the glob or the folder that led to it.
    return [checked.get(source.name, checked.get(source.input, 1.0)) for source in sources]


def iter_texts(inputs: CorpusInputs | Corpus, *, errors: Errors = "strict") -> Iterator[str]:
    """Yield the documents of a corpus as strings, one whole document in memory at a time.

    Args:
        inputs: A `Corpus`, or names of files as for `Corpus`.
        errors: Handling of malformed UTF-8 in files; a `Corpus` has its own option.

    Raises:
        CorpusError: A file cannot be read or is not UTF-8.

    >>> list(iter_texts(Corpus.from_texts(["one", "two"])))
    ['one', 'two']
    """
    corpus = inputs if isinstance(inputs, Corpus) else Corpus(inputs, errors=errors)
    parts: list[bytes] = []
    for batch in corpus.read():
        start, last = 0, len(batch.ends) - 1
        for number, end in enumerate(batch.ends.tolist()):
            part = bytes(batch.data[start:end])
            if number == last and batch.is_open:
                parts.append(part)
            else:
                yield b"".join([*parts, part]).decode()
                parts = []
            start = end


Item = TypeVar("Item")

AHEAD = 2
"""Items in the queue: enough that a single slow item delays neither side."""

_POLL_SECONDS = 0.1
"""Longest time until a waiting consumer notices Ctrl-C."""


def prefetched(make: Callable[[threading.Event], Iterator[Item]], ahead: int = AHEAD) -> Generator[Item]:
    """Yield the items of `make(stop)`, drawn by a background thread at most `ahead` items ahead.

    Exceptions are raised where they would be without the thread. Closing the generator sets `stop` and waits for the
    thread, so the iterator must check `stop` wherever it may block.

    >>> list(prefetched(lambda stop: iter("abc")))
    ['a', 'b', 'c']
    """
    process, stop = os.getpid(), threading.Event()
    items: queue.Queue[tuple[Item] | BaseException | None] = queue.Queue(ahead)
    """Each item as a tuple, then the exception that ended them or None."""

    def draw() -> None:
        error = None
        try:
            with contextlib.ExitStack() as stack:
                drawn = make(stop)
                if (close := getattr(drawn, "close", None)) is not None:
                    stack.callback(close)
                for item in drawn:
                    if stop.is_set():
                        break
                    items.put((item,))
        except BaseException as raised:
            error = raised
        items.put(error)

    # A daemon, so that an unclosed generator does not block the exit.
    worker = threading.Thread(target=draw, name="bytemill-reader", daemon=True)
    worker.start()
    try:
        while True:
            # With a timeout: a Ctrl-C that came just before would otherwise be noticed only with the next item.
            try:
                item = items.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                continue
            if not isinstance(item, tuple):
                if item is not None:
                    raise item
                return
            yield item[0]
            if os.getpid() != process:
                raise RuntimeError(
                    "the parent process is reading this corpus; start a new read from a Position"
                )
    finally:
        if os.getpid() == process:
            stop.set()
            # Make room for a producer that waits to put an item.
            while worker.is_alive():
                try:
                    items.get(timeout=0.01)
                except queue.Empty:
                    worker.join(0.01)
