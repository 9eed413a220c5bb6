"""Held-out n-gram bits per byte: how well a small model predicts the tokens of unseen text.

A bigram or trigram model with interpolated modified Kneser–Ney smoothing (Chen & Goodman 1999) is trained on one part
of the documents and scored on another; its bits are divided by the bytes of the text, so that tokenizers with different
vocabularies are comparable. It shows how regular the tokens are at short range. It does not show what a larger model
makes of long contexts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bytemill.comparison.counting import encode_units, unit_encoder
from bytemill.errors import CorpusError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from bytemill.comparison.counting import Units
    from bytemill.tokenizer.tokenizer import Tokenizer

    Counts = tuple[NDArray[np.uint64], NDArray[np.int64]]
    """Distinct n-grams as numbers, ascending, and how often each occurs."""

ORDERS = (2, 3)
_HELD_OUT = 0.2
_MAX_VOCABULARY = 1 << 21
"""A trigram is one number of 64 bits."""


@dataclass(frozen=True)
class NgramScore:
    """Bits of the held-out documents under a model."""

    bits: NDArray[np.float64]
    """By held-out document."""
    n_bytes: NDArray[np.int64]
    """Bytes of its text."""

    @property
    def bits_per_byte(self) -> float:
        """Total bits over total bytes."""
        return float(self.bits.sum() / self.n_bytes.sum())


@dataclass(frozen=True)
class NgramModels:
    """N-gram models of the tokens of a text."""

    blocks: Sequence[Units]
    """The text."""
    seed: int
    """Of the choice of the units that are held out."""
    num_threads: int | None
    begin: Callable[[], None] = lambda: None
    """Called before the models of a tokenizer are made."""

    @property
    def n_units(self) -> int:
        """Number of units."""
        return sum(len(block.ends) for block in self.blocks)

    def scores(self, tokenizer: Tokenizer) -> dict[int, NgramScore]:
        """Return the score of the model of each order; empty for less than two units."""
        if self.n_units < 2:
            return {}
        self.begin()
        encoder = unit_encoder(tokenizer, self.num_threads)
        ids: list[NDArray[Any]] = []
        ends: list[NDArray[np.int64]] = []
        for data, unit_ends, _ in self.blocks:
            own, own_ends = encode_units(encoder, data, unit_ends)
            ends.append(own_ends + sum(map(len, ids)))
            ids.append(own)
        n_bytes = np.concatenate([np.diff(block.ends, prepend=0) for block in self.blocks])
        held_out = split_documents(self.n_units, self.seed)
        return ngram_scores(
            np.concatenate(ids), np.concatenate(ends), n_bytes, tokenizer.n_vocab, held_out=held_out
        )


def split_documents(n: int, seed: int = 0) -> NDArray[np.bool_]:
    """Return which of `n` documents are held out: a fifth at random, but at least one, and not all.

    Args:
        n: Number of documents, at least two.
        seed: Seed of the choice.
    """
    n_held_out = min(n - 1, max(1, round(_HELD_OUT * n)))
    mask = np.zeros(n, np.bool_)
    mask[np.random.default_rng(seed).permutation(n)[:n_held_out]] = True
    return mask


def ngram_scores(
    ids: NDArray[np.unsignedinteger],
    ends: NDArray[np.int64],
    n_bytes: NDArray[np.int64],
    n_vocab: int,
    *,
    held_out: NDArray[np.bool_],
) -> dict[int, NgramScore]:
    """Train a bigram and a trigram model on some documents, and score them on the others.

    Every document begins with a symbol that is not predicted, and ends with one that is.

    Args:
        ids: Ids of all documents.
        ends: Offset in `ids` at which those of each document end.
        n_bytes: Bytes of each document's text.
        n_vocab: Number of ids.
        held_out: Which documents are scored; at least one, and not all.

    Returns:
        The scores by order: 2 for bigrams, 3 for trigrams.

    Raises:
        CorpusError: The vocabulary is too large.
    """
    if n_vocab + 2 > _MAX_VOCABULARY:
        raise CorpusError(
            f"n-gram models are limited to {_MAX_VOCABULARY - 2:,} ids, and there are {n_vocab:,}"
        )
    tokens, firsts = _with_symbols(ids, ends, n_vocab)
    train, test = (_select(tokens, firsts, part) for part in (~held_out, held_out))
    del tokens
    n_before = test[1][:-1] - np.arange(len(test[1]) - 1)
    scores: dict[int, NgramScore] = {}
    for order in ORDERS:
        probabilities = _probabilities(_ngrams(*train, order), _ngrams(*test, order), order, n_vocab + 1)
        bits = np.add.reduceat(-np.log2(probabilities), n_before)
        scores[order] = NgramScore(bits, n_bytes[held_out])
    return scores


def _with_symbols(
    ids: NDArray[np.unsignedinteger], ends: NDArray[np.int64], n_vocab: int
) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Return the ids with an end symbol (n_vocab) and a begin symbol (n_vocab + 1) for each document, and its start."""
    n = len(ends)
    starts = np.concatenate([np.zeros(1, np.int64), ends[:-1]])
    tokens = np.empty(len(ids) + 2 * n, np.uint32)
    firsts = starts + 2 * np.arange(n)
    is_id = np.ones(len(tokens), np.bool_)
    is_id[firsts] = False
    lasts = ends + 2 * np.arange(n) + 1
    is_id[lasts] = False
    tokens[is_id] = ids
    tokens[firsts], tokens[lasts] = n_vocab + 1, n_vocab
    return tokens, np.append(firsts, len(tokens))


def _select(
    tokens: NDArray[np.uint32], firsts: NDArray[np.int64], chosen: NDArray[np.bool_]
) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Return the tokens of the chosen documents, and the start of each, with the end of the last."""
    lengths = np.diff(firsts)
    kept = tokens[np.repeat(chosen, lengths)]
    return kept, np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths[chosen])])


def _probabilities(
    train: NDArray[np.uint64], queries: NDArray[np.uint64], order: int, n_symbols: int
) -> NDArray[np.float64]:
    """Return the probability of the last token of each query after the others.

    p(w | h) = (max(c − D(c), 0) + (D₁ N₁ + D₂ N₂ + D₃ N₃₊) p(w | h')) / Σ c, where c are counts at the highest order
    and numbers of different predecessors below it, Nᵢ is the number of continuations of h that occur i times, and h' is
    h without its first token. Below the unigrams, every symbol is equally likely.
    """
    levels = [_counted(train)]
    for n in range(order - 1, 0, -1):
        distinct, _ = levels[0]
        levels.insert(0, _counted(distinct & _mask(n)))
    probabilities = np.full(len(queries), 1 / n_symbols)
    for n, level in enumerate(levels, 1):
        probabilities = _interpolated(level, queries & _mask(n), probabilities)
    return probabilities


def _ngrams(tokens: NDArray[np.uint32], firsts: NDArray[np.int64], order: int) -> NDArray[np.uint64]:
    """Return the n-gram that ends at each token but the begin symbols; the begin symbol also stands before itself."""
    starts = firsts[:-1]
    grams = tokens.astype(np.uint64)
    for back in range(1, order):
        before = np.concatenate([tokens[:back], tokens[:-back]]).astype(np.uint64)
        for early in range(back):
            at = starts + early
            before[at[at < len(tokens)]] = tokens[firsts[0]]
        before <<= np.uint64(21 * back)
        grams |= before
    is_predicted = np.ones(len(tokens), np.bool_)
    is_predicted[starts] = False
    return grams[is_predicted]


def _mask(n: int) -> np.uint64:
    """Return the mask of the last `n` tokens of an n-gram."""
    return np.uint64((1 << 21 * n) - 1)


def _counted(grams: NDArray[np.uint64]) -> Counts:
    """Return the distinct n-grams and their counts; sorts `grams` in place."""
    grams.sort()
    firsts = np.flatnonzero(np.append(True, grams[1:] != grams[:-1]))
    return grams[firsts], np.diff(firsts, append=len(grams))


def _interpolated(
    level: Counts, queries: NDArray[np.uint64], lower: NDArray[np.float64]
) -> NDArray[np.float64]:
    keys, counts = level
    discounts = np.array([0.0, *discounts_of(counts)])
    discount = discounts[np.minimum(counts, 3)]
    contexts = keys >> np.uint64(21)
    firsts = np.flatnonzero(np.append(True, contexts[1:] != contexts[:-1]))
    totals = np.add.reduceat(counts, firsts)
    saved = np.add.reduceat(discount, firsts)
    own = _find(contexts[firsts], queries >> np.uint64(21))
    at = _find(keys, queries)
    is_known, has_context = at >= 0, own >= 0
    kept = np.where(is_known, (counts - discount)[at], 0.0)
    return np.where(has_context, (kept + saved[own] * lower) / totals[own], lower)


def _find(keys: NDArray[np.uint64], wanted: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the index of each wanted key; -1 if it is missing."""
    at = np.searchsorted(keys, wanted)
    at[at == len(keys)] = 0
    return np.where(keys[at] == wanted, at, -1)


def discounts_of(counts: NDArray[np.int64]) -> tuple[float, float, float]:
    """Return D₁, D₂ and D₃₊, estimated from how many n-grams occur once, twice, three and four times.

    Y = n₁ / (n₁ + 2 n₂); Dᵢ = i − (i + 1) Y nᵢ₊₁ / nᵢ. Where a count of counts is 0, which happens in small texts, or a
    discount would leave 0 … i, it is 0.75 at most: D₁ = 0.5, D₂ = 0.75, D₃₊ = 0.75.
    """
    n1, n2, n3, n4 = (int((counts == n).sum()) for n in (1, 2, 3, 4))
    if min(n1, n2, n3, n4) == 0:
        return 0.5, 0.75, 0.75
    y = n1 / (n1 + 2 * n2)
    estimates = (1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3)
    fallbacks = (0.5, 0.75, 0.75)
    first, second, third = (
        estimate if 0 < estimate < n and math.isfinite(estimate) else fallback
        for n, (estimate, fallback) in enumerate(zip(estimates, fallbacks, strict=True), 1)
    )
    return first, second, third
