"""Encoding and decoding beside the core: types of ids, tiktoken's options for special tokens, streams, offsets."""

from __future__ import annotations

import codecs
import re
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from bytemill.errors import SpecialTokenError, TokenizerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Set

    import numpy as np
    from numpy.typing import NDArray

    TokenArray: TypeAlias = NDArray[np.uint16] | NDArray[np.uint32]
    TokenIds: TypeAlias = Sequence[int] | NDArray[Any]


AllowedSpecial: TypeAlias = Literal["all", "none", "none_raise"] | Collection[str]
DisallowedSpecial: TypeAlias = Literal["all"] | Collection[str]

# tiktoken's options: like tiktoken, search the text for disallowed strings first. Any string can be disallowed, special
# token or not. Special tokens that are neither allowed nor disallowed are plain text.


@lru_cache(maxsize=128)
def _finder(refused: frozenset[str]) -> re.Pattern[str]:
    return re.compile("|".join(re.escape(token) for token in sorted(refused, key=len, reverse=True)))


def refuse(text: str, refused: frozenset[str]) -> None:
    """Raise SpecialTokenError for the leftmost, longest member of `refused` in `text`."""
    found = _finder(refused).search(text) if refused else None
    if found is not None:
        token = found[0]
        raise SpecialTokenError(
            f"the text contains the disallowed special token {token!r} at character {found.start()}",
            hint=f"pass allowed_special={{{token!r}}} to recognize it, or disallowed_special=() to treat it as text",
        )


def options(
    special_tokens: Collection[str], allowed: Set[str], disallowed: DisallowedSpecial
) -> tuple[AllowedSpecial, frozenset[str]]:
    """Return which special tokens the core recognizes, and which strings to refuse first."""
    if isinstance(disallowed, str) and disallowed == "all":
        refused = frozenset(special_tokens) - allowed
    else:
        refused = frozenset(disallowed)
    known = allowed & set(special_tokens)
    if len(known) == len(special_tokens):
        return "all", refused
    return known or "none", refused


def recognized_tokens(
    texts: Iterable[str],
    special_tokens: Collection[str],
    allowed: AllowedSpecial | None,
    disallowed: DisallowedSpecial,
) -> AllowedSpecial:
    """Return which special tokens to recognize in `texts`, with tiktoken's meaning of both options.

    Args:
        texts: The texts to check.
        special_tokens: All special tokens.
        allowed: The user's `allowed_special`; None recognizes none.
        disallowed: The user's `disallowed_special`.

    Raises:
        SpecialTokenError: A text contains a disallowed string. `allowed="none_raise"` disallows all special tokens.
    """
    chosen: frozenset[str] = frozenset()
    if isinstance(allowed, str):
        if allowed not in ("all", "none", "none_raise"):
            raise ValueError(
                "allowed_special must be 'all', 'none', 'none_raise' or a set of special tokens, "
                f"not {allowed!r}"
            )
        if allowed == "all":
            chosen = frozenset(special_tokens)
    elif allowed is not None:
        chosen = frozenset(allowed)
    recognized, refused = options(special_tokens, chosen, disallowed)
    if allowed == "none_raise":
        refused |= frozenset(special_tokens)
    for text in texts:
        refuse(text, refused)
    return recognized


_CONTINUATION_BYTES = bytes(range(0x80, 0xC0))
"""Bytes of UTF-8 that do not start a character."""


class LeadingSpaces:
    """Removal of the spaces that a SentencePiece-style tokenizer puts before a text (`CharacterModel.decode_strip`)."""

    def __init__(self, mode: Literal["none", "one", "token", "each", "every"]) -> None:
        self._mode = mode
        self.is_active = mode != "none"
        """Whether the next token may lose spaces."""

    def from_token(self, token: bytes) -> bytes:
        """Return the next token without the spaces to remove."""
        if not self.is_active:
            return token
        rest = token.lstrip(b" ") if self._mode == "token" else token.removeprefix(b" ")
        self.is_active = self._mode == "every" or (self._mode == "each" and not rest)
        return rest


def without_leading_spaces(
    text: str,
    ids: TokenIds,
    mode: Literal["none", "one", "token", "each", "every"],
    decode_bytes: Callable[[list[int]], bytes],
    *,
    errors: str = "replace",
    space_byte: int | None = None,
) -> str:
    """Return the text of `ids` without the spaces that decoding removes; `text` has them.

    With `"every"`, the byte of a space (`space_byte`) keeps it.
    """
    if mode == "every":
        tokens = (decode_bytes([i]) for i in ids)
        kept = (
            token if i == space_byte else token.removeprefix(b" ")
            for i, token in zip(ids, tokens, strict=True)
        )
        return b"".join(kept).decode(errors=errors)
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
        strip: Literal["none", "one", "token", "each", "every"] = "none",
        space_byte: int | None = None,
    ) -> None:
        self._token_bytes = token_bytes
        self._space_byte = space_byte if strip == "every" else None
        self._strip: Literal["none", "one", "token", "each", "every"] = strip
        self._spaces = LeadingSpaces(strip)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, token_id: int) -> str:
        """Return the text that `token_id` completes. Raises `UnknownTokenError` for an id that belongs to no token."""
        token = self._token_bytes(token_id)
        kept = token if token_id == self._space_byte else self._spaces.from_token(token)
        text = self._decoder.decode(kept)
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


class TextStreamDecoder(StreamDecoder):
    """Decoder of ids that arrive one at a time, for a library whose text is not the joined bytes of tokens.

    It decodes all ids so far and returns what is new, and holds back U+FFFD, which may be part of a character.
    """

    def __init__(self, decode: Callable[[list[int]], str]) -> None:
        super().__init__(lambda _: b"")
        self._decode = decode
        self._ids: list[int] = []
        self._returned = ""

    def feed(self, token_id: int) -> str:
        """Return the text that `token_id` completes.

        Raises:
            UnknownTokenError: The id belongs to no token.
            TokenizerError: The library decodes the ids before it to another text than without it.
        """
        text = self._decode([*self._ids, token_id])
        self._ids.append(token_id)
        return self._new(text.rstrip("\ufffd"))

    def finish(self) -> str:
        """Return what was held back, and reset the decoder for a new text."""
        rest = self._new(self._decode(self._ids))
        self._ids, self._returned = [], ""
        return rest

    def _new(self, text: str) -> str:
        if self._returned.startswith(text):
            return ""
        if not text.startswith(self._returned):
            raise TokenizerError(
                "this tokenizer's text depends on later ids, so that ids cannot be decoded one at a time",
                hint="decode all ids with decode",
            )
        new = text[len(self._returned) :]
        self._returned = text
        return new


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
