"""`.vocab` files: a human-readable list of tokens, one per line, as minbpe and simple-bpe write it.

    [ t][he] -> [ the] 262

The two parts precede a token that a merge produces. Tokens are shown as text, with U+FFFD for invalid UTF-8, so a
listing does not identify every token: it is written, never read.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

from bytemill.errors import TokenizerFileError
from bytemill.formats.spec import checked_parts

if TYPE_CHECKING:
    from pathlib import Path

    from bytemill.formats.registry import Content
    from bytemill.formats.spec import TokenizerSpec


def recognize(content: Content) -> bool:
    """Return whether a file begins like a listing."""
    return looks_like_listing(content.data)


def read(content: Content) -> TokenizerSpec:
    """Raise TokenizerFileError: a listing cannot be read."""
    raise TokenizerFileError(
        f"{content.location}: a listing for people; it does not identify every token",
        hint="give the .model file beside it",
    )


def render(spec: TokenizerSpec, path: Path, *, raw_special_tokens: bool = False) -> dict[Path, bytes]:
    """Return the file to write. Other arguments and errors are those of `write`."""
    return {path: write(spec, raw_special_tokens=raw_special_tokens).encode()}


def left_out(_: TokenizerSpec) -> list[str]:
    """Describe what the file does not store."""
    return ["the bytes of tokens that are not UTF-8", "the pattern", "which tokens are special"]


def looks_like_listing(data: bytes) -> bool:
    r"""Return whether `data` begins like a listing.

    >>> looks_like_listing(b"[\\u0000] 0\n")
    True
    """
    first = data[:4096].lstrip(b"\xef\xbb\xbf").split(b"\n", 1)[0].rstrip(b"\r")
    return re.fullmatch(rb"\[.+\](\[.+\] -> \[.+\])? [0-9]+", first) is not None


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


def _render(text: str) -> str:
    """Escape the characters of Unicode's category C in the Unicode tables of this Python."""
    if text.isprintable():
        return text  # contains none of category C
    return "".join(
        f"\\u{ord(character):04x}" if unicodedata.category(character).startswith("C") else character
        for character in text
    )
