"""Turn a stream of token ids into text: whole characters, up to a stop string."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bytemill.tokenizer.tokenizer import Tokenizer


class StopStrings:
    """Filter that passes text up to the first stop string, and drops that string and all text after it.

    Text at the end that may be the start of a stop string is held back until more text decides.

    >>> stop = StopStrings(["END"])
    >>> [stop.feed(text) for text in ("one E", "N", "x E", "ND more")], stop.stopped
    (['one ', '', 'ENx ', ''], True)
    """

    def __init__(self, strings: Sequence[str]) -> None:
        self._strings = [string for string in strings if string]
        self._held: str = ""
        self.stopped = False
        """Whether a stop string was found."""

    def feed(self, text: str) -> str:
        """Add text, and return the text that is certain to pass."""
        if self.stopped:
            return ""
        text = self._held + text
        starts = [(text.find(string), string) for string in self._strings]
        # The stop string that ends first, so that the result does not depend on how the text is split.
        if found := [(start + len(string), start) for start, string in starts if start >= 0]:
            self.stopped, self._held = True, ""
            return text[: min(found)[1]]
        n_held = max((_overlap(text, string) for string in self._strings), default=0)
        passed, self._held = text[: len(text) - n_held], text[len(text) - n_held :]
        return passed

    def finish(self) -> str:
        """Return the remaining text at the end of the stream."""
        held, self._held = self._held, ""
        return held


class TextStream:
    """Decoder of one sample: takes ids, returns whole characters up to a stop string."""

    def __init__(
        self, tokenizer: Tokenizer, stop_strings: Sequence[str] = (), *, show_special: bool = False
    ) -> None:
        self._decoder = tokenizer.stream_decoder()
        self._stop = StopStrings(stop_strings)
        self._hidden = frozenset[int](() if show_special else tokenizer.special_tokens.values())

    @property
    def stopped(self) -> bool:
        """Whether a stop string was found."""
        return self._stop.stopped

    def feed(self, token_id: int) -> str:
        """Add an id, and return the text that it completes; special tokens have no text."""
        if token_id in self._hidden:
            return self._stop.feed(self._decoder.finish())
        return self._stop.feed(self._decoder.feed(token_id))

    def finish(self) -> str:
        """Return the remaining text at the end of the sample."""
        return self._stop.feed(self._decoder.finish()) + self._stop.finish()


def _overlap(text: str, string: str) -> int:
    """Return the length of the longest suffix of `text` that is a proper prefix of `string`."""
    return next((n for n in range(min(len(string) - 1, len(text)), 0, -1) if text.endswith(string[:n])), 0)
