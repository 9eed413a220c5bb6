"""HTML of tokens and tokenizers for notebooks."""

from __future__ import annotations

from html import escape
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_TOKENS = 300
"""Tokens shown at most."""
_MAX_CHARACTERS = 80
"""Characters shown of one token, and ten times as many of its tooltip."""

# Translucent backgrounds keep the notebook's own text color readable in light and dark themes.
_COLORS = ("66,133,244", "52,168,83", "251,188,5", "234,67,53", "154,99,213")
_VISIBLE = str.maketrans({" ": "·", "\n": "↵", "\r": "␍", "\t": "⇥"})


class Token(NamedTuple):
    """A token to show."""

    data: bytes
    id: int
    special: bool = False
    tooltip: str = ""


def tokens_html(tokens: Iterable[Token], n_tokens: int | None = None) -> str:
    """Return colored tokens with visible white space, at most `MAX_TOKENS` of them.

    Args:
        tokens: The tokens; the function reads all of them only if `n_tokens` is None.
        n_tokens: Number of tokens.
    """
    remaining = iter(tokens)
    spans = [_span(index, token) for index, token in enumerate(islice(remaining, MAX_TOKENS))]
    if n_tokens is None:
        n_tokens = len(spans) + sum(1 for _ in remaining)
    n_hidden = n_tokens - len(spans)
    more = f" <em>… {n_hidden:,} more</em>" if n_hidden else ""
    count = f"{n_tokens:,} token{'' if n_tokens == 1 else 's'}"
    style = "font-family:monospace;line-height:1.9;overflow-wrap:anywhere"
    return f'<div><div style="{style}">{"".join(spans)}{more}</div><small>{count}</small></div>'


def _span(index: int, token: Token) -> str:
    try:
        text = token.data.decode()
    except UnicodeDecodeError:
        shown = f"⟨{token.data[:_MAX_CHARACTERS].hex(' ')}⟩"
    else:
        shown = "".join(
            character if character.isprintable() else f"⟨{ord(character):x}⟩"
            for character in text[:_MAX_CHARACTERS].translate(_VISIBLE)
        )
        shown += "…" if len(text) > _MAX_CHARACTERS else ""
    border = "border:1px solid currentColor;" if token.special else ""
    style = f"background:rgba({_COLORS[index % len(_COLORS)]},0.3);{border}border-radius:3px;padding:1px 0"
    tooltip = f"id {token.id}" + (f": {token.tooltip}" if token.tooltip else "")
    title = escape(tooltip[: 10 * _MAX_CHARACTERS], quote=True).replace("\n", "&#10;")
    return f'<span title="{title}" style="{style}">{escape(shown)}</span><wbr>'


def table_html(title: str, rows: Iterable[tuple[str, str]]) -> str:
    """Return a two-column table."""
    cells = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th><td style="text-align:left">{escape(value)}</td></tr>'
        for name, value in rows
    )
    return f"<table><caption>{escape(title)}</caption>{cells}</table>"
