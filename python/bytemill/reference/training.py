"""Step 2: learn the merges.

Every pre-token starts as its single bytes. The most frequent pair of neighbours in the corpus is merged into one token
wherever it occurs, and so on until the vocabulary is full. `train_naive` does exactly this, `train_unique` processes
each distinct pre-token once, and `train` updates only the pair counts that a merge changes.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from bytemill.errors import TokenizerError
from bytemill.reference.pretokens import check_special_tokens, corpus_pretokens

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

Pair: TypeAlias = tuple[bytes, bytes]
Ties: TypeAlias = Literal["bytes", "huggingface"]


def train_naive(
    text: str | Iterable[str],
    vocab_size: int,
    special_tokens: Sequence[str] = (),
    pattern: str | None = "gpt2",
    *,
    ties: Ties = "bytes",
    min_frequency: int = 1,
    forbids: Callable[[bytes], bool] | None = None,
    first: Sequence[Pair] = (),
) -> tuple[dict[int, bytes], list[Pair]]:
    """Train by definition: count all pairs, merge the most frequent one, repeat.

    Args:
        text: One document or several.
        vocab_size: Largest number of tokens, including the 256 bytes and the special tokens.
        special_tokens: Special tokens, which are removed from the text.
        pattern: A pattern as in `pretokenize`.
        ties: Order of equally frequent pairs: see `TieBreak`.
        min_frequency: Smallest count of a pair that is merged.
        forbids: Returns whether no merge may make a token.
        first: Merges that come first. No later one makes a token of theirs.

    Returns:
        The vocabulary (256 bytes, then one token per merge, then the special tokens) and the merges.

    Raises:
        TokenizerError: `vocab_size` has no room for the bytes and the special tokens.
    """
    n_merges = n_merges_for(vocab_size, special_tokens)
    tie_break = TieBreak(ties)
    merges: list[Pair] = []
    corpus = [single_bytes(pretoken) for pretoken in corpus_pretokens(text, special_tokens, pattern)]
    made = {left + right for left, right in first}
    for pair in first:
        corpus = [merge_pair(tokens, pair) for tokens in corpus]
        merges.append(pair)
        tie_break.learn(pair)
    while len(merges) < n_merges:
        pair_counts = Counter(pair for tokens in corpus for pair in pairwise(tokens))
        if forbids is not None or made:
            pair_counts = Counter(
                {
                    (left, right): count
                    for (left, right), count in pair_counts.items()
                    if left + right not in made and not (forbids is not None and forbids(left + right))
                }
            )
        best = most_frequent_pair(pair_counts, tie_break, min_frequency)
        if best is None:
            break
        corpus = [merge_pair(tokens, best) for tokens in corpus]
        merges.append(best)
        tie_break.learn(best)
    return build_vocab(merges, special_tokens), merges


def train_unique(
    text: str | Iterable[str],
    vocab_size: int,
    special_tokens: Sequence[str] = (),
    pattern: str | None = "gpt2",
    *,
    ties: Ties = "bytes",
    min_frequency: int = 1,
) -> tuple[dict[int, bytes], list[Pair]]:
    """Train with each distinct pre-token processed once. Arguments and result are those of `train_naive`.

    Equal pre-tokens have equal tokens at every step, and most pre-tokens of a text repeat. So it is enough to know how
    often each one occurs, and to weight its pairs by that count.
    """
    n_merges = n_merges_for(vocab_size, special_tokens)
    tie_break = TieBreak(ties)
    merges: list[Pair] = []
    pretoken_counts = Counter(corpus_pretokens(text, special_tokens, pattern))
    corpus = [(single_bytes(pretoken), count) for pretoken, count in pretoken_counts.items()]
    while len(merges) < n_merges:
        pair_counts: Counter[Pair] = Counter()
        for tokens, count in corpus:
            for pair in pairwise(tokens):
                pair_counts[pair] += count
        best = most_frequent_pair(pair_counts, tie_break, min_frequency)
        if best is None:
            break
        corpus = [(merge_pair(tokens, best), count) for tokens, count in corpus]
        merges.append(best)
        tie_break.learn(best)
    return build_vocab(merges, special_tokens), merges


def train(
    text: str | Iterable[str],
    vocab_size: int,
    special_tokens: Sequence[str] = (),
    pattern: str | None = "gpt2",
    *,
    ties: Ties = "bytes",
    min_frequency: int = 1,
) -> tuple[dict[int, bytes], list[Pair]]:
    """Train with incremental counts: see `learn_merges`. Arguments and result are those of `train_naive`."""
    n_merges = n_merges_for(vocab_size, special_tokens)
    pretoken_counts = Counter(corpus_pretokens(text, special_tokens, pattern))
    merges, _ = learn_merges(pretoken_counts, n_merges, ties, min_frequency)
    return build_vocab(merges, special_tokens), merges


def learn_merges(
    pretoken_counts: Mapping[bytes, int],
    n_merges: int,
    ties: Ties = "bytes",
    min_frequency: int = 1,
    *,
    base: Sequence[Pair] = (),
) -> tuple[list[Pair], list[int]]:
    """Learn merges from pre-token counts.

    A merge changes only the pre-tokens that contain its pair, usually few. So pair counts are kept between merges,
    `containing` maps each pair to its pre-tokens, and a heap has the best pair on top.

    Args:
        pretoken_counts: Count of each distinct pre-token.
        n_merges: Largest number of merges.
        ties: Order of equally frequent pairs: see `TieBreak`.
        min_frequency: Smallest count of a pair that is merged.
        base: Merges to continue: all pre-tokens are merged by them first.

    Returns:
        The merges in order, and the count of each pair when it was merged.

    >>> learn_merges({b"low": 5, b"lower": 2}, 2)
    ([(b'o', b'w'), (b'l', b'ow')], [7, 7])
    >>> learn_merges({b"low": 5, b"lower": 2}, 1, base=[(b"o", b"w")])
    ([(b'l', b'ow')], [7])
    """
    pretokens = [single_bytes(pretoken) for pretoken in pretoken_counts]
    for pair in base:
        pretokens = [merge_pair(tokens, pair) for tokens in pretokens]
    counts = list(pretoken_counts.values())
    pair_counts: Counter[Pair] = Counter()
    containing: defaultdict[Pair, set[int]] = defaultdict(set)
    for index, tokens in enumerate(pretokens):
        for pair in pairwise(tokens):
            pair_counts[pair] += counts[index]
            containing[pair].add(index)

    tie_break = TieBreak(ties)
    for pair in base:
        tie_break.learn(pair)
    heap = [_Candidate(count, tie_break.preference(pair), pair) for pair, count in pair_counts.items()]
    heapq.heapify(heap)

    merges: list[Pair] = []
    merge_counts: list[int] = []
    while heap and len(merges) < n_merges:
        top = heapq.heappop(heap)
        if top.count != pair_counts[top.pair]:
            continue  # outdated: the pair was pushed again when its count changed
        if top.count < max(1, min_frequency):
            break
        merges.append(top.pair)
        merge_counts.append(top.count)
        tie_break.learn(top.pair)

        changed: set[Pair] = set()
        for index in containing[top.pair]:
            before = pretokens[index]
            after = merge_pair(before, top.pair)
            if len(after) == len(before):
                continue  # an earlier merge has removed the pair
            for pair in pairwise(before):
                pair_counts[pair] -= counts[index]
            for pair in pairwise(after):
                pair_counts[pair] += counts[index]
                containing[pair].add(index)
            changed.update(pairwise(before), pairwise(after))
            pretokens[index] = after
        for pair in changed:
            heapq.heappush(heap, _Candidate(pair_counts[pair], tie_break.preference(pair), pair))
    return merges, merge_counts


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A pair on the heap, with its count when it was pushed."""

    count: int
    preference: Any
    pair: Pair

    def __lt__(self, other: _Candidate) -> bool:
        """Order better candidates first, because `heapq` pops the smallest."""
        return (self.count, self.preference) > (other.count, other.preference)


def most_frequent_pair(pair_counts: Counter[Pair], tie_break: TieBreak, min_frequency: int) -> Pair | None:
    """Return the pair to merge next, or None if no pair is frequent enough."""
    best = max(pair_counts, key=lambda pair: (pair_counts[pair], tie_break.preference(pair)), default=None)
    return None if best is None or pair_counts[best] < min_frequency else best


class TieBreak:
    """Choice among equally frequent pairs: the one with the greatest `preference`.

    Args:
        ties: "bytes" takes the lexicographically greatest pair of byte strings, which depends on the pair alone.
            "huggingface" takes the pair with the smallest ids of Hugging Face's `BpeTrainer`, which numbers the bytes
            by code point in GPT-2's byte-to-character table, then the merges in order. It puts special tokens first,
            which shifts all ids equally.

    Raises:
        TokenizerError: `ties` has another value.
    """

    def __init__(self, ties: Ties) -> None:
        if ties not in ("bytes", "huggingface"):
            raise TokenizerError(f"ties is {ties!r}", hint="use 'bytes' or 'huggingface'")
        self._ties = ties
        # GPT-2's table maps bytes that are printable in Latin-1 to themselves, the others to U+0100 and up.
        printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
        others = [byte for byte in range(256) if byte not in printable]
        self._id_of = {bytes([byte]): token_id for token_id, byte in enumerate(printable + others)}

    def preference(self, pair: Pair) -> tuple[Any, Any]:
        """Return a value that is greater for the preferred pair."""
        if self._ties == "bytes":
            return pair
        left, right = pair
        return -self._id_of[left], -self._id_of[right]

    def learn(self, merge: Pair) -> None:
        """Assign the next id to the token of a merge."""
        self._id_of.setdefault(b"".join(merge), len(self._id_of))


def single_bytes(pretoken: bytes) -> list[bytes]:
    """Split a pre-token into its single bytes."""
    return [bytes([byte]) for byte in pretoken]


def merge_pair(tokens: list[bytes], pair: Pair) -> list[bytes]:
    """Merge a pair wherever it occurs, from left to right and without overlap.

    >>> merge_pair([b"a", b"a", b"a", b"b"], (b"a", b"a"))
    [b'aa', b'a', b'b']
    """
    merged: list[bytes] = []
    index = 0
    while index < len(tokens):
        if tuple(tokens[index : index + 2]) == pair:
            merged.append(pair[0] + pair[1])
            index += 2
        else:
            merged.append(tokens[index])
            index += 1
    return merged


def n_merges_for(vocab_size: int, special_tokens: Collection[str]) -> int:
    """Return the number of merges that fit into the vocabulary. Raises TokenizerError if it is negative."""
    check_special_tokens(special_tokens)
    n_fixed = 256 + len(special_tokens)
    if vocab_size < n_fixed:
        raise TokenizerError(
            f"vocab_size {vocab_size} has no room for 256 bytes and {len(special_tokens)} special tokens",
            hint=f"use at least {n_fixed}",
        )
    return vocab_size - n_fixed


def build_vocab(merges: Sequence[Pair], special_tokens: Sequence[str]) -> dict[int, bytes]:
    """Return the tokens by id: the 256 bytes, the merges in order, the special tokens."""
    tokens = [bytes([byte]) for byte in range(256)]
    tokens += [left + right for left, right in merges]
    tokens += [token.encode() for token in special_tokens]
    return dict(enumerate(tokens))
