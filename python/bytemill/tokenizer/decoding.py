"""Decoding beside the core: ids that arrive one at a time, SentencePiece's spaces, offsets of tokens."""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from bytemill.tokenizer.encoding import TokenIds

_CONTINUATION_BYTES = bytes(range(0x80, 0xC0))
"""Bytes of UTF-8 that do not start a character."""


class LeadingSpaces:
    """Removal of the spaces that a SentencePiece-style tokenizer puts before a text (`CharacterModel.decode_strip`)."""

    def __init__(self, mode: Literal["none", "one", "token", "each"]) -> None:
        self._mode = mode
        self.is_active = mode != "none"
        """Whether the next token may lose spaces."""

    def from_token(self, token: bytes) -> bytes:
        """Return the next token without the spaces to remove."""
        if not self.is_active:
            return token
        rest = token.lstrip(b" ") if self._mode == "token" else token.removeprefix(b" ")
        self.is_active = self._mode == "each" and not rest
        return rest


def without_leading_spaces(
    text: str,
    ids: TokenIds,
    mode: Literal["none", "one", "token", "each"],
    decode_bytes: Callable[[list[int]], bytes],
) -> str:
    """Return the text of `ids` without the spaces that SentencePiece puts before it."""
    if not text.startswith(" "):
        return text
    spaces = LeadingSpaces(mode)
    n_spaces = 0
    for token_id in ids:
        if not spaces.is_active:
            break
        token = decode_bytes([token_id])
        n_spaces += len(token) - len(spaces.from_token(token))
    return text[n_spaces:]


class StreamDecoder:
    """Decoder of ids that arrive one at a time. Never returns part of a character.

    A character whose bytes are spread over several tokens is returned with its last token. The concatenated results,
    including that of `finish`, equal `Tokenizer.decode` of all ids.

    >>> from bytemill import Tokenizer
    >>> decoder = Tokenizer({i: bytes([i]) for i in range(256)}, []).stream_decoder()
    >>> [decoder.feed(byte) for byte in "né!".encode()]
    ['n', '', 'é', '!']
    """

    def __init__(
        self,
        token_bytes: Callable[[int], bytes],
        strip: Literal["none", "one", "token", "each"] = "none",
    ) -> None:
        self._token_bytes = token_bytes
        self._strip: Literal["none", "one", "token", "each"] = strip
        self._spaces = LeadingSpaces(strip)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, token_id: int) -> str:
        """Return the text that `token_id` completes. Raises `UnknownTokenError` for an id that belongs to no token."""
        text = self._decoder.decode(self._spaces.from_token(self._token_bytes(token_id)))
        held_back, _ = self._decoder.getstate()
        if held_back[:1] == b"\xed" and held_back[1:2] >= b"\xa0":
            # The first two bytes of a surrogate. Python waits for the third, but no valid UTF-8 begins like this.
            text += self._rest()
        return text

    def finish(self) -> str:
        """Return U+FFFD for an incomplete character, else an empty string, and reset the decoder for a new text."""
        self._spaces = LeadingSpaces(self._strip)
        return self._rest()

    def _rest(self) -> str:
        rest = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return rest


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
