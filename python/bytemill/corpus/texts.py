"""The documents of a corpus as an iterator of strings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bytemill.corpus.corpus import Corpus
from bytemill.corpus.messages import no_text
from bytemill.corpus.sources import CorpusInputs, is_texts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from bytemill.corpus.options import EncodingErrors


def iter_texts(inputs: CorpusInputs | Corpus, *, errors: EncodingErrors = "strict") -> Iterator[str]:
    """The documents of a corpus as texts: those of a `Corpus`, an iterable's own, or each text file as one.

    One document at a time is held in memory, whole. `errors="replace"` reads what is not UTF-8 as U+FFFD; a `Corpus`
    has its own option for that. Raises `CorpusError` for files that cannot be read or are not UTF-8, and for an item
    that is no str.

    >>> list(iter_texts(iter(["one", "two"])))
    ['one', 'two']
    """
    if isinstance(inputs, Corpus):
        yield from _texts_of(inputs)
    elif is_texts(inputs):
        yield from _checked(inputs)
    else:
        yield from _texts_of(Corpus(inputs, encoding_errors=errors))


def _texts_of(corpus: Corpus) -> Iterator[str]:
    begun: list[bytes] = []
    for batch in corpus.read():
        start, last = 0, len(batch.ends) - 1
        for place, end in enumerate(batch.ends.tolist()):
            part = bytes(batch.data[start:end])
            if place == last and batch.is_open:
                begun.append(part)
            else:
                yield b"".join([*begun, part]).decode()
                begun = []
            start = end


def _checked(texts: Iterable[object]) -> Iterator[str]:
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise no_text(text, index)
        yield text
