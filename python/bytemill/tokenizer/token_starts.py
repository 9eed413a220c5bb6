"""Character offsets at which tokens start."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_CONTINUATION_BYTES = bytes(range(0x80, 0xC0))
"""Bytes of UTF-8 that do not start a character."""


def text_and_starts(tokens: Iterable[bytes]) -> tuple[str, list[int]]:
    """Return the text of `tokens` and, for each token, the offset of the first character that it has a byte of.

    Raises:
        UnicodeDecodeError: The concatenated tokens are not valid UTF-8.

    >>> text_and_starts([b"a", b"\\xc3", b"\\xa9", b"\\xc3\\xa9b"])
    ('aééb', [0, 1, 1, 2])
    """
    tokens = list(tokens)
    starts: list[int] = []
    n_characters = 0
    for token in tokens:
        continues = token[0] in _CONTINUATION_BYTES
        starts.append(n_characters - 1 if continues and n_characters else n_characters)
        n_characters += len(token.translate(None, _CONTINUATION_BYTES))
    return b"".join(tokens).decode(), starts
