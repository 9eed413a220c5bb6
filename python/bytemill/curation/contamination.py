r"""Contamination: documents that have words in a row of an evaluation item too.

Words are the longest runs of letters, digits and underscores (`\w`) of the case-folded text, so that case, punctuation
and line breaks make no difference, and 13 of them in a row are an n-gram: the definition of GPT-3 (Brown et al. 2020,
appendix C), for a length of 13. An item of fewer words has none, and is never found.

>>> index = ContaminationIndex([Item("quiz:0", "How many legs do seven spiders have?")], n=5)
>>> text = "Q: how many\nlegs do SEVEN spiders have? A: 56"
>>> index.matches(text)
[Match(item='quiz:0', start=3, end=38, n_words=7)]
>>> without_matches(text, index.matches(text))
'Q: ? A: 56'
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from bytemill.corpus import Corpus, iter_texts
from bytemill.errors import CurationError
from bytemill.system.atomic_files import open_text

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

N = 13
"""Words of an n-gram."""
DOCUMENT_END = "\ud800"
"""A lone surrogate, which no decoded text has: a word that is in no n-gram."""
_WORD = re.compile(rf"\w+|{DOCUMENT_END}")
_FACTOR = 0x9E3779B97F4A7C15
"""Odd, so that each word of an n-gram changes its hash."""


def words_of(text: str) -> list[str]:
    """Return the words that are compared.

    >>> words_of("Don't   SHOUT, Straße_2!")
    ['don', 't', 'shout', 'strasse_2']
    """
    return [word for word in _WORD.findall(text.casefold()) if word != DOCUMENT_END]


class GramIndex:
    """The n-grams of texts.

    Args:
        texts: The texts.
        n: Words of an n-gram.
    """

    def __init__(self, texts: Iterable[str], n: int = N) -> None:
        self.n = n
        self._numbers: dict[
            str, int
        ] = {}  # of words, from 1; 0 stands for all others and for the end of a document
        self.texts_of: dict[tuple[int, ...], list[int]] = {}
        """Numbers of the texts that have an n-gram."""
        self.n_texts = self.n_short = 0
        for number, text in enumerate(texts):
            ids = [self._numbers.setdefault(word, len(self._numbers) + 1) for word in words_of(text)]
            self.n_texts += 1
            self.n_short += len(ids) < n
            for gram in dict.fromkeys(zip(*(ids[first:] for first in range(n)), strict=False)):
                self.texts_of.setdefault(gram, []).append(number)
        grams = np.array(list(self.texts_of), dtype=np.int64).reshape(-1, n)
        self._hashes = np.unique(_hashes(grams))

    def ids(self, folded: str) -> NDArray[np.int64]:
        """Return the words of a case-folded text as numbers; 0 for words that no text has."""
        words = _WORD.findall(folded)
        return np.fromiter(map(self._numbers.get, words, repeat(0)), np.int64, len(words))

    def find(self, ids: NDArray[np.int64]) -> list[tuple[int, list[int]]]:
        """Return the positions of n-grams of the index, ascending, each with the numbers of its texts."""
        if len(ids) < self.n or not len(self._hashes):
            return []
        n_known = np.cumsum(np.concatenate([[0], ids > 0]))
        starts = np.flatnonzero(n_known[self.n :] - n_known[: -self.n] == self.n)
        if not len(starts):
            return []
        grams = np.lib.stride_tricks.sliding_window_view(ids, self.n)[starts]
        hashes = _hashes(grams)
        at = np.minimum(np.searchsorted(self._hashes, hashes), len(self._hashes) - 1)
        is_known = self._hashes[at] == hashes
        rows = cast("list[list[int]]", grams[is_known].tolist())
        pairs = zip(starts[is_known].tolist(), map(tuple, rows), strict=True)
        # Others may have the same hash.
        return [(start, self.texts_of[gram]) for start, gram in pairs if gram in self.texts_of]


def _hashes(grams: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return a hash of each row."""
    found = np.zeros(len(grams), dtype=np.uint64)
    for column in grams.T:
        found = found * np.uint64(_FACTOR) + column.astype(np.uint64)
    return found


@dataclass(frozen=True)
class Item:
    """An evaluation item."""

    name: str
    """Its set and number, such as `gsm8k:12`."""
    text: str
    """Its own text, without a prompt."""


@dataclass(frozen=True)
class Match:
    """Words in a row that a document and an item share."""

    item: str
    start: int
    """Where they start in the document, in characters."""
    end: int
    n_words: int


@dataclass(frozen=True)
class ItemOverlap:
    """What documents have of an item."""

    item: str
    n_documents: int
    n_words: int
    """Words of the longest match."""


class ContaminationIndex:
    """The n-grams of evaluation items, which documents are searched for.

    Args:
        items: The items.
        n: Words of an n-gram.

    Raises:
        CurationError: If there is no item that is long enough, or `n` is below 2.
    """

    def __init__(self, items: Iterable[Item], n: int = N) -> None:
        if n < 2:
            raise CurationError(f"n is {n}; it must be at least 2", hint="try 13")
        self.items = list(items)
        self.n = n
        self._index = GramIndex((item.text for item in self.items), n)
        if self.n_short == len(self.items):
            raise CurationError(
                f"none of {len(self.items):,} items has {n} words, which it needs to be found", hint="lower n"
            )

    @property
    def n_short(self) -> int:
        """Number of items with too few words to be found."""
        return self._index.n_short

    @classmethod
    def load(cls, files: Sequence[str | os.PathLike[str]], n: int = N) -> ContaminationIndex:
        """Return the index of the items in files; see `read_items`."""
        return cls((item for file in files for item in read_items(file)), n)

    def matches(self, text: str) -> list[Match]:
        """Return the matches of a text, by item in the order of the index and by position.

        N-grams of an item that overlap or touch are one match.
        """
        folded = text.casefold()
        found = self._index.find(self._index.ids(folded))
        if not found:
            return []
        runs: dict[int, list[list[int]]] = {}
        for position, numbers in found:
            for number in numbers:
                own = runs.setdefault(number, [])
                if own and position <= own[-1][1]:
                    own[-1][1] = position + self.n
                else:
                    own.append([position, position + self.n])
        spans = [match.span() for match in _WORD.finditer(folded)]
        offset_of = _original_offsets(text, folded)
        return [
            Match(
                self.items[number].name,
                offset_of[spans[first][0]],
                offset_of[spans[last - 1][1] - 1] + 1,
                last - first,
            )
            for number in sorted(runs)
            for first, last in runs[number]
        ]


def _original_offsets(text: str, folded: str) -> Sequence[int]:
    """Return for each character of a case-folded text the offset of the one that it comes from."""
    if len(text) == len(folded):
        return range(len(text))
    return [offset for offset, character in enumerate(text) for _ in character.casefold()]


def without_matches(text: str, matches: Iterable[Match]) -> str:
    """Return a text without the words of matches."""
    parts: list[str] = []
    end = 0
    for match in sorted(matches, key=lambda match: match.start):
        parts.append(text[end : max(end, match.start)])
        end = max(end, match.end)
    return "".join([*parts, text[end:]])


def overlap_by_item(documents: Iterable[Iterable[Match]]) -> list[ItemOverlap]:
    """Return what documents have of each item that one of them has, by the number of documents and then by name.

    Args:
        documents: The matches of each document.
    """
    found: dict[str, tuple[int, int]] = {}
    for matches in documents:
        longest: dict[str, int] = {}
        for match in matches:
            longest[match.item] = max(match.n_words, longest.get(match.item, 0))
        for item, n_words in longest.items():
            n_documents, most = found.get(item, (0, 0))
            found[item] = n_documents + 1, max(most, n_words)
    rows = [ItemOverlap(item, *own) for item, own in found.items()]
    return sorted(rows, key=lambda row: (-row.n_documents, row.item))


def read_items(path: str | os.PathLike[str]) -> list[Item]:
    """Read items: JSON lines with `text` and perhaps `item`, the name; or a text file with an item on each line.

    Raises:
        CorpusError: If the file cannot be read.
        CurationError: If a line of JSON is no item.
    """
    path = Path(path)
    name = path.name.split(".")[0]
    lines = [line for line in iter_texts(Corpus(str(path), format="text", documents="line")) if line.strip()]
    if ".json" not in path.name:
        return [Item(f"{name}:{number}", line) for number, line in enumerate(lines)]
    return [
        _item(json_line, f"{path}:{number + 1:,}", f"{name}:{number}")
        for number, json_line in enumerate(lines)
    ]


def _item(line: str, position: str, name: str) -> Item:
    try:
        row: Any = json.loads(line)
    except ValueError as error:
        raise CurationError(f"{position}: {error}") from error
    row = cast("Mapping[str, Any]", row) if isinstance(row, dict) else {}
    text, item = row.get("text"), row.get("item", name)
    if not isinstance(text, str) or not isinstance(item, str):
        raise CurationError(
            f"{position}: an item needs the field text, and perhaps item, its name",
            hint="bytemill data contamination items TASK=FILE -o FILE writes them for known benchmarks",
        )
    return Item(item, text)


def write_items(path: str | os.PathLike[str], items: Iterable[Item]) -> None:
    """Write items as JSON lines, which `read_items` reads.

    Raises:
        OutputError: If the file cannot be written.
    """
    with open_text(path) as file:
        for item in items:
            file.write(json.dumps({"item": item.name, "text": item.text}, ensure_ascii=False) + "\n")
