"""Overlap of benchmarks with training data: which items have 13 words in a row that a shard folder has too.

Words and n-grams are those of `bytemill.curation.contamination`. N-grams do not cross documents.
"""

from __future__ import annotations

import codecs
import unicodedata
from dataclasses import dataclass
from itertools import compress
from typing import TYPE_CHECKING

import numpy as np

from bytemill.curation.contamination import GramIndex, N
from bytemill.curation.documents import packed
from bytemill.lm.batches import JoinedShards
from bytemill.reference.duplicates import words

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence

    from bytemill.lm.batches import TokenSequence
    from bytemill.tokenizer.tokenizer import Tokenizer

_CHUNK_IDS = 1 << 19
"""Ids that are decoded at a time."""


@dataclass(frozen=True)
class Overlap:
    """Which texts share an n-gram with training data."""

    found: tuple[bool, ...]
    """For each text, whether it does."""
    n_short: int
    """Number of texts with too few words for an n-gram."""
    n_tokens: int
    """Number of tokens that were searched."""


def overlap(
    texts: Sequence[str],
    folders: Sequence[str | os.PathLike[str]],
    tokenizer: Tokenizer,
    *,
    n: int = N,
    progress: Callable[[int, int], None] | None = None,
) -> Overlap:
    """Search shard folders for the n-grams of texts. Memory does not grow with the shards.

    Args:
        texts: The texts of items.
        folders: Shard folders.
        tokenizer: The tokenizer that they were made with.
        n: Words of an n-gram.
        progress: Called with the number of searched tokens and their total.

    Raises:
        ShardError: The shards are damaged or of another tokenizer.
    """
    index, found = GramIndex(texts, n), set[int]()
    shards = [JoinedShards([folder], tokenizer.fingerprint) for folder in folders]
    total, n_before = sum(map(len, shards)), 0
    for tokens in shards:
        search = _Search(index, found)
        for n_done, documents in _texts(tokens, tokenizer):
            search.add(documents)
            if progress:
                progress(n_before + n_done, total)
        search.add(["", ""])
        n_before += len(tokens)
    return Overlap(tuple(number in found for number in range(len(texts))), index.n_short, total)


class _Search:
    """Search of a stream of text; words and n-grams may span its parts."""

    def __init__(self, index: GramIndex, found: set[int]) -> None:
        self._index, self._found = index, found
        self._held = (
            ""  # the last words of a document: the last one may continue, and those before begin n-grams
        )

    def add(self, documents: Sequence[str]) -> None:
        """Search a part of the stream: the rest of a document, whole ones, and the start of one, or only the first."""
        texts = [self._held + documents[0], *documents[1:]]
        last = texts[-1]
        end = len(last)
        while end and unicodedata.category(last[end - 1])[0] in "LMN":
            end -= 1
        texts[-1] = last[:end]
        self._held = _last_words(texts[-1], self._index.n) + last[end:]
        for text in compress(texts, self._index.may_have(packed(texts))):
            for _, numbers in self._index.find(list(words(text))):
                self._found.update(numbers)


def _last_words(text: str, n: int) -> str:
    """Return the end of a text that has its last `n` words."""
    n_characters = 16 * n
    while n_characters < len(text):
        end = unicodedata.normalize("NFC", text[-n_characters:])
        if len(own := list(words(end))) > n:  # the first one may be cut
            return end[own[-n].start :]
        n_characters *= 2
    return text


def _texts(tokens: TokenSequence, tokenizer: Tokenizer) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of ids so far and the text of the next ones, by documents, which special tokens end."""
    special = np.array(sorted(tokenizer.special_tokens.values()), dtype=np.int64)
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    previous: list[int] = []
    for start in range(0, len(tokens), _CHUNK_IDS):
        ids = np.asarray(tokens[start : start + _CHUNK_IDS]).astype(np.int64)
        parts: list[str] = []
        first = 0
        for end in (*np.flatnonzero(np.isin(ids, special)).tolist(), len(ids)):
            run = ids[first:end].tolist()
            # Tokenizers may drop a space at the start of a text, which a part is not.
            data = tokenizer.decode_bytes([*previous, *run])[len(tokenizer.decode_bytes(previous)) :]
            previous, first = run[-1:] or previous, end + 1
            if end == len(ids):
                parts.append(decoder.decode(data))
            else:
                parts.append(decoder.decode(data, final=True))
                previous = []
        yield min(start + _CHUNK_IDS, len(tokens)), parts
