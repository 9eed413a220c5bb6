"""Tokens as people see them on a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bytemill.analysis.inspection import LINE_END, visible, visible_parts
from bytemill.report.markup import Markup, join, tag
from bytemill.system.units import plural

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bytemill.analysis.inspection import Piece

_N_COLOURS = 5
_MOST_SHOWN = 40
_LINE_END = tag("i", LINE_END)


def sample(pieces: Iterable[Piece], id_: str) -> Markup:
    """A text with its tokens in colours; each says its id when it is pointed at or has the focus.

    The ids can be shown all together too, and who goes through the page by keyboard can step over the tokens.
    """
    end = f"{id_}-end"
    return tag(
        "div",
        tag("a", "Skip the tokens", href=f"#{end}", class_="skip"),
        tag("label", tag("input", type="checkbox"), "show ids", class_="show-ids"),
        tag("div", *(_token(piece, place) for place, piece in enumerate(pieces)), class_="tokens"),
        tag("span", id=end, tabindex=-1),
    )


def chips(tokens: Iterable[bytes]) -> Markup:
    """Tokens in a row, each with the number of its bytes; of the very long ones the beginning."""

    def chip(content: bytes) -> Markup:
        shown = visible(content)
        if len(shown) > _MOST_SHOWN:
            shown = shown[: _MOST_SHOWN - 1] + "…"
        return tag("li", shown, tag("small", plural(len(content), "byte")))

    return tag("ul", *map(chip, tokens), class_="chips")


def merge_list(merges: Iterable[tuple[bytes, bytes]], counts: Iterable[int]) -> Markup:
    """Merges in order, each with how often its pair stood in the training text."""

    def item(left: bytes, right: bytes, count: int) -> Markup:
        made = tag("b", _quoted(left + right))
        return tag("li", f"{_quoted(left)} + {_quoted(right)} → ", made, tag("small", f"{count:,}×"))

    return tag(
        "ol", *(item(*merge, count) for merge, count in zip(merges, counts, strict=True)), class_="merges"
    )


def _token(piece: Piece, place: int) -> Markup:
    about = f"id {piece.id} · {plural(len(piece.bytes), 'byte')}"
    if piece.special:
        about += " · special token"
    elif piece.text is None:
        about += " · part of a character"
    colour = "special" if piece.special else f"k{place % _N_COLOURS + 1}"
    # The line ends after the id, which belongs to this line.
    line_end = "\n" if piece.bytes.endswith(b"\n") else ""
    return tag(
        "span",
        _parts(piece.bytes),
        tag("sub", str(piece.id)),
        line_end,
        class_=f"token {colour}",
        data_about=about,
        tabindex=0,
    )


def _parts(content: bytes) -> Markup:
    """The parts of a token, in lines as they are in the text; what is not text stands back a little."""
    shown: list[str] = []
    for part in visible_parts(content):
        if shown and shown[-1] == _LINE_END:
            shown.append("\n")
        shown.append(
            part.shown
            if part.kind == "text"
            else _LINE_END
            if part.kind == "line end"
            else tag("i", part.shown)
        )
    return join(shown)


def _quoted(content: bytes) -> str:
    return visible(content).replace(" ", "␣")
