"""Lists of merges that are not in the order of training, as files have them that were made from ranks.

Such a file (Llama 3's `tokenizer.json` is one) lists every way to split a token into two, 280,000 merges for 128,000
tokens, some of them before their parts are made. A token comes of one pair wherever it comes about, so the others are
never done; see `needed_merges`.
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
    """A spec that encodes as `spec` does, with at most one merge for each token, each behind those of its parts.

    None where there is none, or `spec` contradicts itself.

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
        places = needed_merges(spec.merges)
    except TokenizerError:
        return None
    merges = [spec.merges[place] for place in places]
    counts = spec.merge_counts and [spec.merge_counts[place] for place in places]
    known = {bytes([byte]) for byte in range(256)}
    for left, right in merges:
        if left not in known or right not in known:
            break
        known.add(left + right)
    else:
        return replace(spec, merges=merges, merge_counts=counts)
    # A token that comes of later ones is no list that the core takes, but ranks may be.
    ranks = {token: token_id for token_id, token in sorted(spec.vocab.items())}
    if spec.ignore_merges and merges_of_ranks(ranks) == merges:
        return replace(spec, vocab={}, merges=None, ranks=ranks, merge_counts=None)
    return None
