"""What charts are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bytemill.report.markup import Markup, join, tag

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

WIDE, NARROW = 720, 360
"""Widths that charts are drawn for, on a screen and on a phone, so that letters keep their size."""


@dataclass(frozen=True)
class Caption:
    """What a chart is called, and what it says to those who do not see it."""

    id: str
    """Unique on the page."""
    title: str
    description: str


def both_widths(caption: Caption, draw: Callable[[float], tuple[float, Sequence[Markup]]]) -> Markup:
    """A chart drawn for both widths, of which the page shows one.

    `draw` gives the height and the shapes for a width.
    """
    return join(
        _svg(caption, name, width, *draw(width)) for name, width in (("wide", WIDE), ("narrow", NARROW))
    )


def label(x: float, y: float, content: str, *, anchor: str = "start", class_: str | None = None) -> Markup:
    """Text whose base line is at `y`."""
    shown_anchor = None if anchor == "start" else anchor
    return tag("text", content, x=float(x), y=float(y), text_anchor=shown_anchor, class_=class_)


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Markup:
    """A straight line."""
    return tag("line", x1=float(x1), y1=float(y1), x2=float(x2), y2=float(y2), class_=class_)


def box(
    x: float, y: float, width: float, height: float, *, class_: str, about: str, radius: float = 2
) -> Markup:
    """A rectangle, which says what it is about when pointed at."""
    return tag(
        "rect",
        tag("title", about),
        x=float(x),
        y=float(y),
        width=max(0.0, float(width)),
        height=max(0.0, float(height)),
        rx=float(radius),
        class_=class_,
    )


def dot(x: float, y: float, class_: str, about: str) -> Markup:
    """A point of a line, which says what it is about when pointed at."""
    return tag("circle", tag("title", about), cx=float(x), cy=float(y), r=4.0, class_=class_)


def path(points: Sequence[tuple[float, float]], class_: str) -> Markup:
    """Points joined by a line."""
    steps = " L".join(f"{x:.2f},{y:.2f}" for x, y in points)
    return tag("path", d=f"M{steps}", class_=class_)


def legend(items: Sequence[tuple[str, str]]) -> Markup:
    """What the colours mean: (class of the colour, meaning)."""

    def patch(class_: str) -> Markup:
        shape = Markup(f'<rect width="10" height="10" rx="2" class="{class_}"></rect>')
        return Markup(f'<svg viewBox="0 0 10 10" aria-hidden="true">{shape}</svg>')

    return tag("ul", *(tag("li", patch(class_), meaning) for class_, meaning in items), class_="legend")


def _svg(caption: Caption, name: str, width: float, height: float, shapes: Sequence[Markup]) -> Markup:
    title_id, description_id = f"{caption.id}-{name}-title", f"{caption.id}-{name}-description"
    inside = join(
        [
            tag("title", caption.title, id=title_id),
            tag("desc", caption.description, id=description_id),
            *shapes,
        ]
    )
    return Markup(
        f'<svg viewBox="0 0 {width:.0f} {height:.0f}" class="{name}" role="img" '
        f'aria-labelledby="{title_id} {description_id}">{inside}</svg>'
    )
