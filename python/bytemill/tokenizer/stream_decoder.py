"""Incremental decoding of ids that arrive one at a time."""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class StreamDecoder:
    """Decoder of ids that arrive one at a time. Never returns part of a character.

    A character whose bytes are spread over several tokens is returned with its last token. The concatenated results,
    including that of `finish`, equal `Tokenizer.decode` of all ids.

    >>> from bytemill import Tokenizer
    >>> decoder = Tokenizer({i: bytes([i]) for i in range(256)}, []).stream_decoder()
    >>> [decoder.feed(byte) for byte in "né!".encode()]
    ['n', '', 'é', '!']
    """

    def __init__(self, token_bytes: Callable[[int], bytes]) -> None:
        self._token_bytes = token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, token_id: int) -> str:
        """Return the text that `token_id` completes. Raises `UnknownTokenError` for an id that belongs to no token."""
        text = self._decoder.decode(self._token_bytes(token_id))
        held_back, _ = self._decoder.getstate()
        if held_back[:1] == b"\xed" and held_back[1:2] >= b"\xa0":
            # The first two bytes of a surrogate. Python waits for the third, but no valid UTF-8 begins like this.
            text += self.finish()
        return text

    def finish(self) -> str:
        """Return U+FFFD for an incomplete character, else an empty string, and reset the decoder for a new text."""
        rest = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return rest
