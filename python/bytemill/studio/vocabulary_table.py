"""A vocabulary as columns, for tables of hundreds of thousands of tokens in the browser."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bytemill.errors import UnknownTokenError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bytemill.tokenizer.tokenizer import Tokenizer

NO_TOKEN = 0xFFFFFFFF


@dataclass(frozen=True)
class VocabularyTable:
    """Every id from 0 to n_vocab − 1; ids without a token have no bytes."""

    data: bytes
    """The bytes of all tokens, one after the other."""
    lengths: NDArray[np.uint32]
    left: NDArray[np.uint32]
    """Ids of the left parts; `NO_TOKEN` for tokens that no merge makes."""
    right: NDArray[np.uint32]
    ranks: NDArray[np.uint32]
    """Rank of the merge that makes a token; `NO_TOKEN` if none does."""
    counts: list[int] | None
    """Count in training of the pair of each rank, if the file has them."""


def vocabulary_table(tokenizer: Tokenizer) -> VocabularyTable:
    """Return the table of a tokenizer."""
    n = tokenizer.n_vocab
    lengths = np.zeros(n, np.uint32)
    left, right, ranks = (np.full(n, NO_TOKEN, np.uint32) for _ in range(3))
    data = bytearray()  # and not `tokenizer.vocab`, which has an object for each token
    for token_id in range(n):
        try:
            token = tokenizer.core.token_bytes(token_id)
        except UnknownTokenError:
            continue
        data += token
        lengths[token_id] = len(token)
        merge = tokenizer.core.merge_of(token_id)
        if merge is not None:
            ranks[token_id], left[token_id], right[token_id] = merge
    return VocabularyTable(bytes(data), lengths, left, right, ranks, tokenizer.merge_counts)


def smallest_size(tokenizer: Tokenizer) -> int | None:
    """Return the smallest size that a tokenizer can be truncated to, or None if it cannot be truncated.

    Like `Tokenizer.truncate`, without making the list of all merges: every token is a byte, special, or made by a
    merge, and ids follow the order of the merges.
    """
    core = tokenizer.core
    if core.ranked or core.fallback is not None:
        return None
    last_byte = max(core.bytes_to_id(bytes([byte])) or 0 for byte in range(256))
    special = set(tokenizer.special_tokens.values())
    rank, n_special = -1, 0
    for token_id in range(tokenizer.n_vocab):
        merge = core.merge_of(token_id)
        if merge is not None:
            if merge[0] < rank or token_id < last_byte:
                return None
            rank = merge[0]
        elif token_id in special:
            n_special += 1
        else:
            try:
                if len(core.token_bytes(token_id)) > 1:
                    return None
            except UnknownTokenError:
                continue
    return 256 + n_special
