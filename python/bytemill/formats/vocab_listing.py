"""`.vocab` files: a human-readable list of tokens, one per line, as minbpe and simple-bpe write it.

    [ t][he] -> [ the] 262

The two parts precede a token that a merge produces. Tokens are shown as text, with U+FFFD for invalid UTF-8, so a
listing does not identify every token: it is written, never read.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

from bytemill.formats.vocabulary import checked_parts

if TYPE_CHECKING:
    from bytemill.formats.spec import TokenizerSpec


def write(spec: TokenizerSpec, *, raw_special_tokens: bool = False) -> str:
    """Return the listing: tokens by id, then the special tokens in their order.

    Args:
        spec: The tokenizer.
        raw_special_tokens: Do not escape control characters in special tokens, as in simple-bpe's listings.

    Raises:
        TokenizerError: `spec` contradicts itself.
    """
    tokens, merges = checked_parts(spec)
    parts = {left + right: (left, right) for left, right in merges}
    shown = {token: _render(token.decode("utf-8", "replace")) for token in tokens.values()}
    lines: list[str] = []
    for token_id, token in tokens.items():
        origin = "".join(f"[{shown[part]}]" for part in parts.get(token, ()))
        lines.append(f"{origin} -> [{shown[token]}] {token_id}" if origin else f"[{shown[token]}] {token_id}")
    lines += [
        f"[{text if raw_special_tokens else _render(text)}] {token_id}"
        for text, token_id in spec.special_tokens.items()
        if token_id not in tokens
    ]
    return "\n".join(lines) + "\n"


def looks_like_listing(data: bytes) -> bool:
    r"""Return whether `data` begins like a listing.

    >>> looks_like_listing(b"[\\u0000] 0\n")
    True
    """
    first = data[:4096].lstrip(b"\xef\xbb\xbf").split(b"\n", 1)[0].rstrip(b"\r")
    return re.fullmatch(rb"\[.+\](\[.+\] -> \[.+\])? [0-9]+", first) is not None


def _render(text: str) -> str:
    """Escape the characters of Unicode's category C in the Unicode tables of this Python."""
    if text.isprintable():
        return text  # contains none of category C
    return "".join(
        f"\\u{ord(character):04x}" if unicodedata.category(character).startswith("C") else character
        for character in text
    )
