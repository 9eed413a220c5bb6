"""Merge lists with several merges per token, as in files converted from ranks.

Such a file (Llama 3's `tokenizer.json`) lists every split of a token into two: 280,000 merges for 128,000 tokens, some
before the merges that produce their parts. Only one pair ever produces a token; see `ranks`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bytemill._core import needed_merges
from bytemill.errors import TokenizerError
from bytemill.formats.ranks import merges_of_ranks

if TYPE_CHECKING:
    from bytemill.formats.spec import TokenizerSpec


def with_needed_merges(spec: TokenizerSpec) -> TokenizerSpec | None:
    """Return an equivalent spec with at most one merge per token, each after the merges of its parts.

    None if there is none, or if `spec` contradicts itself.

    >>> from bytemill.formats.spec import TokenizerSpec
    >>> vocab = {i: bytes([i]) for i in range(256)} | {256: b"ab", 257: b"bc", 258: b"abc"}
    >>> merges = [(b"a", b"b"), (b"b", b"c"), (b"a", b"bc"), (b"ab", b"c")]
    >>> found = with_needed_merges(TokenizerSpec(None, {}, vocab, merges))
    >>> found.merges if found else None
    [(b'a', b'b'), (b'b', b'c'), (b'ab', b'c')]
    """
    tokens = set(spec.vocab.values())
    if spec.merges is None or not all(left in tokens and right in tokens for left, right in spec.merges):
        return None
    try:
        indices = needed_merges(spec.merges)
    except TokenizerError:
        return None
    merges = [spec.merges[index] for index in indices]
    counts = spec.merge_counts and [spec.merge_counts[index] for index in indices]
    known = {bytes([byte]) for byte in range(256)}
    for left, right in merges:
        if left not in known or right not in known:
            break
        known.add(left + right)
    else:
        return replace(spec, merges=merges, merge_counts=counts)
    # The core rejects a merge before the merges of its parts, but equivalent ranks may exist.
    ranks = {token: token_id for token_id, token in sorted(spec.vocab.items())}
    if spec.ignore_merges and merges_of_ranks(ranks) == merges:
        return replace(spec, vocab={}, merges=None, ranks=ranks, merge_counts=None)
    return None
