"""The frame of a page, and the blocks that it is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bytemill.report.markup import Markup, join, tag
from bytemill.report.style import STYLE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# Even a mistake in this module could not make the page fetch anything.
_NOTHING_FROM_ELSEWHERE = "default-src 'none'; style-src 'unsafe-inline'"


def page(title: str, introduction: str, sections: Iterable[Markup], language: str = "en") -> str:
    """A whole document."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", http_equiv="Content-Security-Policy", content=_NOTHING_FROM_ELSEWHERE),
        tag("title", title),
        tag("style", Markup(STYLE)),
    )
    body = tag(
        "body",
        tag("header", tag("h1", title), tag("p", introduction, class_="lead")),
        tag("main", join(sections, "\n")),
    )
    return f"<!doctype html>\n{tag('html', head, body, lang=language)}\n"


def section(title: str, *blocks: str, id_: str) -> Markup:
    """A part of the page with its heading, which `id_` names for links and for readers of the page."""
    heading = f"{id_}-heading"
    return tag("section", tag("h2", title, id=heading), *blocks, id=id_, aria_labelledby=heading)


def paragraph(*parts: str) -> Markup:
    """A paragraph."""
    return tag("p", *parts)


def tiles(items: Iterable[tuple[str, str]]) -> Markup:
    """Single numbers that matter: (value, what it is)."""
    return tag(
        "dl", *(tag("div", tag("dt", label), tag("dd", value)) for value, label in items), class_="tiles"
    )


def table(header: Sequence[str], rows: Iterable[Sequence[str]], caption: str, left: int = 1) -> Markup:
    """A table; the first `left` columns are text, the others numbers, which stand at the right."""

    def cell(name: str, place: int, content: str) -> Markup:
        scope = "col" if name == "th" else None
        return tag(name, content, class_=None if place < left else "number", scope=scope)

    return tag(
        "div",
        tag(
            "table",
            tag("caption", caption),
            tag("thead", tag("tr", *(cell("th", place, name) for place, name in enumerate(header)))),
            tag(
                "tbody",
                *(tag("tr", *(cell("td", place, value) for place, value in enumerate(row))) for row in rows),
            ),
        ),
        class_="scroll",
        tabindex=0,
        role="region",
        aria_label=caption,
    )


def figure(chart: str, caption: str, numbers: Markup | None = None) -> Markup:
    """A chart with its caption, and its numbers as a table to unfold."""
    unfold = tag("details", tag("summary", "The numbers"), numbers) if numbers is not None else ""
    return tag("figure", chart, tag("figcaption", caption), unfold)


def commands(lines: Iterable[str]) -> Markup:
    """Commands to copy."""
    return tag("pre", tag("code", "\n".join(lines)), tabindex=0)
