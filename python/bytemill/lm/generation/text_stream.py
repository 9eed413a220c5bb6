"""Text from a model, as it comes: whole characters, up to a stop."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bytemill.tokenizer.tokenizer import Tokenizer


class StopStrings:
    """Lets text through up to the first of several strings, which is taken out with all after it.

    The end of what has come may be the beginning of such a string: it is held back until that is decided.

    >>> stop = StopStrings(["END"])
    >>> [stop.feed(piece) for piece in ("one E", "N", "x E", "ND more")], stop.stopped
    (['one ', '', 'ENx ', ''], True)
    """

    def __init__(self, strings: Sequence[str]) -> None:
        self._strings = [string for string in strings if string]
        self._held: str = ""
        self.stopped = False
        """Whether a stop has been met."""

    def feed(self, text: str) -> str:
        """The text that may be shown."""
        if self.stopped:
            return ""
        text = self._held + text
        places = [(text.find(string), string) for string in self._strings]
        # The stop that ends first, so that it does not matter in which pieces the text comes.
        if found := [(place + len(string), place) for place, string in places if place >= 0]:
            self.stopped, self._held = True, ""
            return text[: min(found)[1]]
        n_held = max((_overlap(text, string) for string in self._strings), default=0)
        shown, self._held = text[: len(text) - n_held], text[len(text) - n_held :]
        return shown

    def finish(self) -> str:
        """What was held back and turned out to be no stop."""
        rest, self._held = self._held, ""
        return rest


class TextStream:
    """The text of one sample: ids go in, what may be shown comes out."""

    def __init__(
        self, tokenizer: Tokenizer, stop_strings: Sequence[str] = (), *, show_special: bool = False
    ) -> None:
        self._decoder = tokenizer.stream_decoder()
        self._stop = StopStrings(stop_strings)
        self._hidden = frozenset[int](() if show_special else tokenizer.special_tokens.values())

    @property
    def stopped(self) -> bool:
        """Whether a stop string has been met: what follows is not shown."""
        return self._stop.stopped

    def feed(self, token_id: int) -> str:
        """The text that this id lets be shown; a special token has none."""
        if token_id in self._hidden:
            return self._stop.feed(self._decoder.finish())
        return self._stop.feed(self._decoder.feed(token_id))

    def finish(self) -> str:
        """What is left at the end."""
        return self._stop.feed(self._decoder.finish()) + self._stop.finish()


def _overlap(text: str, string: str) -> int:
    """The length of the longest end of `text` that is a beginning of `string`, but not all of it."""
    return next((n for n in range(min(len(string) - 1, len(text)), 0, -1) if text.endswith(string[:n])), 0)
