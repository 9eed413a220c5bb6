"""Arguments and results of encoding: which special tokens a text may contain, and where its tokens are."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from bytemill.errors import SpecialTokenError
from bytemill.tokenizer.explanation import MAX_TOKENS, Token, tokens_html

if TYPE_CHECKING:
    from collections.abc import Iterable, Set

    import numpy as np
    from numpy.typing import NDArray

    from bytemill._core import Encoder

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


@dataclass(frozen=True, eq=False)
class EncodedText:
    """The ids of a text with their byte and character offsets.

    Row k of an offsets array is the (start, end) of token k: in `utf8` for `byte_offsets`, in the encoded `str` for
    `char_offsets`.
    """

    ids: TokenArray
    """(n,): the ids, as `encode_to_numpy` returns them."""
    byte_offsets: NDArray[np.int64]
    """(n, 2): start and end in `utf8`. Each token starts where the previous one ends, unless a normalizer changed the
    text: then it has the range of the characters that its own come from; an added space has that of the next one."""
    char_offsets: NDArray[np.int64]
    """(n, 2): start and end in the `str` that was encoded.

    A token that starts or ends inside a character covers the whole character, so tokens that share a character overlap.
    """
    utf8: bytes
    """The encoded text: lone surrogates are U+FFFD, surrogate pairs are joined."""

    @property
    def tokens(self) -> list[bytes]:
        """The text of each token, as bytes. A new list on each access."""
        starts, ends = self.byte_offsets.T.tolist()
        return [self.utf8[span] for span in map(slice, starts, ends)]

    def _repr_html_(self) -> str:
        ids = self.ids[: MAX_TOKENS + 1].tolist()
        spans = self.byte_offsets[: MAX_TOKENS + 1].tolist()
        return tokens_html(
            (Token(self.utf8[start:end], i) for i, (start, end) in zip(ids, spans, strict=True)),
            len(self.ids),
        )

    def __len__(self) -> int:
        return len(self.ids)


def encode_with_offsets(
    core: Encoder, text: str, allowed_special: AllowedSpecial, num_threads: int | None
) -> EncodedText:
    """Implement `Tokenizer.encode_with_offsets`."""
    ids, byte_offsets = core.encode_with_spans(text, allowed_special, num_threads)
    try:
        utf8 = text.encode()
    except UnicodeEncodeError:
        utf8 = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
        char_offsets = _character_positions(text)[_char_offsets(utf8, byte_offsets)]
    else:
        char_offsets = byte_offsets.copy() if len(utf8) == len(text) else _char_offsets(utf8, byte_offsets)
    return EncodedText(ids, byte_offsets, char_offsets, utf8)


def _char_offsets(utf8: bytes, byte_offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Convert byte offsets in `utf8` to character offsets."""
    import numpy as np

    is_first = (np.frombuffer(utf8, dtype=np.uint8) & 0xC0) != 0x80
    # Characters started up to and including each byte: the index of its character, plus one.
    begun = np.cumsum(is_first, dtype=np.int64)
    offsets = begun[byte_offsets - [0, 1]]
    offsets[:, 0] -= 1
    return offsets


def _character_positions(text: str) -> NDArray[np.int64]:
    """Return the position in `text` of each character with surrogate pairs joined, followed by `len(text)`.

    A pair is a high surrogate followed directly by a low one.
    """
    import numpy as np

    code_points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    kind = code_points >> 10  # of 0xD800-0xDBFF, the high surrogates, 0x36; of 0xDC00-0xDFFF 0x37
    ends_pair = np.zeros(len(text), dtype=np.bool_)
    ends_pair[1:] = (kind[:-1] == 0x36) & (kind[1:] == 0x37)
    return np.append(np.flatnonzero(~ends_pair), len(text))
