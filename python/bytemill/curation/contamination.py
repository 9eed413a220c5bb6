r"""Contamination: documents that have words in a row of an evaluation item too.

Words are those of near duplicates: the text is normalized to NFC and lower-cased, letters and numbers count, everything
else separates. So case, punctuation and line breaks make no difference. 13 words in a row are an n-gram, the length of
GPT-3 (Brown et al. 2020, appendix C). An item of fewer words has none, and is never found.

The core searches for hashes of n-grams; where it finds one, words are compared.

>>> index = ContaminationIndex([Item("quiz:0", "How many legs do seven spiders have?")], n=5)
>>> text = "Q: how many\nlegs do SEVEN spiders have? A: 56"
>>> index.matches(text)
[Match(item='quiz:0', start=3, end=38, n_words=7)]
>>> without_matches(text, index.matches(text))
'Q: ? A: 56'
"""

from __future__ import annotations

import json
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from bytemill._core import sketch_texts
from bytemill.corpus import Corpus, iter_texts
from bytemill.curation.documents import Batch, packed
from bytemill.errors import CurationError
from bytemill.reference.duplicates import Word, words
from bytemill.system.atomic_files import open_text

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

N = 13
"""Words of an n-gram."""
MAX_N = 64


class GramIndex:
    """The n-grams of texts.

    Args:
        texts: The texts.
        n: Words of an n-gram, at most 64.
    """

    def __init__(self, texts: Sequence[str], n: int = N) -> None:
        self.n = n
        self._numbers: dict[str, int] = {}  # of words
        self._texts_of: dict[tuple[int, ...], list[int]] = {}
        long: list[str] = []
        for number, text in enumerate(texts):
            ids = [self._numbers.setdefault(word.text, len(self._numbers)) for word in words(text)]
            if len(ids) >= n:
                long.append(text)
            for gram in dict.fromkeys(_grams(ids, n)):
                self._texts_of.setdefault(gram, []).append(number)
        self.n_short = len(texts) - len(long)
        """Number of texts with too few words for an n-gram."""
        batch = packed(long)
        self._hashes = np.unique(sketch_texts(batch.data, batch.ends, n)[1])

    def may_have(self, batch: Batch, num_threads: int | None = None) -> NDArray[np.bool_]:
        """Return for each document whether the hash of one of its n-grams is in the index, shape (n_documents,)."""
        _, grams, ends = sketch_texts(batch.data, batch.ends, self.n, num_threads)
        if not len(grams) or not len(self._hashes):
            return np.zeros(len(batch.ends), np.bool_)
        at = np.minimum(np.searchsorted(self._hashes, grams), len(self._hashes) - 1)
        n_before = np.concatenate([[0], np.cumsum(self._hashes[at] == grams)])
        stops = ends.astype(np.int64)
        return n_before[stops] > n_before[np.concatenate([[0], stops[:-1]])]

    def find(self, own: Sequence[Word]) -> list[tuple[int, list[int]]]:
        """Return the positions of n-grams of the index among words, each with the numbers of its texts."""
        ids = [self._numbers.get(word.text, -1) for word in own]
        return [
            (position, self._texts_of[gram])
            for position, gram in enumerate(_grams(ids, self.n))
            if gram in self._texts_of
        ]


def _grams(ids: Sequence[int], n: int) -> Iterator[tuple[int, ...]]:
    return zip(*(ids[first:] for first in range(n)), strict=False)


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
    """Where they start in the document, in characters of its NFC."""
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
        CurationError: If there is no item that is long enough, or `n` is not 2 to 64.
    """

    def __init__(self, items: Iterable[Item], n: int = N) -> None:
        if not 2 <= n <= MAX_N:
            raise CurationError(f"n is {n}; it must be 2 to {MAX_N}", hint="try 13")
        self.items = list(items)
        self.n = n
        self._index = GramIndex([item.text for item in self.items], n)
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
        return self._located(text) if self._index.may_have(packed([text]), 1)[0] else []

    def batch_matches(self, batch: Batch, num_threads: int | None = None) -> list[list[Match]]:
        """Return the matches of each of many documents, faster than one by one."""
        found = self._index.may_have(batch, num_threads)
        return [
            self._located(text) if may_have else []
            for may_have, text in zip(found.tolist(), batch.texts(), strict=True)
        ]

    def _located(self, text: str) -> list[Match]:
        own = list(words(text))
        runs: dict[int, list[list[int]]] = {}
        for position, numbers in self._index.find(own):
            for number in numbers:
                known = runs.setdefault(number, [])
                if known and position <= known[-1][1]:
                    known[-1][1] = position + self.n
                else:
                    known.append([position, position + self.n])
        return [
            Match(self.items[number].name, own[first].start, own[last - 1].end, last - first)
            for number in sorted(runs)
            for first, last in runs[number]
        ]


def without_matches(text: str, matches: Iterable[Match]) -> str:
    """Return a text without the words of matches, in NFC unless it is ASCII or there are none."""
    matches = sorted(matches, key=lambda match: match.start)
    if not matches:
        return text
    text = unicodedata.normalize("NFC", text)
    parts: list[str] = []
    end = 0
    for match in matches:
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
