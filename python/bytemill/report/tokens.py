"""Tokens of a text: for the token view and the lists of a page, and as an SVG image."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from rich.cells import cell_len

from bytemill.analysis.inspection import LINE_END, visible, visible_parts
from bytemill.system.units import plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

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


_CELL = 9.6
"""Width of a character in pixels, for a monospaced typeface of 16 pixels."""
_LINE_CELLS = 72
_LINE_HEIGHT = 56
_GAP = 3
"""Pixels between two tokens."""
_COLOURS = ("#cfe2ff", "#d3f2d5", "#ffe2c2", "#f6d5f0", "#fbf0b2")
_SPECIAL_COLOUR = "#454078"
_STYLE = (
    "text{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;"
    "text-anchor:middle;white-space:pre}.token{font-size:16px}.id{font-size:11px;fill:#767c89}"
)


def tokens_svg(tokens: Iterable[TextToken]) -> str:
    """Return an SVG document: each token in a coloured box, its id below it.

    A line of the image ends where a line of the text ends or where the image is full. Controls and parts of characters
    are shown as `bytemill.analysis.inspection.visible` shows them.

    >>> from bytemill.analysis.inspection import TextToken
    >>> image = tokens_svg([TextToken(116, b"t", False, 0), TextToken(104, b"h", False, 1)])
    >>> image.startswith("<svg "), image.count("<rect"), "<title>id 116: t</title>" in image
    (True, 2, True)
    """
    lines = list(_lines(tokens))
    shapes: list[str] = []
    width = 0.0
    n_drawn = 0
    for row, line in enumerate(lines):
        x = 0.0
        for token in line:
            box = _CELL * _n_cells(token) + 4
            shapes.append(_token(token, x, row * _LINE_HEIGHT, box, _colour(token, n_drawn)))
            x += box + _GAP
            n_drawn += 1
        width = max(width, x - _GAP)
    height = len(lines) * _LINE_HEIGHT - 8
    title = f"{n_drawn} tokens"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" '
        f'height="{height}" role="img" aria-label="{title}">\n<style>{_STYLE}</style>\n'
        + "\n".join(shapes)
        + "\n</svg>\n"
    )


def _lines(tokens: Iterable[TextToken]) -> Iterator[list[TextToken]]:
    line: list[TextToken] = []
    used = 0.0
    for token in tokens:
        cells = _n_cells(token)
        if line and used + cells > _LINE_CELLS:
            yield line
            line, used = [], 0.0
        line.append(token)
        used += cells
        if _shown(token).endswith(LINE_END):
            yield line
            line, used = [], 0.0
    if line:
        yield line


def _token(token: TextToken, x: float, y: float, width: float, colour: str) -> str:
    shown = _shown(token)
    middle = x + width / 2
    ink = "#ffffff" if token.special else "#1d1f24"
    length = f'{_CELL * cell_len(shown):.1f}" lengthAdjust="spacingAndGlyphs'
    return (
        f"<g><title>id {token.id}: {escape(shown)}</title>"
        f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="28" rx="5" fill="{colour}"/>'
        f'<text class="token" x="{middle:.1f}" y="{y + 20}" fill="{ink}" textLength="{length}" '
        f'xml:space="preserve">{escape(shown)}</text>'
        f'<text class="id" x="{middle:.1f}" y="{y + 42}">{token.id}</text></g>'
    )


def _colour(token: TextToken, n_before: int) -> str:
    return _SPECIAL_COLOUR if token.special else _COLOURS[n_before % len(_COLOURS)]


def _shown(token: TextToken) -> str:
    return visible(token.bytes).replace(" ", "\N{NO-BREAK SPACE}")


def _n_cells(token: TextToken) -> float:
    """Return the width of a token in characters; an id takes seven tenths of one per digit."""
    return max(cell_len(_shown(token)), 0.7 * len(str(token.id)))
