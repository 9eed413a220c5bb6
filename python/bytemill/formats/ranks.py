"""From ranks to merges and back: when a rank file and a list of merges are the same tokenizer.

A rank file (tiktoken's) merges the neighbouring parts whose concatenation has the lowest rank, wherever it
was cut; a list of merges names the two parts. Both walk the same way through a text. Take a moment at which
two neighbours l, r with l + r = t are merged by ranks. Nothing has crossed the two ends of this stretch of
text so far, so what happened inside it depends on nothing outside: each merge inside was the lowest of the
whole text, hence of the stretch. The same merges in the same order happen when t stands alone. So t always
arises from the two parts that t alone falls into before its last merge, and the list of these pairs in the
order of the ranks is an equivalent list of merges. A token that does not arise from itself never arises; only
the look-up of whole pre-tokens gives it.

The same holds where a list names several pairs for one token, as files do that were converted from ranks (Llama
3's has 280,147 merges for 128,000 tokens): of those only the pair that t alone falls into ever happens.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_NEVER = 2**32
"""Above every rank."""


def last_two_parts(token: bytes, ranks: Mapping[bytes, int]) -> tuple[bytes, bytes] | None:
    """The two parts whose merge makes `token` when it is merged alone by ranks; None where it never becomes
    one.

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
    """The list of merges that encodes as `ranks` do. Tokens that never arise by merging have none.

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
    """The first of `tokens` that does not come out whole when merged alone by the ordered `merges`."""
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
