"""A corpus: sources of documents, and how they are read."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from bytemill.corpus.compression import compression_of
from bytemill.corpus.documents import DocumentBatch, Position
from bytemill.corpus.file_reader import FileReader
from bytemill.corpus.options import CorpusOptions, EncodingErrors, Format, OnError, checked_weight
from bytemill.corpus.rows import rows_reader
from bytemill.corpus.selection import Selection
from bytemill.corpus.sources import CorpusInputs, Source, is_texts, resolve_inputs
from bytemill.corpus.streams import head_of
from bytemill.errors import CorpusError

if TYPE_CHECKING:
    import threading
    from collections.abc import Generator, Iterator, Mapping, Sequence

    from bytemill.corpus.chunks import Reader


class Corpus:
    """Documents from files of any format, from standard input, or from Python objects.

    `inputs` is a name or a list of names: files, folders, globs, lists of names ("@list.txt"), URLs, "-" for standard
    input (see `resolve_inputs`). Or it is an iterable of texts or of rows (mappings), such as a generator, a list of
    dicts, or a dataset of Hugging Face's. Files may be compressed (gzip, zstd, xz, bzip2).

    - `format`: "text", "jsonl", "parquet", "arrow" or "warc"; "auto" goes by each file's name, else by its first bytes.
    - `field`: the JSON field, or the column, that holds the text; "meta.text" is the field `text` of `meta`.
    - `documents`: what is a document in text files: "file" (the default), "line" (without its end; empty lines are
      none), or a special token that ends documents, which stays in the text.
    - `limit_bytes`: documents are given until they have this many bytes of text together; the one that reaches it is
      the last, and is given whole. A text file that is one document ends with the line that reaches it.
    - `sample`: the fraction of documents that is taken, by `seed`.
    - `weights`: how much the documents of an input count, by the input's name as it was given, or a file's own.
      `repeat_by_weight` makes `read` give them so many times: 2.5 is twice, and half of them once more.
    - `encoding_errors`: what is not UTF-8 is an error of its document ("strict"), read as U+FFFD ("replace"), or left
      out ("skip").
    - `on_error`: a broken document (no JSON, no such field, not UTF-8) ends reading with `CorpusError` ("fail"), or is
      left out and counted ("skip"). Files that are damaged or missing always end it.

    Raises `CorpusError` where an input cannot be had or an option cannot be.

    >>> corpus = Corpus(iter(["one", "two"]))
    >>> [bytes(batch.data) for batch in corpus.read()]
    [b'onetwo']
    """

    def __init__(
        self,
        inputs: CorpusInputs,
        *,
        format: Format | Literal["auto"] = "auto",  # noqa: A002
        field: str = "text",
        documents: str = "file",
        limit_bytes: int | None = None,
        sample: float | None = None,
        seed: int = 0,
        weights: Mapping[str, float] | None = None,
        encoding_errors: EncodingErrors = "strict",
        on_error: OnError = "fail",
        repeat_by_weight: bool = False,
    ) -> None:
        self.options = CorpusOptions(
            format, field, documents, limit_bytes, sample, seed, encoding_errors, on_error
        )
        self.sources: list[Source]
        """The files, none where the documents are Python objects."""
        self.texts: Any
        """The iterable of Python objects, None where there are files."""
        self._readers: Sequence[Reader]
        if is_texts(inputs):
            self.sources, self.texts = [], inputs
            self._readers = [rows_reader(inputs, self.options)]
        else:
            self.sources, self.texts = resolve_inputs(inputs, format), None
            self._readers = [FileReader(source, self.options) for source in self.sources]
        self.weights: list[float] = _weights_of(self.sources, self._readers, weights or {})
        """How much each source counts."""
        self.repeat_by_weight = repeat_by_weight
        shares = self.weights if repeat_by_weight else [1.0] * len(self._readers)
        for reader, share in zip(self._readers, shares, strict=True):
            if share > 1 and not reader.comes_again:
                raise CorpusError(
                    f"{reader.name} can be read only once, but its weight is {share:g}",
                    hint="put it into a file, or give it a weight of at most 1",
                )
        self._selection = Selection(self._readers, shares, self.options.share, seed, limit_bytes)

    @property
    def encoding_errors(self) -> EncodingErrors:
        """What is done about bytes that are not UTF-8."""
        return self.options.encoding_errors

    @cached_property
    def is_plain(self) -> bool:
        """True where every document is a whole regular file of plain text, and all of it is wanted once."""
        options = self.options
        if self.texts is not None or options.documents != "file" or options.encoding_errors == "skip":
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
        """See `DocumentSource`. Of compressed files, compressed bytes."""
        total = 0
        for number, reader in enumerate(self._readers):
            if reader.n_bytes is None:
                return None
            total += reader.n_bytes * self._selection.n_turns(number)
        return total

    @property
    def source_names(self) -> list[str]:
        """See `DocumentSource`."""
        return [reader.name for reader in self._readers]

    @property
    def can_resume(self) -> bool:
        """See `DocumentSource`."""
        return all(reader.comes_again and not reader.runs_own_code for reader in self._readers)

    @property
    def description(self) -> dict[str, Any]:
        """See `DocumentSource`: names, sizes and times of change of the sources, and the options."""
        return {
            "sources": [reader.describe() for reader in self._readers],
            "weights": self.weights,
            "repeat_by_weight": self.repeat_by_weight,
            "options": self.options.describe(),
        }

    def read(self, start: Position | None = None) -> Generator[DocumentBatch]:
        """See `DocumentSource`.

        Files and datasets are read, decompressed and parsed in a thread that runs a few batches ahead, and ends when
        the generator does; an iterable of the caller's is drawn in the caller's thread.

        Raises `CorpusError` for what cannot be read, for a broken document (after those before it are given), and where
        there is no document at all.
        """
        from bytemill.corpus.prefetch import prefetched

        begin = start or Position()

        def make(stop: threading.Event) -> Iterator[DocumentBatch]:
            return self._selection.read(begin, stop)

        last = begin.counts
        for batch in (
            _here(make) if any(reader.runs_own_code for reader in self._readers) else prefetched(make)
        ):
            last = batch.after.counts
            yield batch
        if not last.n_documents:
            raise self._no_document()

    def _no_document(self) -> CorpusError:
        names = self.source_names
        what = names[0] if len(names) == 1 else f"each of the {len(names)} inputs ({names[0]}, …)"
        if self.options.share < 1:
            return CorpusError(f"the sample holds no document of {what}", hint="take a larger one")
        hint = (
            'all are broken: on_error="fail" (--on-error fail) says why'
            if self.options.on_error == "skip"
            else None
        )
        return CorpusError(f"the corpus is empty: {what} holds no document", hint=hint or "give some text")


def _here(make: Any) -> Generator[DocumentBatch]:
    import threading

    yield from make(threading.Event())


def _is_plain(source: Source, reader: Reader) -> bool:
    if source.path is None or source.n_bytes is None or not reader.is_one_document():
        return False
    return compression_of(head_of(source)) is None


def _weights_of(
    sources: Sequence[Source], readers: Sequence[Reader], weights: Mapping[str, float]
) -> list[float]:
    checked = {name: checked_weight(name, weight) for name, weight in weights.items()}
    given = [{source.name, source.given} for source in sources] or [{reader.name} for reader in readers]
    for name in checked:
        if not any(name in names for names in given):
            known = ", ".join(dict.fromkeys(source.given for source in sources)) or readers[0].name
            raise CorpusError(
                f"a weight is given for {name}, which is no input", hint=f"the inputs are {known:.300}"
            )
    if not sources:
        return [checked.get(reader.name, 1.0) for reader in readers]
    # A file's own name says more than the glob or the folder that led to it.
    return [checked.get(source.name, checked.get(source.given, 1.0)) for source in sources]
