"""Conversion of ranks to merges.

A rank file (tiktoken's) merges the adjacent parts whose concatenation has the lowest rank, wherever it is split; a
merge list names the two parts. Both do the same:

Consider the moment at which ranks merge two adjacent parts l and r into t = l + r. No merge has crossed either end of
this stretch of text, so the merges inside it depend on nothing outside: each was the lowest of the whole text, hence of
the stretch. The same merges happen in the same order if t stands alone. So t is always produced from the two parts that
t alone consists of before its last merge, and the list of these pairs in rank order is an equivalent merge list. A
token that does not produce itself is never produced; only the lookup of whole pre-tokens yields it.

The same holds for lists with several pairs per token, as in files converted from ranks (Llama 3's has 280,147 merges
for 128,000 tokens): only the pair that t alone consists of is ever merged.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_NEVER = 2**32
"""Above every rank."""


def last_two_parts(token: bytes, ranks: Mapping[bytes, int]) -> tuple[bytes, bytes] | None:
    """Return the two parts whose merge produces `token` when it is merged alone by ranks, if it is produced at all.

    >>> ranks = {b"a": 0, b"b": 1, b"c": 2, b"bc": 3, b"abc": 4}
    >>> last_two_parts(b"abc", ranks)
    (b'a', b'bc')
    """
    parts = [token[i : i + 1] for i in range(len(token))]
    pair_ranks = [ranks.get(token[i : i + 2], _NEVER) for i in range(len(token) - 1)]
    while len(parts) > 2:
        rank = min(pair_ranks)
        if rank == _NEVER:
            return None
        i = pair_ranks.index(rank)
        merged = parts[i] + parts[i + 1]
        parts[i : i + 2] = [merged]
        del pair_ranks[i]
        if i > 0:
            pair_ranks[i - 1] = ranks.get(parts[i - 1] + merged, _NEVER)
        if i < len(pair_ranks):
            pair_ranks[i] = ranks.get(merged + parts[i + 1], _NEVER)
    return (parts[0], parts[1]) if len(parts) == 2 else None


def merges_of_ranks(ranks: Mapping[bytes, int]) -> list[tuple[bytes, bytes]]:
    """Return the merge list that is equivalent to `ranks`. Tokens that merging never produces have no merge.

    >>> merges_of_ranks({b"a": 0, b"b": 1, b"ab": 2, b"abab": 3})
    [(b'a', b'b'), (b'ab', b'ab')]
    """
    merges: list[tuple[bytes, bytes]] = []
    for token in sorted(ranks, key=ranks.__getitem__):
        if len(token) == 2:
            merges.append((token[:1], token[1:]))
        elif len(token) > 2:
            parts = last_two_parts(token, ranks)
            if parts is not None:
                merges.append(parts)
    return merges


def unreachable_token(merges: Sequence[tuple[bytes, bytes]], tokens: Sequence[bytes]) -> bytes | None:
    """Return the first of `tokens` that the ordered `merges` do not produce from its own bytes, if any."""
    order = {merge: index for index, merge in enumerate(merges)}
    never = len(merges)
    for token in tokens:
        parts = [token[i : i + 1] for i in range(len(token))]
        while len(parts) > 1:
            candidates = [order.get(pair, never) for pair in pairwise(parts)]
            index = min(candidates)
            if index == never:
                return token
            i = candidates.index(index)
            parts[i : i + 2] = [parts[i] + parts[i + 1]]
    return None
