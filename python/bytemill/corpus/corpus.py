"""A corpus: sources of documents, and how they are read."""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING, Any, Literal

from bytemill.corpus.documents import BATCH_BYTES, CorpusCounts, DocumentBatch, Position
from bytemill.corpus.options import CorpusOptions, EncodingErrors, Format, OnError
from bytemill.corpus.reading import not_utf8, read_blocks
from bytemill.corpus.sources import CorpusInputs, Source, is_texts, resolve_inputs

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping


class Corpus:
    """Documents from files, standard input or an iterable.

    Raises `CorpusError` where an input cannot be had.
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
        self.texts = inputs if is_texts(inputs) else None
        self.sources: list[Source] = [] if is_texts(inputs) else resolve_inputs(inputs)
        self.encoding_errors: EncodingErrors = encoding_errors
        self.weights = [1.0] * len(self.source_names)

    @property
    def is_plain(self) -> bool:
        """True where every document is a whole file of plain text, and all of it is wanted."""
        return self.texts is None

    @property
    def total_bytes(self) -> int | None:
        """See `DocumentSource`."""
        sizes = [source.n_bytes for source in self.sources]
        return None if self.texts is not None or None in sizes else sum(size or 0 for size in sizes)

    @property
    def source_names(self) -> list[str]:
        """See `DocumentSource`."""
        return ["<texts>"] if self.texts is not None else [source.name for source in self.sources]

    @property
    def can_resume(self) -> bool:
        """See `DocumentSource`."""
        return self.texts is None and all(source.n_bytes is not None for source in self.sources)

    @property
    def description(self) -> dict[str, Any]:
        """See `DocumentSource`."""
        return {
            "sources": [[source.name, source.n_bytes] for source in self.sources],
            "encoding_errors": self.encoding_errors,
        }

    def read(self, start: Position | None = None) -> Generator[DocumentBatch]:
        """See `DocumentSource`."""
        at = start or Position()
        if self.texts is not None:
            yield from self._read_texts(self.texts, at)
            return
        before = sum(source.n_bytes or 0 for source in self.sources[: at.source])
        for number in range(at.source, len(self.sources)):
            for batch in self._read_file(number, at, before):
                at = batch.after
                yield batch
            before += self.sources[number].n_bytes or 0

    def _read_file(self, number: int, at: Position, before: int) -> Iterator[DocumentBatch]:
        import numpy as np

        source = self.sources[number]
        skip = int(at.state.get("batches", 0)) if at.source == number else 0
        counts, n_read = at.counts, 0
        decoder = codecs.getincrementaldecoder("utf-8")(self.encoding_errors)
        blocks = read_blocks(source, BATCH_BYTES)
        for index, block in enumerate([*blocks, b""]):
            try:
                data = decoder.decode(block, final=not block).encode()
            except UnicodeDecodeError as error:
                raise not_utf8(source, error) from error
            n_read += len(block)
            if index < skip:
                continue
            counts = CorpusCounts(counts.n_documents + (not block), counts.n_bytes + len(data))
            after = (
                Position(number, {"batches": index + 1}, counts)
                if block
                else Position(number + 1, {}, counts)
            )
            yield DocumentBatch(data, np.array([len(data)]), bool(block), number, before + n_read, after)

    def _read_texts(self, texts: Any, at: Position) -> Iterator[DocumentBatch]:
        import numpy as np

        counts = at.counts
        for text in texts:
            data = str(text).encode()
            counts = CorpusCounts(counts.n_documents + 1, counts.n_bytes + len(data))
            yield DocumentBatch(
                data, np.array([len(data)]), False, 0, counts.n_bytes, Position(0, {}, counts)
            )
