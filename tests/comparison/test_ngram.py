"""N-gram models against the recursion of Chen and Goodman, over dicts."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bytemill.comparison.ngram import discounts_of, ngram_scores, split_documents

Document = list[int]


class Reference:
    """Interpolated modified Kneser–Ney, one probability at a time."""

    def __init__(self, documents: list[Document], order: int, n_vocab: int) -> None:
        self.order, self.end, self.begin = order, n_vocab, n_vocab + 1
        self.n_symbols = n_vocab + 1
        grams = [gram for document in documents for gram in self.grams(document)]
        self.counts = {order: Counter(grams)}
        for n in range(order - 1, 0, -1):
            self.counts[n] = Counter(gram[1:] for gram in self.counts[n + 1])
        self.discounts = {
            n: discounts_of(np.array(list(counts.values()))) for n, counts in self.counts.items()
        }

    def grams(self, document: Document) -> list[tuple[int, ...]]:
        padded = [self.begin] * (self.order - 1) + document + [self.end]
        return [tuple(padded[i : i + self.order]) for i in range(len(padded) - self.order + 1)]

    def probability(self, gram: tuple[int, ...]) -> float:
        if not gram:
            return 1 / self.n_symbols
        counts, discounts = self.counts[len(gram)], self.discounts[len(gram)]
        same = {other: n for other, n in counts.items() if other[:-1] == gram[:-1]}
        lower = self.probability(gram[1:])
        if not same:
            return lower
        own = counts.get(gram, 0)
        kept = own - discounts[min(own, 3) - 1] if own else 0.0
        saved = sum(discounts[min(n, 3) - 1] for n in same.values())
        return (kept + saved * lower) / sum(same.values())

    def bits(self, document: Document) -> float:
        return sum(-math.log2(self.probability(gram)) for gram in self.grams(document))


documents = st.lists(st.lists(st.integers(0, 5), max_size=12), min_size=2, max_size=8)


@given(documents, st.sampled_from([2, 3]))
def test_bits_are_those_of_the_recursion(texts: list[Document], order: int):
    held_out = split_documents(len(texts), 1)
    ids = np.array([i for text in texts for i in text], np.uint16)
    ends = np.cumsum([len(text) for text in texts])
    n_bytes = np.arange(1, len(texts) + 1)
    score = ngram_scores(ids, ends, n_bytes, 6, held_out=held_out)[order]
    reference = Reference([t for t, out in zip(texts, held_out, strict=True) if not out], order, 6)
    expected = [reference.bits(t) for t, out in zip(texts, held_out, strict=True) if out]
    assert score.bits.tolist() == pytest.approx(expected)
    assert score.bits_per_byte == pytest.approx(sum(expected) / n_bytes[held_out].sum())


def test_discounts_are_those_of_the_formula():
    counts = np.repeat([1, 2, 3, 4, 9], [40, 20, 10, 6, 3])
    y = 40 / (40 + 2 * 20)
    assert discounts_of(counts) == pytest.approx(
        (1 - 2 * y * 20 / 40, 2 - 3 * y * 10 / 20, 3 - 4 * y * 6 / 10)
    )
    assert discounts_of(np.array([1, 1, 2])) == (0.5, 0.75, 0.75)


def test_a_fifth_of_the_documents_is_held_out():
    assert split_documents(2).sum() == 1
    assert split_documents(100, 3).sum() == 20
