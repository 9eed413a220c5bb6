"""Where in a text its tokens stand, in bytes and in characters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from bytemill._core import Encoder
    from bytemill.tokenizer.types import AllowedSpecial, TokenArray


@dataclass(frozen=True, eq=False)
class EncodedText:
    """The ids of a text and where each of them stands in it.

    Offsets are rows of start and end: token number k stands for `utf8[start:end]` with its row of `byte_offsets`, and
    has a part in every character of `text[start:end]` with that of `char_offsets`.
    """

    ids: TokenArray
    """As `encode_to_numpy` gives them: n ids."""
    byte_offsets: NDArray[np.int64]
    """(n, 2): start and end in `utf8`. They are exact: each token starts where the one before ends."""
    char_offsets: NDArray[np.int64]
    """(n, 2): start and end in the `str` that was encoded.

    A token that begins or ends inside a character covers all of it. So tokens that share a character overlap there, and
    several that lie inside one have the same offsets; any others lie side by side.
    """
    utf8: bytes
    """The text as it was encoded: lone surrogates are U+FFFD, surrogate pairs the character that they mean."""

    @property
    def tokens(self) -> list[bytes]:
        """The bytes that each id stands for. Made anew at each call."""
        starts, ends = self.byte_offsets.T.tolist()
        return [self.utf8[span] for span in map(slice, starts, ends)]

    def __len__(self) -> int:
        return len(self.ids)


def encode_with_offsets(
    core: Encoder, text: str, allowed_special: AllowedSpecial, num_threads: int | None
) -> EncodedText:
    """See `Tokenizer.encode_with_offsets`."""
    ids, byte_offsets = core.encode_with_spans(text, allowed_special, num_threads)
    try:
        utf8 = text.encode()
    except UnicodeEncodeError:
        utf8 = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
        char_offsets = _places_of_characters(text)[_char_offsets(utf8, byte_offsets)]
    else:
        char_offsets = byte_offsets.copy() if len(utf8) == len(text) else _char_offsets(utf8, byte_offsets)
    return EncodedText(ids, byte_offsets, char_offsets, utf8)


def _char_offsets(utf8: bytes, byte_offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Offsets in characters of what `utf8` spells."""
    import numpy as np

    is_first = (np.frombuffer(utf8, dtype=np.uint8) & 0xC0) != 0x80
    # How many characters have begun when a byte has been read: the number of the one it belongs to, plus one.
    begun = np.cumsum(is_first, dtype=np.int64)
    offsets = begun[byte_offsets - [0, 1]]
    offsets[:, 0] -= 1
    return offsets


def _places_of_characters(text: str) -> NDArray[np.int64]:
    """Where in `text` each of its characters begins if surrogate pairs are joined, and at last where it ends.

    A pair is a high surrogate and a low one directly behind it, so whether a low one ends a pair is seen from the place
    before it alone.
    """
    import numpy as np

    code_points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    kind = code_points >> 10  # of 0xD800-0xDBFF, the high surrogates, 0x36; of 0xDC00-0xDFFF 0x37
    ends_pair = np.zeros(len(text), dtype=np.bool_)
    ends_pair[1:] = (kind[:-1] == 0x36) & (kind[1:] == 0x37)
    return np.append(np.flatnonzero(~ends_pair), len(text))
