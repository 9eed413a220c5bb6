"""Prepare tokens for the token view and the lists of a report page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bytemill.analysis.inspection import LINE_END, visible, visible_parts
from bytemill.system.units import plural

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bytemill.analysis.inspection import TextToken

_N_COLOURS = 5
_MAX_CHARACTERS = 40


@dataclass(frozen=True)
class TokenSpan:
    """One token of the token view."""

    id: int
    parts: list[tuple[str, str]]
    """(kind, content): kind "text" is shown as it is, other kinds are set back."""
    css_class: str
    about: str
    """Shown while the pointer is on the token."""
    ends_line: bool


def token_spans(tokens: Iterable[TextToken]) -> list[TokenSpan]:
    """Prepare the tokens of a text, with alternating colours."""
    return [_span(token, number) for number, token in enumerate(tokens)]


def shortened(token: bytes) -> str:
    """Make a token visible, cut to 40 characters.

    >>> shortened(b"=" * 64)
    '=======================================…'
    """
    text = visible(token)
    return text if len(text) <= _MAX_CHARACTERS else text[: _MAX_CHARACTERS - 1] + "…"


def _span(token: TextToken, number: int) -> TokenSpan:
    about = f"id {token.id} · {plural(len(token.bytes), 'byte')}"
    if token.special:
        about += " · special token"
    elif token.text is None:
        about += " · part of a character"
    parts: list[tuple[str, str]] = []
    for part in visible_parts(token.bytes):
        if parts and parts[-1][1] == LINE_END:
            parts.append(("text", "\n"))
        parts.append((part.kind, part.shown))
    css_class = "special" if token.special else f"k{number % _N_COLOURS + 1}"
    return TokenSpan(token.id, parts, css_class, about, token.bytes.endswith(b"\n"))
