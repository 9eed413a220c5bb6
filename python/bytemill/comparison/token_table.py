"""The bytes of a vocabulary in one array."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bytemill._core import TokenBytes

if TYPE_CHECKING:
    from bytemill.tokenizer.tokenizer import Tokenizer


class TokenTable:
    """The tokens of a tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        vocab = tokenizer.vocab
        tokens = [vocab.get(i, b"") for i in range(tokenizer.n_vocab)]
        special = set(tokenizer.special_tokens.values())
        self.numbers = {token: number for number, token in vocab.items() if number not in special}
        """Token -> id, without special tokens."""
        self.lengths = np.array([len(token) for token in tokens], np.int64)
        """By id, in bytes."""
        adds_space = tokenizer.characters is not None and tokenizer.characters.decode_strip != "none"
        offsets = np.append(0, self.lengths.cumsum()).astype(np.uint32)
        self.bytes = TokenBytes(b"".join(tokens), offsets, adds_space)
        self.is_partial = np.array([not _is_utf8(token) for token in tokens])
        """By id: not valid UTF-8."""


def _is_utf8(token: bytes) -> bool:
    try:
        token.decode()
    except UnicodeDecodeError:
        return False
    return True
