"""Charts as SVG shapes: scales, shapes, then values with intervals, tables of numbers, and lines.

Each chart is drawn twice, for a screen and for a phone, so that text keeps its size. The page shows one of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


_CHARACTER_WIDTH = 0.56
"""Mean character width of a sans-serif typeface, as a fraction of the font size."""


@dataclass(frozen=True)
class Linear:
    """Linear scale: map `smallest` to `start` and `largest` to `end`."""

    largest: float
    start: float
    end: float
    smallest: float = 0.0

    def __call__(self, value: float) -> float:
        """Return the position of `value`."""
        span = self.largest - self.smallest
        return self.start + (self.end - self.start) * ((value - self.smallest) / span if span else 0.0)


@dataclass(frozen=True)
class Logarithmic:
    """Logarithmic scale: map `smallest` to `start` and `largest` to `end`; both values are positive."""

    smallest: float
    largest: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Return the position of `value`."""
        if self.largest <= self.smallest:
            return (self.start + self.end) / 2
        share = math.log(value / self.smallest) / math.log(self.largest / self.smallest)
        return self.start + (self.end - self.start) * share


def ticks(largest: float, n_wanted: int = 5) -> list[float]:
    """Return round values from 0 to at least `largest`, in about `n_wanted` steps.

    >>> ticks(4.3), ticks(0.23), ticks(70)
    ([0, 1, 2, 3, 4, 5], [0, 0.05, 0.1, 0.15, 0.2, 0.25], [0, 20, 40, 60, 80])
    """
    if largest <= 0:
        return [0, 1]
    rough = largest / n_wanted
    magnitude = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * magnitude for factor in (1, 2, 2.5, 5, 10) if factor * magnitude >= rough * 0.999)
    n_steps = math.ceil(largest / step - 1e-9)
    return [_tidy(number * step) for number in range(n_steps + 1)]


def nice_range(low: float, high: float, n_wanted: int = 5) -> list[float]:
    """Return round values from at most `low` to at least `high`, in about `n_wanted` steps.

    >>> nice_range(2.18, 2.41), nice_range(3, 3)
    ([2.15, 2.2, 2.25, 2.3, 2.35, 2.4, 2.45], [2.4, 2.6, 2.8, 3, 3.2, 3.4, 3.6])
    """
    if high <= low:
        half = abs(low) / 6 or 0.5
        low, high = low - half, high + half
    step = ticks(high - low, n_wanted)[1]
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [_tidy(number * step) for number in range(first, last + 1)]


def powers_of_two(smallest: float, largest: float) -> list[int]:
    """Return the powers of two from `smallest` to `largest`.

    >>> powers_of_two(257, 5000)
    [512, 1024, 2048, 4096]
    """
    first, last = math.ceil(math.log2(smallest) - 1e-9), math.floor(math.log2(largest) + 1e-9)
    return [2**power for power in range(first, last + 1)]


def text_width(text: str, size: float = 13) -> float:
    """Estimate the width of a text in pixels."""
    return len(text) * size * _CHARACTER_WIDTH


def _tidy(value: float) -> float:
    rounded = round(value, 10)
    return int(rounded) if rounded == int(rounded) else rounded


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


_TOP, _PLOT_HEIGHT = 24.0, 250.0


@dataclass(frozen=True)
class Series:
    """A line."""

    name: str
    colour: int
    """1 to 7, as in the style sheet."""
    points: Sequence[tuple[float, float]]
    """(x, y)."""
    dashed: bool = False
    has_dots: bool = True
    """Mark each point of a line and give it a tooltip."""


@dataclass(frozen=True)
class Interval:
    """One row of an interval chart."""

    label: str
    value: float
    low: float
    high: float
    """Ends of the interval; equal to the value if there is none."""
    shown: str
    """The value as text."""
    css_class: str = "f1"


def interval_chart(id_: str, title: str, rows: Sequence[Interval], axis: str) -> Chart:
    """Draw values as dots and their intervals as lines, on an axis from the least to the greatest end.

    Args:
        id_: Identifier of the chart, unique on the page.
        title: What the chart shows.
        rows: The values, from top to bottom.
        axis: Quantity and unit of the values.
    """
    steps = nice_range(min(row.low for row in rows), max(row.high for row in rows))

    def draw(width: float) -> tuple[float, list[Shape]]:
        narrow = width <= NARROW
        left = 10.0 if narrow else 22 + max(text_width(row.label) for row in rows)
        right = width - 16 - max(text_width(row.shown, 14) for row in rows)
        row_height = 46 if narrow else 30
        bottom = row_height * len(rows) + 6.0

        def position(value: float) -> float:
            return left + (right - left) * (value - steps[0]) / (steps[-1] - steps[0])

        marks = steps[::2] if narrow else steps
        shapes = [line(position(x), 0, position(x), bottom, "grid") for x in marks]
        for number, row in enumerate(rows):
            middle = number * row_height + (32 if narrow else row_height / 2)
            low, high = position(row.low), position(row.high)
            tooltip = f"{row.label}: {row.shown}, between {row.low:g} and {row.high:g}"
            dot = {
                "cx": round(position(row.value), 2),
                "cy": middle,
                "r": 5.0,
                "class": f"{row.css_class} gap",
            }
            shapes += [
                box(low, middle - 2, high - low, 4, row.css_class, tooltip),
                Shape("circle", dot, tooltip=tooltip),
                label(max(high, position(row.value)) + 10, middle + 4.5, row.shown, "strong"),
                label(left, middle - 14, row.label)
                if narrow
                else label(left - 14, middle + 4.5, row.label, anchor="end"),
            ]
        shapes += [label(position(x), bottom + 17, f"{x:g}", "small", "middle") for x in marks]
        shapes.append(label((left + right) / 2, bottom + 36, axis, "small", "middle"))
        return bottom + 42, shapes

    described = "; ".join(f"{row.label} {row.shown}, from {row.low:g} to {row.high:g}" for row in rows)
    return Chart(id_, title, f"Dots with intervals, {axis}: {described}.", drawings(draw))


def heat_map(
    id_: str,
    title: str,
    rows: Sequence[str],
    columns: Sequence[str],
    values: Sequence[Sequence[float | None]],
    *,
    shown: Callable[[float], str],
) -> Chart:
    """Draw a table of numbers, each on a field that is the darker, the greater the number is in its column.

    Args:
        id_: Identifier of the chart, unique on the page.
        title: What the numbers are.
        rows: Names of the rows.
        columns: Names of the columns.
        values: A number for each row and column; None leaves the field empty.
        shown: Renders a number.
    """

    def share(row: int, column: int) -> float:
        own = [each[column] for each in values]
        known = [value for value in own if value is not None]
        value, low, high = own[row], min(known), max(known)
        return 0.0 if value is None or high == low else (value - low) / (high - low)

    def draw(width: float) -> tuple[float, list[Shape]]:
        left = min(0.4 * width, 14 + max(text_width(name) for name in rows))
        cell, height, top = (width - left) / len(columns), 30.0, 26.0
        shapes = [
            label(left + (column + 0.5) * cell, top - 9, name, "small", "middle")
            for column, name in enumerate(columns)
        ]
        for row, name in enumerate(rows):
            y = top + row * height
            shapes.append(label(left - 10, y + 20, name, anchor="end"))
            for column, value in enumerate(values[row]):
                if value is None:
                    continue
                x, text = left + column * cell, shown(value)
                field = box(
                    x + 1, y + 1, cell - 2, height - 2, "f1", f"{name}, {columns[column]}: {text}", radius=3
                )
                field.attributes["opacity"] = round(0.06 + 0.5 * share(row, column), 3)
                shapes += [field, label(x + cell / 2, y + 20, text, "strong", "middle")]
        return top + len(rows) * height + 4, shapes

    described = "; ".join(
        f"{name}: " + ", ".join("none" if value is None else shown(value) for value in values[row])
        for row, name in enumerate(rows)
    )
    return Chart(id_, title, f"Table with columns {', '.join(columns)}: {described}.", drawings(draw))


def line_chart(
    id_: str,
    title: str,
    description: str,
    series: Sequence[Series],
    *,
    x_axis: str,
    y_axis: str,
    levels: Sequence[tuple[str, float]] = (),
    log_x: bool = False,
    from_zero: bool = True,
) -> Chart:
    """Draw lines.

    Args:
        id_: Identifier of the chart, unique on the page.
        title: What the chart shows.
        description: The chart in words, for readers who do not see it.
        series: The lines.
        x_axis: Quantity and unit of x.
        y_axis: Quantity and unit of y.
        levels: (name, y) of horizontal dashed lines.
        log_x: Use a logarithmic axis for x, with marks at powers of two.
        from_zero: Start the vertical axis at 0, and not below the least value.
    """
    points = [point for one in series for point in one.points]
    first, last = min(x for x, _ in points), max(x for x, _ in points)

    def draw(width: float) -> tuple[float, list[Shape]]:
        narrow = width <= NARROW
        left, right, bottom = 34.0, width - 14, _TOP + _PLOT_HEIGHT
        values = [y for _, y in points] + [y for _, y in levels]
        steps = ticks(max(values)) if from_zero else nice_range(min(values), max(values))
        shapes, y_scale = _y_axis(steps, left, right, y_axis)
        if log_x:
            x_scale = Logarithmic(first, last, left + 12, right - 12)
            marks = [first, *(power for power in powers_of_two(first, last) if power > 1.5 * first)]
            marks = marks[::-1][::2][::-1] if narrow else marks  # every other one, and always the last
        else:
            marks = ticks(last, 3 if narrow else 6)
            x_scale = Linear(marks[-1], left, right)
        for x in marks:
            shapes.append(line(x_scale(x), bottom, x_scale(x), bottom + 5, "axis"))
            shapes.append(label(x_scale(x), bottom + 19, f"{x:,}", "small", "middle"))
        shapes.append(label((left + right) / 2, bottom + 39, x_axis, "small", "middle"))
        for name, y in levels:
            shapes.append(path([(left, y_scale(y)), (right, y_scale(y))], "line s7 dashed"))
            shapes.append(label(right, y_scale(y) - 6, f"{name}: {y:.2f}", "small", "end"))
        for one in series:
            positions = [(x_scale(x), y_scale(y)) for x, y in one.points]
            if len(positions) > 1:
                shapes.append(path(positions, f"line s{one.colour}" + (" dashed" if one.dashed else "")))
            if one.has_dots or len(positions) == 1:
                for (x, y), (cx, cy) in zip(one.points, positions, strict=True):
                    tooltip = f"{one.name}, {x:,}: {y:.2f} {y_axis}"
                    attributes = {"cx": round(cx, 2), "cy": round(cy, 2), "r": 4.0}
                    shapes.append(
                        Shape("circle", {**attributes, "class": f"f{one.colour} gap"}, tooltip=tooltip)
                    )
        return bottom + 45, shapes

    return Chart(id_, title, description, drawings(draw), [(f"f{one.colour}", one.name) for one in series])


def _y_axis(steps: Sequence[float], left: float, right: float, name: str) -> tuple[list[Shape], Linear]:
    """Draw the vertical axis with its grid, and return the scale of the plot area."""
    scale = Linear(steps[-1], _TOP + _PLOT_HEIGHT, _TOP, steps[0])
    shapes = [label(0, _TOP - 12, name, "small")]
    for step in steps:
        y = scale(step)
        shapes.append(line(left, y, right, y, "axis" if step == steps[0] else "grid"))
        shapes.append(label(left - 7, y + 4, f"{step:g}", "small", "end"))
    return shapes, scale
