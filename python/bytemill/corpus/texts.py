"""The documents of a corpus as an iterator of strings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bytemill.corpus.corpus import Corpus, check_texts
from bytemill.corpus.messages import not_a_str

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from bytemill.corpus.options import Errors
    from bytemill.corpus.sources import CorpusInputs


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
