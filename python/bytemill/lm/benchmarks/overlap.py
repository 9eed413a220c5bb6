"""Overlap of benchmarks with training data: which items have 13 words in a row that a shard folder has too.

Words and n-grams are those of `bytemill.curation.contamination`. N-grams do not cross documents.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bytemill.curation.contamination import DOCUMENT_END, GramIndex, N
from bytemill.lm.batches import JoinedShards

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from bytemill.lm.batches import TokenSequence
    from bytemill.tokenizer.tokenizer import Tokenizer

_CHUNK_IDS = 1 << 19
"""Ids that are decoded at a time."""
_CHARACTER = re.compile(r"\w")


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
        for n_done, text in _texts(tokens, tokenizer):
            search.add(text)
            if progress:
                progress(n_before + n_done, total)
        search.add(DOCUMENT_END)
        n_before += len(tokens)
    return Overlap(tuple(number in found for number in range(len(texts))), index.n_short, total)


class _Search:
    """Search of a stream of text; words and n-grams may span its parts."""

    def __init__(self, index: GramIndex, found: set[int]) -> None:
        self._index, self._found = index, found
        self._held = ""
        self._before: NDArray[np.int64] = np.zeros(0, dtype=np.int64)

    def add(self, text: str) -> None:
        text = self._held + text.casefold()
        end = len(text)
        while end and _CHARACTER.match(text, end - 1):
            end -= 1  # the last word may continue
        text, self._held = text[:end], text[end:]
        ids = np.concatenate([self._before, self._index.ids(text)])
        self._before = ids[max(0, len(ids) - self._index.n + 1) :]
        for _, texts in self._index.find(ids):
            self._found.update(texts)


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
                parts += (decoder.decode(data, final=True), DOCUMENT_END)
                previous = []
        yield min(start + _CHUNK_IDS, len(tokens)), "".join(parts)
