"""The bytes of a vocabulary in one array."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from bytemill.tokenizer.tokenizer import Tokenizer


class TokenTable:
    """The bytes of a tokenizer's tokens, as `TextMarks.count` takes them."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        vocab = tokenizer.vocab
        tokens = [vocab.get(i, b"") for i in range(tokenizer.n_vocab)]
        self.bytes = b"".join(tokens)
        self.offsets = np.cumsum([0, *map(len, tokens)], dtype=np.uint32)
        self.is_partial = np.array([not _is_utf8(token) for token in tokens])


def _is_utf8(token: bytes) -> bool:
    try:
        token.decode()
    except UnicodeDecodeError:
        return False
    return True
