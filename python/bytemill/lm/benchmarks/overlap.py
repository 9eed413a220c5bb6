"""Overlap of benchmarks with training data: which items have 13 words in a row that a shard folder has too.

Words are the longest runs of letters, digits and underscores (`\\w`) of the case-folded text, so that case, punctuation
and white space make no difference, and 13 of them in a row are an n-gram: the definition of GPT-3 (Brown et al. 2020,
appendix C), for a length of 13. N-grams do not cross documents. An item of fewer than 13 words has none.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING

import numpy as np

from bytemill.lm.batches import JoinedShards

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from bytemill.lm.batches import TokenSequence
    from bytemill.tokenizer.tokenizer import Tokenizer

N = 13
"""Words of an n-gram."""
_CHUNK_IDS = 1 << 19
"""Ids that are decoded at a time."""
_DOCUMENT_END = "\ud800"
"""A lone surrogate, which no decoded text has."""
_WORD = re.compile(rf"\w+|{_DOCUMENT_END}")
_CHARACTER = re.compile(r"\w")
_FACTOR = 0x9E3779B97F4A7C15
"""Odd, so that each word of an n-gram changes its hash."""


@dataclass(frozen=True)
class Overlap:
    """Which texts share an n-gram with training data."""

    found: tuple[bool, ...]
    """For each text, whether it does."""
    n_short: int
    """Number of texts with too few words for an n-gram."""
    n_tokens: int
    """Number of tokens that were searched."""


def words_of(text: str) -> list[str]:
    """Return the words that are compared.

    >>> words_of("Don't   SHOUT, Straße_2!")
    ['don', 't', 'shout', 'strasse_2']
    """
    return [word for word in _WORD.findall(text.casefold()) if word != _DOCUMENT_END]


def overlap(
    texts: Sequence[str],
    folders: Sequence[str | os.PathLike[str]],
    tokenizer: Tokenizer,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> Overlap:
    """Search shard folders for the n-grams of texts. Memory does not grow with the shards.

    Args:
        texts: The texts of items.
        folders: Shard folders.
        tokenizer: The tokenizer that they were made with.
        progress: Called with the number of searched tokens and their total.

    Raises:
        ShardError: The shards are damaged or of another tokenizer.
    """
    index = _Index(texts)
    shards = [JoinedShards([folder], tokenizer.fingerprint) for folder in folders]
    total, n_before = sum(map(len, shards)), 0
    for tokens in shards:
        search = _Search(index)
        for n_done, text in _texts(tokens, tokenizer):
            search.add(text)
            if progress:
                progress(n_before + n_done, total)
        search.add(_DOCUMENT_END)
        n_before += len(tokens)
    return Overlap(tuple(number in index.found for number in range(len(texts))), index.n_short, total)


class _Index:
    """The n-grams of texts, and which texts were found."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.numbers: dict[str, int] = {}
        """Numbers of words, from 1; 0 stands for all others and for the end of a document."""
        self.texts_of: dict[tuple[int, ...], list[int]] = {}
        self.found: set[int] = set()
        self.n_short = 0
        for number, text in enumerate(texts):
            ids = [self.numbers.setdefault(word, len(self.numbers) + 1) for word in words_of(text)]
            self.n_short += len(ids) < N
            for first in range(len(ids) - N + 1):
                self.texts_of.setdefault(tuple(ids[first : first + N]), []).append(number)
        grams = np.array(list(self.texts_of), dtype=np.int64).reshape(-1, N)
        self._hashes = np.unique(_hashes(grams))

    def note(self, grams: NDArray[np.int64]) -> None:
        """Note the texts that have one of these n-grams."""
        hashes = _hashes(grams)
        if not len(self._hashes):
            return
        at = np.minimum(np.searchsorted(self._hashes, hashes), len(self._hashes) - 1)
        # Others may have the same hash.
        for gram in map(tuple, grams[self._hashes[at] == hashes].tolist()):
            self.found.update(self.texts_of.get(gram, ()))


class _Search:
    """Search of a stream of text; words and n-grams may span its parts."""

    def __init__(self, index: _Index) -> None:
        self._index = index
        self._held = ""
        self._before: NDArray[np.int64] = np.zeros(0, dtype=np.int64)

    def add(self, text: str) -> None:
        text = self._held + text.casefold()
        end = len(text)
        while end and _CHARACTER.match(text, end - 1):
            end -= 1  # the last word may continue
        text, self._held = text[:end], text[end:]
        words = _WORD.findall(text)
        ids = np.fromiter(map(self._index.numbers.get, words, repeat(0)), np.int64, len(words))
        ids = np.concatenate([self._before, ids])
        self._before = ids[max(0, len(ids) - N + 1) :]
        if len(ids) < N:
            return
        n_known = np.cumsum(np.concatenate([[0], ids > 0]))
        starts = np.flatnonzero(n_known[N:] - n_known[:-N] == N)
        grams = np.lib.stride_tricks.sliding_window_view(ids, N)[starts]
        self._index.note(grams)


def _hashes(grams: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return a hash of each row."""
    found = np.zeros(len(grams), dtype=np.uint64)
    for column in grams.T:
        found = found * np.uint64(_FACTOR) + column.astype(np.uint64)
    return found


def _texts(tokens: TokenSequence, tokenizer: Tokenizer) -> Iterator[tuple[int, str]]:
    """Yield the text of ids in parts, with the number of ids so far; special tokens end documents."""
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
                parts += (decoder.decode(data, final=True), _DOCUMENT_END)
                previous = []
        yield min(start + _CHUNK_IDS, len(tokens)), "".join(parts)
