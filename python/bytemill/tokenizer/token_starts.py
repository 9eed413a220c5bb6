"""Where tokens start in their text, by characters."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_INSIDE = bytes(range(0x80, 0xC0))
"""The bytes of UTF-8 with which no character starts."""


def text_and_starts(tokens: Iterable[bytes]) -> tuple[str, list[int]]:
    """The text of `tokens` and for each the index of the first character that it has a byte of.

    Raises UnicodeDecodeError where they are not UTF-8 together.

    >>> text_and_starts([b"a", b"\\xc3", b"\\xa9", b"\\xc3\\xa9b"])
    ('aééb', [0, 1, 1, 2])
    """
    tokens = list(tokens)
    starts: list[int] = []
    n_characters = 0
    for token in tokens:
        inside = token[0] in _INSIDE
        starts.append(n_characters - 1 if inside and n_characters else n_characters)
        n_characters += len(token.translate(None, _INSIDE))
    return b"".join(tokens).decode(), starts
