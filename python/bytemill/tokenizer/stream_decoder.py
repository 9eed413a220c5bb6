"""Text from ids that come one by one, never half a character of it."""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class StreamDecoder:
    """Takes ids as they come and gives the text that is certain by then.

    A character whose bytes come in several tokens is held back until its last one. All pieces together, with that of
    `finish`, are what `Tokenizer.decode` gives for all ids at once.

    >>> from bytemill import Tokenizer
    >>> decoder = Tokenizer({i: bytes([i]) for i in range(256)}, []).stream_decoder()
    >>> [decoder.feed(byte) for byte in "né!".encode()]
    ['n', '', 'é', '!']
    """

    def __init__(self, token_bytes: Callable[[int], bytes]) -> None:
        self._token_bytes = token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, token_id: int) -> str:
        """The text that this id makes certain, often all of its own. Raises KeyError for an id that no token has."""
        text = self._decoder.decode(self._token_bytes(token_id))
        held_back, _ = self._decoder.getstate()
        if held_back[:1] == b"\xed" and held_back[1:2] >= b"\xa0":
            # The beginning of a surrogate, of which Python waits for the third byte: in UTF-8 it begins no character.
            text += self.finish()
        return text

    def finish(self) -> str:
        """What was held back, as U+FFFD where it is no whole character. Afterwards a new text may begin."""
        rest = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return rest
