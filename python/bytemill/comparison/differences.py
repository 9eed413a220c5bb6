"""Where two tokenizers differ: boundaries, vocabularies, tokens that only one has, documents."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from heapq import nlargest
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from bytemill.analysis.inspection import inspect

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from bytemill._core import TokenBoundaries
    from bytemill.analysis.inspection import TextToken
    from bytemill.comparison.counting import TokenTable
    from bytemill.tokenizer.tokenizer import Tokenizer

N_TOKENS = 20
N_DOCUMENTS = 10
_MIN_BYTES = 100
"""Shorter documents and passages are not compared: one token more is a large share of them."""
_EXCERPT_BYTES = 600


@dataclass(frozen=True)
class Excerpt:
    """The beginning of a document or passage on which two tokenizers differ."""

    number: int
    """Of the document or passage in the group, from 1."""
    n_tokens: tuple[int, int]
    n_bytes: int
    text: str
    tokens: tuple[list[TextToken], list[TextToken]] | None = None
    """The text as both divide it; for the page, not in the JSON."""


@dataclass
class TextDifference:
    """How two tokenizers divide a group."""

    first: str
    second: str
    n_shared: int = 0
    """Boundaries between tokens that both have; the ends of documents and passages do not count."""
    n_boundaries: tuple[int, int] = (0, 0)
    """Boundaries of each."""
    excerpts: list[Excerpt] = field(default_factory=list[Excerpt])
    """Where the ratio of their numbers of tokens is the most extreme."""

    @property
    def shares(self) -> tuple[float | None, float | None]:
        """Share of the boundaries of each that the other has too."""
        first, second = (self.n_shared / n if n else None for n in self.n_boundaries)
        return first, second

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON."""
        return {
            "first": self.first,
            "second": self.second,
            "n_shared": self.n_shared,
            "n_boundaries": list(self.n_boundaries),
            "shares": list(self.shares),
            "excerpts": [
                {
                    "number": own.number,
                    "n_tokens": list(own.n_tokens),
                    "n_bytes": own.n_bytes,
                    "text": own.text,
                }
                for own in self.excerpts
            ],
        }

    def show(self, tokenizers: Mapping[str, Tokenizer]) -> None:
        """Divide the first excerpt by both tokenizers."""
        if self.excerpts:
            first, second = (
                inspect(tokenizers[name], self.excerpts[0].text, allowed_special="none").tokens
                for name in (self.first, self.second)
            )
            self.excerpts[0] = replace(self.excerpts[0], tokens=(first, second))


@dataclass(frozen=True)
class VocabularyDifference:
    """What two vocabularies have in common, as byte strings; special tokens are left out."""

    first: str
    second: str
    n_common: int
    n_only: tuple[int, int]
    """Tokens that only the first and only the second has."""
    only_first: dict[str, list[tuple[bytes, int, float]]]
    """Group -> the most used tokens of the first that the second lacks: bytes, uses, share of all tokens."""
    only_second: dict[str, list[tuple[bytes, int, float]]]

    @property
    def jaccard(self) -> float:
        """Common tokens / all tokens."""
        return self.n_common / (self.n_common + sum(self.n_only))

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON; bytes are hexadecimal."""

        def rows(tokens: dict[str, list[tuple[bytes, int, float]]]) -> dict[str, list[dict[str, Any]]]:
            return {
                group: [
                    {
                        "bytes": token.hex(),
                        "text": token.decode(errors="replace"),
                        "uses": uses,
                        "share": share,
                    }
                    for token, uses, share in own
                ]
                for group, own in tokens.items()
            }

        return {
            "first": self.first,
            "second": self.second,
            "n_common": self.n_common,
            "n_only": list(self.n_only),
            "jaccard": self.jaccard,
            "only_first": rows(self.only_first),
            "only_second": rows(self.only_second),
        }


def pairs_of(names: Sequence[str], *, all_pairs: bool) -> list[tuple[str, str]]:
    """Return the pairs to compare: the first with each other, or all.

    >>> pairs_of(["a", "b", "c"], all_pairs=False), pairs_of(["a", "b", "c"], all_pairs=True)
    ([('a', 'b'), ('a', 'c')], [('a', 'b'), ('a', 'c'), ('b', 'c')])
    """
    return list(combinations(names, 2)) if all_pairs else [(names[0], name) for name in names[1:]]


class DifferenceCounter:
    """Counts the differences of pairs of tokenizers in a group, block by block.

    Args:
        pairs: Names of the tokenizers.
    """

    def __init__(self, pairs: Sequence[tuple[str, str]]) -> None:
        self.differences = [TextDifference(*pair) for pair in pairs]
        self._n_units = 0

    def add(
        self,
        data: bytes,
        ends: NDArray[np.int64],
        counts: Mapping[str, tuple[Mapping[str, NDArray[np.int64]], TokenBoundaries]],
    ) -> None:
        """Count a block.

        Args:
            data: Its text.
            ends: Offset at which each unit ends.
            counts: What `TextMarks.count` returns, by tokenizer.
        """
        sizes = np.diff(ends, prepend=0)
        for difference in self.differences:
            (first, own), (second, other) = counts[difference.first], counts[difference.second]
            if first["round_trips"].all() and second["round_trips"].all():
                difference.n_shared += own.n_shared(other)
                a, b = difference.n_boundaries
                difference.n_boundaries = (a + own.n(), b + other.n())
            n_tokens = first["n_tokens"], second["n_tokens"]
            ratios = np.abs(np.log(np.maximum(1, n_tokens[0]) / np.maximum(1, n_tokens[1])))
            ratios[sizes < _MIN_BYTES] = 0
            for unit in np.argsort(-ratios, kind="stable")[:N_DOCUMENTS].tolist():
                if ratios[unit] > 0:
                    size, end = int(sizes[unit]), int(ends[unit])
                    text = data[end - size : end][:_EXCERPT_BYTES].decode(errors="ignore")
                    both = (int(n_tokens[0][unit]), int(n_tokens[1][unit]))
                    difference.excerpts.append(Excerpt(self._n_units + unit + 1, both, size, text))
            difference.excerpts = nlargest(N_DOCUMENTS, difference.excerpts, key=_extremity)
        self._n_units += len(ends)


def _extremity(excerpt: Excerpt) -> tuple[float, int]:
    first, second = (max(1, n) for n in excerpt.n_tokens)
    return max(first / second, second / first), -excerpt.number


def vocabulary_difference(
    first: str,
    second: str,
    tables: Mapping[str, TokenTable],
    histograms: Mapping[str, Mapping[str, NDArray[np.int64]]],
) -> VocabularyDifference:
    """Compare two vocabularies.

    Args:
        first: Name of a tokenizer.
        second: Name of another one.
        tables: Their tokens, by name.
        histograms: Group -> tokenizer -> uses of each id.
    """
    tokens = {name: tables[name].numbers for name in (first, second)}
    n_common = len(tokens[first].keys() & tokens[second].keys())

    def most_used(name: str, other: str) -> dict[str, list[tuple[bytes, int, float]]]:
        own = [(number, token) for token, number in tokens[name].items() if token not in tokens[other]]
        numbers = np.array([number for number, _ in own], np.int64)
        found: dict[str, list[tuple[bytes, int, float]]] = {}
        for group, uses in histograms.items():
            total = int(uses[name].sum())
            counts = uses[name][numbers]
            counted = ((int(counts[at]), own[at][1]) for at in np.flatnonzero(counts))
            found[group] = [(token, n, n / total) for n, token in nlargest(N_TOKENS, counted)]
        return found

    n_only = (len(tokens[first]) - n_common, len(tokens[second]) - n_common)
    only_first, only_second = most_used(first, second), most_used(second, first)
    return VocabularyDifference(first, second, n_common, n_only, only_first, only_second)
