"""The pieces of a chart: SVG shapes, and drawings for two widths."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

WIDE, NARROW = 720, 360
"""Widths that charts are drawn for."""


@dataclass(frozen=True)
class Shape:
    """One SVG element."""

    element: str
    attributes: dict[str, str | float | None]
    text: str = ""
    tooltip: str = ""


@dataclass(frozen=True)
class Drawing:
    """A chart drawn for one width."""

    name: str
    """"wide" or "narrow"."""
    width: float
    height: float
    shapes: list[Shape]


@dataclass(frozen=True)
class Chart:
    """A chart and its text alternative."""

    id: str
    """Unique on the page."""
    title: str
    description: str
    drawings: list[Drawing]
    legend: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """(CSS class of the colour, meaning)."""


def drawings(draw: Callable[[float], tuple[float, list[Shape]]]) -> list[Drawing]:
    """Draw for both widths; `draw` returns the height and the shapes for a width."""
    return [Drawing(name, width, *draw(width)) for name, width in (("wide", WIDE), ("narrow", NARROW))]


def label(x: float, y: float, text: str, css_class: str | None = None, anchor: str | None = None) -> Shape:
    """Draw text with its base line at `y`."""
    position = {"x": round(x, 2), "y": round(y, 2)}
    return Shape("text", {**position, "text-anchor": anchor, "class": css_class}, text)


def line(x1: float, y1: float, x2: float, y2: float, css_class: str) -> Shape:
    """Draw a straight line."""
    ends = {"x1": x1, "y1": y1, "x2": x2, "y2": y2}
    return Shape("line", {**{name: round(value, 2) for name, value in ends.items()}, "class": css_class})


def box(  # noqa: PLR0917 (position, size, style, as in SVG)
    x: float, y: float, width: float, height: float, css_class: str, tooltip: str, *, radius: float = 2
) -> Shape:
    """Draw a rectangle."""
    sides = {"x": x, "y": y, "width": max(0.0, width), "height": max(0.0, height), "rx": radius}
    attributes = {name: round(value, 2) for name, value in sides.items()}
    return Shape("rect", {**attributes, "class": css_class}, tooltip=tooltip)


def path(points: Sequence[tuple[float, float]], css_class: str) -> Shape:
    """Draw lines from point to point."""
    steps = " L".join(f"{x:.2f},{y:.2f}" for x, y in points)
    return Shape("path", {"d": f"M{steps}", "class": css_class})
