"""Byte and character offsets of the tokens of a text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bytemill.tokenizer.notebook import MAX_TOKENS, Token, tokens_html

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from bytemill._core import Encoder
    from bytemill.tokenizer.types import AllowedSpecial, TokenArray


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
