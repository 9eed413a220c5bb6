"""`.vocab` files: a tokenizer as a list for people, a token a line, as minbpe and simple-bpe write it.

    [ t][he] -> [ the] 262

A token that a merge makes stands behind its two parts. Tokens are shown as text, what is not UTF-8 as U+FFFD,
so that no reader could tell them apart again: a listing is written and never read.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

from bytemill.formats.ranks import merges_of_ranks
from bytemill.formats.vocabulary import check_special_tokens, ordinary_tokens

if TYPE_CHECKING:
    from bytemill.formats.spec import TokenizerSpec


def write(spec: TokenizerSpec, *, raw_special_tokens: bool = False) -> str:
    """The listing of `spec`: tokens by id, then the special tokens in their order.

    minbpe escapes control characters in special tokens too; simple-bpe writes them as they are. Which
    characters are controls, and which are not assigned, is for the Unicode tables of this Python to say. Raises
    TokenizerError where `spec` contradicts itself.
    """
    tokens = ordinary_tokens(spec)
    check_special_tokens(spec, tokens)
    merges = spec.merges if spec.merges is not None else merges_of_ranks(spec.ranks or {})
    parts = {left + right: (left, right) for left, right in merges}
    shown = {token: _rendered(token.decode("utf-8", "replace")) for token in tokens.values()}
    lines: list[str] = []
    for token_id, token in tokens.items():
        origin = "".join(f"[{shown[part]}]" for part in parts.get(token, ()))
        lines.append(f"{origin} -> [{shown[token]}] {token_id}" if origin else f"[{shown[token]}] {token_id}")
    lines += [
        f"[{text if raw_special_tokens else _rendered(text)}] {token_id}"
        for text, token_id in spec.special_tokens.items()
        if token_id not in tokens
    ]
    return "\n".join(lines) + "\n"


def looks_like_listing(data: bytes) -> bool:
    r"""Whether `data` begins as a listing does.

    >>> looks_like_listing(b"[\\u0000] 0\n")
    True
    """
    first = data[:4096].lstrip(b"\xef\xbb\xbf").split(b"\n", 1)[0].rstrip(b"\r")
    return re.fullmatch(rb"\[.+\](\[.+\] -> \[.+\])? [0-9]+", first) is not None


def _rendered(text: str) -> str:
    """`text` with an escape for every character of Unicode's category C: controls, formats, unassigned ones."""
    if text.isprintable():
        return text  # none of category C is printable
    return "".join(
        f"\\u{ord(character):04x}" if unicodedata.category(character).startswith("C") else character
        for character in text
    )
