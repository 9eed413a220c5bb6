"""A chart of curves over steps, with levels to compare them with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bytemill.report.scale import Linear, ticks
from bytemill.report.svg import NARROW, Caption, both_widths, dot, label, line, path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bytemill.report.markup import Markup

_PLOT_HEIGHT = 260


@dataclass(frozen=True)
class Curve:
    """Values over steps."""

    name: str
    colour: int
    """1 to 7, as in the style sheet."""
    points: Sequence[tuple[float, float]]
    """(step, value)"""
    dots: bool = False
    """Whether each value can be pointed at."""


@dataclass(frozen=True)
class Level:
    """A value that does not change, drawn as a line across."""

    name: str
    value: float


def curves_chart(
    caption: Caption, curves: Sequence[Curve], levels: Sequence[Level], x_axis: str, y_axis: str
) -> Markup:
    """Curves over an axis from 0, and levels across them; the values' axis begins at 0."""

    def draw(width: float) -> tuple[float, list[Markup]]:
        left, right, top, bottom = 34.0, width - 14, 24.0, 24.0 + _PLOT_HEIGHT
        values = [y for curve in curves for _, y in curve.points] + [level.value for level in levels]
        steps = ticks(max(values))
        up = Linear(steps[-1], bottom, top)
        marks = ticks(max(x for curve in curves for x, _ in curve.points), 3 if width <= NARROW else 6)
        across = Linear(marks[-1], left, right)
        shapes = [label(0, up(steps[-1]) - 12, y_axis, class_="small")]
        for step in steps:
            shapes.append(line(left, up(step), right, up(step), "axis" if step == 0 else "grid"))
            shapes.append(label(left - 7, up(step) + 4, f"{step:g}", anchor="end", class_="small"))
        for mark in marks:
            shapes.append(line(across(mark), bottom, across(mark), bottom + 5, "axis"))
            shapes.append(label(across(mark), bottom + 19, f"{mark:,g}", anchor="middle", class_="small"))
        shapes.append(label((left + right) / 2, bottom + 39, x_axis, anchor="middle", class_="small"))
        for level in levels:
            y = up(level.value)
            shapes.append(path([(left, y), (right, y)], "line s7 dashed"))
            shapes.append(
                label(right, y - 6, f"{level.name}: {level.value:.2f}", anchor="end", class_="small")
            )
        for curve in curves:
            places = [(across(x), up(y)) for x, y in curve.points]
            if len(places) > 1:
                shapes.append(path(places, f"line s{curve.colour}"))
            if curve.dots or len(places) == 1:
                shapes += [
                    dot(*place, f"f{curve.colour} gap", f"{curve.name}, step {x:,g}: {y:.3f} {y_axis}")
                    for place, (x, y) in zip(places, curve.points, strict=True)
                ]
        return bottom + 45, shapes

    return both_widths(caption, draw)
