"""Charts as SVG shapes: bars, values with intervals, lines, grouped columns, and one bar in parts.

Each chart is drawn twice, for a screen and for a phone, so that text keeps its size. The page shows one of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bytemill.report.scale import Linear, Logarithmic, nice_range, powers_of_two, text_width, ticks
from bytemill.report.shapes import NARROW, Chart, Shape, box, drawings, label, line, path

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_ROW_HEIGHT, _BAR_HEIGHT = 34, 22
_TOP, _PLOT_HEIGHT = 24.0, 250.0


@dataclass(frozen=True)
class Bar:
    """One bar of a bar chart, or one part of a whole."""

    label: str
    value: float
    shown: str
    """The value as text."""
    css_class: str = "f1"


@dataclass(frozen=True)
class Series:
    """A line, or the columns of one colour."""

    name: str
    colour: int
    """1 to 7, as in the style sheet."""
    points: Sequence[tuple[float, float]]
    """(x, y); columns ignore x."""
    dashed: bool = False
    has_dots: bool = True
    """Mark each point of a line and give it a tooltip."""


def bar_chart(id_: str, title: str, bars: Sequence[Bar], axis: str) -> Chart:
    """Draw horizontal bars from 0.

    Args:
        id_: Identifier of the chart, unique on the page.
        title: What the chart shows.
        bars: The bars, from top to bottom.
        axis: Quantity and unit of the values.
    """

    def draw(width: float) -> tuple[float, list[Shape]]:
        narrow = width <= NARROW
        left = 2.0 if narrow else 14 + max(text_width(bar.label) for bar in bars)
        right = width - 12 - max(text_width(bar.shown, 14) for bar in bars)  # bold
        row_height = _ROW_HEIGHT + 18 if narrow else _ROW_HEIGHT
        bottom = row_height * len(bars) + 6
        steps = ticks(max(bar.value for bar in bars), 4 if narrow else 6)
        scale = Linear(steps[-1], left, right)
        shapes = [line(scale(x), 0, scale(x), bottom, "axis" if x == 0 else "grid") for x in steps]
        for row, bar in enumerate(bars):
            top = row * row_height + (24 if narrow else (row_height - _BAR_HEIGHT) / 2)
            middle, end = top + _BAR_HEIGHT / 2 + 4.5, scale(bar.value)
            tooltip = f"{bar.label}, {axis}: {bar.shown}"
            shapes += [
                box(left, top, end - left, _BAR_HEIGHT, bar.css_class, tooltip),
                label(end + 7, middle, bar.shown, "strong"),
                label(left + 4, top - 6, bar.label)
                if narrow
                else label(left - 10, middle, bar.label, anchor="end"),
            ]
        shapes += [label(scale(x), bottom + 17, f"{x:g}", "small", "middle") for x in steps]
        shapes.append(label((left + right) / 2, bottom + 36, axis, "small", "middle"))
        return bottom + 42, shapes

    described = "; ".join(f"{bar.label} {bar.shown}" for bar in bars)
    return Chart(id_, title, f"Horizontal bars, {axis}: {described}.", drawings(draw))


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
        shapes, y_scale = _y_axis(steps, left, right, y_axis, lambda y: f"{y:g}")
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


def column_chart(
    id_: str,
    title: str,
    description: str,
    names: Sequence[str],
    series: Sequence[tuple[str, int, Sequence[float]]],
    *,
    x_axis: str,
    y_axis: str,
) -> Chart:
    """Draw grouped columns of shares, from 0 to 1, labelled in per cent.

    Args:
        id_: Identifier of the chart, unique on the page.
        title: What the chart shows.
        description: The chart in words, for readers who do not see it.
        names: Labels of the groups.
        series: (name, colour, share per group) of the columns side by side.
        x_axis: Quantity that the names measure.
        y_axis: Quantity that the shares measure.
    """

    def draw(width: float) -> tuple[float, list[Shape]]:
        left, right, bottom = 44.0, width - 2, _TOP + _PLOT_HEIGHT
        highest = max(share for _, _, shares in series for share in shares)
        shapes, y_scale = _y_axis(ticks(highest), left, right, y_axis, lambda y: f"{y * 100:g} %")
        group_width = (right - left) / len(names)
        column_width = group_width * 0.76 / len(series)
        for group, name in enumerate(names):
            start = left + group_width * (group + 0.12)
            for column, (name_, colour, shares) in enumerate(series):
                share = shares[group]
                tooltip = f"{name} {x_axis}: {share * 100:.1f} %, {name_}"
                x, y = start + column * column_width, y_scale(share)
                shapes.append(box(x, y, column_width, bottom - y, f"f{colour}", tooltip, radius=1))
            # A phone has room for every other name, and always for the last.
            if width > NARROW or (len(names) - 1 - group) % 2 == 0:
                middle = left + group_width * (group + 0.5)
                shapes.append(label(middle, bottom + 17, name, "small", "middle"))
        shapes.append(line(left, bottom, right, bottom, "axis"))
        shapes.append(label((left + right) / 2, bottom + 37, x_axis, "small", "middle"))
        return bottom + 43, shapes

    legend = [(f"f{colour}", name) for name, colour, _ in series]
    return Chart(id_, title, description, drawings(draw), legend)


def parts_chart(id_: str, title: str, parts: Sequence[Bar]) -> Chart:
    """Draw one bar in parts that add up to the whole, with a legend.

    Args:
        id_: Identifier of the chart, unique on the page.
        title: What the chart shows.
        parts: The parts, from left to right.
    """
    meanings = [f"{part.label}: {part.shown}" for part in parts]

    def draw(width: float) -> tuple[float, list[Shape]]:
        scale = Linear(sum(part.value for part in parts), 0, width)
        shapes: list[Shape] = []
        before = 0.0
        for part, tooltip in zip(parts, meanings, strict=True):
            css_class = f"{part.css_class} gap"
            shapes.append(box(scale(before), 0, scale(part.value), 40, css_class, tooltip, radius=0))
            before += part.value
        return 40, shapes

    legend = [(part.css_class, meaning) for part, meaning in zip(parts, meanings, strict=True)]
    return Chart(id_, title, f"One bar in parts: {'; '.join(meanings)}.", drawings(draw), legend)


def _y_axis(
    steps: Sequence[float], left: float, right: float, name: str, shown: Callable[[float], str]
) -> tuple[list[Shape], Linear]:
    """Draw the vertical axis with its grid, and return the scale of the plot area."""
    scale = Linear(steps[-1], _TOP + _PLOT_HEIGHT, _TOP, steps[0])
    shapes = [label(0, _TOP - 12, name, "small")]
    for step in steps:
        y = scale(step)
        shapes.append(line(left, y, right, y, "axis" if step == steps[0] else "grid"))
        shapes.append(label(left - 7, y + 4, shown(step), "small", "end"))
    return shapes, scale
