"""Incremental decoding of ids that arrive one at a time."""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable


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
