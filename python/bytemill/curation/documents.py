"""Whole documents in batches, from a corpus or any iterable of texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, TypeGuard, cast

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from bytemill.corpus import DocumentBatch, DocumentSource

BATCH_BYTES = 4 << 20
"""Approximate size of a batch of texts."""

Documents: TypeAlias = "DocumentSource | Iterable[str]"
"""What functions of curation read: a `Corpus`, or texts."""


@dataclass(frozen=True)
class Batch:
    """Consecutive whole documents of one input."""

    data: bytes | memoryview
    """Their text: valid UTF-8."""
    ends: NDArray[np.int64]
    """End of each document in `data`, shape (n_documents,)."""
    source: int = 0
    """Number of the input."""

    def texts(self) -> Iterator[str]:
        """Yield each document."""
        start = 0
        for end in self.ends.tolist():
            yield str(self.data[start:end], "utf-8")
            start = end


def packed(texts: Iterable[str]) -> Batch:
    """Return texts as one batch. Lone surrogates are replaced by question marks."""
    encoded = [text.encode("utf-8", "replace") for text in texts]
    return Batch(b"".join(encoded), np.cumsum([len(text) for text in encoded], dtype=np.int64))


def whole_documents(documents: Documents) -> Iterator[Batch]:
    """Yield the documents in corpus order. A document that spans batches of a corpus is joined in memory."""
    if _is_corpus(documents):
        yield from joined(documents.read())
    else:
        yield from _of_texts(cast("Iterable[str]", documents))


def _of_texts(documents: Iterable[str]) -> Iterator[Batch]:
    texts: list[str] = []
    n_characters = 0
    for text in documents:
        texts.append(text)
        n_characters += len(text)
        if n_characters >= BATCH_BYTES:
            yield packed(texts)
            texts, n_characters = [], 0
    if texts:
        yield packed(texts)


def _is_corpus(documents: Documents) -> TypeGuard[DocumentSource]:
    return hasattr(documents, "read")


def joined(batches: Iterable[DocumentBatch]) -> Iterator[Batch]:
    """Yield the whole documents of batches of a corpus."""
    begun: list[bytes] = []
    for batch in batches:
        for source, run_data, run_ends, is_open in batch.runs():
            data, ends = run_data, run_ends
            if begun:
                if is_open and len(ends) == 1:
                    begun.append(bytes(data))
                    continue
                n_begun = sum(map(len, begun))
                data, ends, begun = b"".join([*begun, data]), ends + n_begun, []
            if is_open:
                start = int(ends[-2]) if len(ends) > 1 else 0
                begun = [bytes(data[start:])]
                data, ends = memoryview(data)[:start], ends[:-1]
            if len(ends):
                yield Batch(data, ends, source)
