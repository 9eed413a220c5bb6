"""GPT-2's map between bytes and printable characters, in which its vocabulary files spell their tokens.

Bytes that are visible characters of Latin-1 stand for themselves; the other 68 (controls, space, NBSP, soft
hyphen) are given the characters from U+0100 on, in the order of the bytes. So "Ġ" (U+0120) is the space.
"""

from __future__ import annotations

import codecs
from itertools import count


def _alphabet() -> str:
    stands_for_itself = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    replacements = count(0x100)
    return "".join(chr(byte if byte in stands_for_itself else next(replacements)) for byte in range(256))


ALPHABET: str = _alphabet()
"""The 256 characters: `ALPHABET[byte]` is the character that stands for `byte`."""

BYTE_TO_CHARACTER: dict[int, str] = dict(enumerate(ALPHABET))
CHARACTER_TO_BYTE: dict[str, int] = {character: byte for byte, character in enumerate(ALPHABET)}

# The codec machinery of CPython maps a whole token in C: about 0.2 µs a token against 1 µs for a loop over
# its bytes.
_ENCODING_MAP = codecs.charmap_build(ALPHABET)


def bytes_to_text(token: bytes) -> str:
    """The spelling of `token`: one character a byte.

    >>> bytes_to_text(" é".encode())
    'ĠÃ©'
    """
    return codecs.charmap_decode(token, "strict", ALPHABET)[0]  # pyright: ignore[reportArgumentType]


def text_to_bytes(text: str) -> bytes:
    """The bytes that `text` spells. Raises ValueError where a character is none of the 256.

    >>> text_to_bytes("ĠÃ©")
    b' \\xc3\\xa9'
    """
    return codecs.charmap_encode(text, "strict", _ENCODING_MAP)[0]


def first_foreign_character(text: str) -> str | None:
    """The first character of `text` that stands for no byte, None where all do."""
    return next((character for character in text if character not in CHARACTER_TO_BYTE), None)
