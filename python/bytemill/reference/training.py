"""Chapter 2: learning the merges.

Every pre-token starts as its single bytes. The most frequent pair of neighbours in the corpus is merged into
one token wherever it stands, and again, until the vocabulary is full. `train_naive` does just that,
`train_unique` does the same with each distinct pre-token once, `train` looks only at what a merge has
changed.
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
    from collections.abc import Collection, Iterable, Mapping, Sequence

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
) -> tuple[dict[int, bytes], list[Pair]]:
    """Vocabulary and merges by the book: count all pairs, merge the most frequent, begin again.

    `text` is one document or several. Special tokens are cut out of it first and are part of no pre-token.
    The vocabulary has the 256 bytes, then one token for each merge, then the special tokens. It has at most
    `vocab_size` tokens, and fewer where no pair is left that occurs `min_frequency` times. Of equally
    frequent pairs `ties` picks one: see `TieBreak`.

    Raises TokenizerError where `vocab_size` has no room for the bytes and the special tokens.
    """
    n_merges = n_merges_for(vocab_size, special_tokens)
    tie_break = TieBreak(ties)
    merges: list[Pair] = []
    corpus = [single_bytes(pretoken) for pretoken in corpus_pretokens(text, special_tokens, pattern)]
    while len(merges) < n_merges:
        pair_counts = Counter(pair for tokens in corpus for pair in pairwise(tokens))
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
    """The result of `train_naive`, with each distinct pre-token handled once.

    Equal pre-tokens hold equal tokens at every step, and a text repeats most of its words. So it is enough to
    know how often a pre-token occurs, and to count its pairs that often.
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
    """The result of `train_naive`, counting anew only what a merge has changed: see `learn_merges`."""
    n_merges = n_merges_for(vocab_size, special_tokens)
    pretoken_counts = Counter(corpus_pretokens(text, special_tokens, pattern))
    merges, _ = learn_merges(pretoken_counts, n_merges, ties, min_frequency)
    return build_vocab(merges, special_tokens), merges


def learn_merges(
    pretoken_counts: Mapping[bytes, int], n_merges: int, ties: Ties = "bytes", min_frequency: int = 1
) -> tuple[list[Pair], list[int]]:
    """Up to `n_merges` merges in order, and the count of each pair when it was merged.

    A merge changes only the pre-tokens that hold its pair, most often a handful. So the counts of pairs are
    kept from one merge to the next, `holders` tells which pre-tokens hold a pair, and a heap has the best
    pair on top.

    >>> learn_merges({b"low": 5, b"lower": 2}, 2)
    ([(b'o', b'w'), (b'l', b'ow')], [7, 7])
    """
    words = [single_bytes(pretoken) for pretoken in pretoken_counts]
    word_counts = list(pretoken_counts.values())
    pair_counts: Counter[Pair] = Counter()
    holders: defaultdict[Pair, set[int]] = defaultdict(set)
    for word, tokens in enumerate(words):
        for pair in pairwise(tokens):
            pair_counts[pair] += word_counts[word]
            holders[pair].add(word)

    tie_break = TieBreak(ties)
    heap = [_Candidate(count, tie_break.preference(pair), pair) for pair, count in pair_counts.items()]
    heapq.heapify(heap)

    merges: list[Pair] = []
    merge_counts: list[int] = []
    while heap and len(merges) < n_merges:
        top = heapq.heappop(heap)
        if top.count != pair_counts[top.pair]:
            continue  # the count has changed since, and was put on the heap anew when it did
        if top.count < max(1, min_frequency):
            break
        merges.append(top.pair)
        merge_counts.append(top.count)
        tie_break.learn(top.pair)

        changed: set[Pair] = set()
        for word in holders[top.pair]:
            before = words[word]
            after = merge_pair(before, top.pair)
            if len(after) == len(before):
                continue  # an earlier merge has taken the pair from it
            for pair in pairwise(before):
                pair_counts[pair] -= word_counts[word]
            for pair in pairwise(after):
                pair_counts[pair] += word_counts[word]
                holders[pair].add(word)
            changed.update(pairwise(before), pairwise(after))
            words[word] = after
        for pair in changed:
            heapq.heappush(heap, _Candidate(pair_counts[pair], tie_break.preference(pair), pair))
    return merges, merge_counts


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A pair on the heap, with its count at the time it was put there."""

    count: int
    preference: Any
    pair: Pair

    def __lt__(self, other: _Candidate) -> bool:
        """`heapq` hands out the smallest first, so the better candidate counts as smaller."""
        return (self.count, self.preference) > (other.count, other.preference)


def most_frequent_pair(pair_counts: Counter[Pair], tie_break: TieBreak, min_frequency: int) -> Pair | None:
    """The pair to merge next, None where no pair is frequent enough."""
    best = max(pair_counts, key=lambda pair: (pair_counts[pair], tie_break.preference(pair)), default=None)
    return None if best is None or pair_counts[best] < min_frequency else best


class TieBreak:
    """Which of several equally frequent pairs is merged: that of the greatest `preference`.

    "bytes": the lexicographically greatest pair of byte strings, which depends on nothing but the pair.

    "huggingface": the pair of the smallest ids, with the ids of Hugging Face's `BpeTrainer`. It writes each
    byte as a character by GPT-2's table, numbers these by code point, and then numbers the tokens of the
    merges in order. Special tokens come first there, which moves all ids alike and decides nothing.
    """

    def __init__(self, ties: Ties) -> None:
        if ties not in ("bytes", "huggingface"):
            raise TokenizerError(f"ties is {ties!r}", hint="use 'bytes' or 'huggingface'")
        self._ties = ties
        # GPT-2's table: bytes that are printable in Latin-1 stand for themselves, the rest from U+0100 on.
        printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
        others = [byte for byte in range(256) if byte not in printable]
        self._id_of = {bytes([byte]): token_id for token_id, byte in enumerate(printable + others)}

    def preference(self, pair: Pair) -> tuple[Any, Any]:
        """A value that is greater for the pair to take."""
        if self._ties == "bytes":
            return pair
        left, right = pair
        return -self._id_of[left], -self._id_of[right]

    def learn(self, merge: Pair) -> None:
        """Give the token of a merge the next id."""
        self._id_of.setdefault(b"".join(merge), len(self._id_of))


def single_bytes(pretoken: bytes) -> list[bytes]:
    """The tokens that every pre-token starts as: its bytes, one by one."""
    return [bytes([byte]) for byte in pretoken]


def merge_pair(tokens: list[bytes], pair: Pair) -> list[bytes]:
    """The tokens with the pair merged wherever it stands, from left to right and without overlap.

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
    """The number of merges that fit into the vocabulary. Raises TokenizerError where it would be negative."""
    check_special_tokens(special_tokens)
    n_fixed = 256 + len(special_tokens)
    if vocab_size < n_fixed:
        raise TokenizerError(
            f"vocab_size {vocab_size} has no room for 256 bytes and {len(special_tokens)} special tokens",
            hint=f"ask for at least {n_fixed}",
        )
    return vocab_size - n_fixed


def build_vocab(merges: Sequence[Pair], special_tokens: Sequence[str]) -> dict[int, bytes]:
    """Token by id: the 256 bytes, the merges in order, the special tokens."""
    tokens = [bytes([byte]) for byte in range(256)]
    tokens += [left + right for left, right in merges]
    tokens += [token.encode() for token in special_tokens]
    return dict(enumerate(tokens))
