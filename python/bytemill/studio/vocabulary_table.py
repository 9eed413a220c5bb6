"""A vocabulary as columns, for tables of hundreds of thousands of tokens in the browser."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

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
    data: list[bytes] = []
    vocab = tokenizer.vocab
    for token_id, token in vocab.items():  # in the order of the ids
        data.append(token)
        lengths[token_id] = len(token)
        merge = tokenizer.core.merge_of(token_id)
        if merge is not None:
            ranks[token_id], left[token_id], right[token_id] = merge
    return VocabularyTable(b"".join(data), lengths, left, right, ranks, tokenizer.merge_counts)
