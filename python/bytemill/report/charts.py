"""Charts: bars, lines, columns side by side, and one bar in parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bytemill.report.scale import Linear, Logarithmic, powers_of_two, text_width, ticks
from bytemill.report.svg import NARROW, Caption, both_widths, box, dot, label, line, path

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bytemill.report.markup import Markup

_ROW, _THICK = 34, 22
_PLOT_HEIGHT = 240


@dataclass(frozen=True)
class Bar:
    """One bar of a bar chart."""

    label: str
    value: float
    shown: str
    """The value as it is written at the end of the bar."""
    colour: str = "f1"


@dataclass(frozen=True)
class Series:
    """Values that belong together."""

    name: str
    colour: int
    """1 to 7, as in the style sheet."""
    values: Sequence[float]
    dashed: bool = False


def bar_chart(caption: Caption, bars: Sequence[Bar], axis: str) -> Markup:
    """Horizontal bars from 0, with a common axis; `axis` says what it measures, with the unit."""

    def draw(width: float) -> tuple[float, list[Markup]]:
        narrow = width <= NARROW
        left = 2.0 if narrow else 14 + max(text_width(bar.label) for bar in bars)
        right = width - 12 - max(text_width(bar.shown) for bar in bars)
        row = _ROW + 18 if narrow else _ROW
        bottom = row * len(bars) + 6
        steps = ticks(max(bar.value for bar in bars), 4 if narrow else 6)
        place = Linear(steps[-1], left, right)
        shapes = [
            line(place(step), 0, place(step), bottom, "axis" if step == 0 else "grid") for step in steps
        ]
        for number, bar in enumerate(bars):
            top = number * row + (24 if narrow else (row - _THICK) / 2)
            middle = top + _THICK / 2 + 4.5
            end = place(bar.value)
            shapes.append(
                box(
                    left, top, end - left, _THICK, class_=bar.colour, about=f"{bar.label}: {bar.shown} {axis}"
                )
            )
            shapes.append(label(end + 7, middle, bar.shown, class_="strong"))
            shapes.append(
                label(left + 4, top - 6, bar.label)
                if narrow
                else label(left - 10, middle, bar.label, anchor="end")
            )
        shapes += [
            label(place(step), bottom + 17, f"{step:g}", anchor="middle", class_="small") for step in steps
        ]
        shapes.append(label((left + right) / 2, bottom + 36, axis, anchor="middle", class_="small"))
        return bottom + 42, shapes

    return both_widths(caption, draw)


def line_chart(
    caption: Caption, x: Sequence[int], series: Sequence[Series], x_axis: str, y_axis: str
) -> Markup:
    """Lines over a logarithmic axis of counts; the values' axis begins at 0."""

    def draw(width: float) -> tuple[float, list[Markup]]:
        left, right, top, bottom = 34.0, width - 14, 24.0, 24.0 + _PLOT_HEIGHT
        steps = ticks(max(value for one in series for value in one.values))
        up = Linear(steps[-1], bottom, top)
        across = Logarithmic(x[0], x[-1], left + 12, right - 12)
        shapes = _values_axis(up, steps, left, right, name=y_axis, shown=lambda step: f"{step:g}")
        marks = [x[0], *(power for power in powers_of_two(x[0], x[-1]) if power > 1.5 * x[0])]
        if width <= NARROW:
            marks = marks[::-1][::2][::-1]  # every other one, the last among them
        for mark in marks:
            shapes.append(line(across(mark), bottom, across(mark), bottom + 5, "axis"))
            shapes.append(label(across(mark), bottom + 19, f"{mark:,}", anchor="middle", class_="small"))
        shapes.append(label((left + right) / 2, bottom + 39, x_axis, anchor="middle", class_="small"))
        for one in series:
            points = [(across(size), up(value)) for size, value in zip(x, one.values, strict=True)]
            shapes.append(path(points, f"line s{one.colour}" + (" dashed" if one.dashed else "")))
            shapes += [
                dot(*point, f"f{one.colour} gap", f"{one.name}, {size:,}: {value:.2f} {y_axis}")
                for point, size, value in zip(points, x, one.values, strict=True)
            ]
        return bottom + 45, shapes

    return both_widths(caption, draw)


def column_chart(
    caption: Caption, names: Sequence[str], series: Sequence[Series], x_axis: str, y_axis: str
) -> Markup:
    """Columns side by side for each name; the values are shares of 1, written as per cent."""

    def draw(width: float) -> tuple[float, list[Markup]]:
        left, right, top, bottom = 44.0, width - 2, 24.0, 24.0 + _PLOT_HEIGHT
        steps = ticks(max(value for one in series for value in one.values))
        up = Linear(steps[-1], bottom, top)
        shapes = _values_axis(up, steps, left, right, name=y_axis, shown=lambda step: f"{step * 100:g} %")
        group = (right - left) / len(names)
        thick = group * 0.76 / len(series)
        for place, name in enumerate(names):
            start = left + group * (place + 0.12)
            for number, one in enumerate(series):
                value = one.values[place]
                about = f"{name} {x_axis}: {value * 100:.1f} % {one.name}"
                shapes.append(
                    box(
                        start + number * thick,
                        up(value),
                        thick,
                        bottom - up(value),
                        class_=f"f{one.colour}",
                        about=about,
                        radius=1,
                    )
                )
            # On a phone there is room for every other name; the last, often the longest, is one of them.
            if width > NARROW or (len(names) - 1 - place) % 2 == 0:
                middle = left + group * (place + 0.5)
                shapes.append(label(middle, bottom + 17, name, anchor="middle", class_="small"))
        shapes.append(line(left, bottom, right, bottom, "axis"))
        shapes.append(label((left + right) / 2, bottom + 37, x_axis, anchor="middle", class_="small"))
        return bottom + 43, shapes

    return both_widths(caption, draw)


def parts_chart(caption: Caption, parts: Sequence[Bar]) -> Markup:
    """One bar in parts that add up to the whole; a legend below says what they are."""
    whole = sum(part.value for part in parts)

    def draw(width: float) -> tuple[float, list[Markup]]:
        place = Linear(whole, 0, width)
        shapes: list[Markup] = []
        before = 0.0
        for part in parts:
            start, end = place(before), place(before + part.value)
            about = f"{part.label}: {part.shown}"
            shapes.append(box(start, 0, end - start, 40, class_=f"{part.colour} gap", about=about, radius=0))
            before += part.value
        return 40, shapes

    return both_widths(caption, draw)


def _values_axis(
    up: Linear, steps: Sequence[float], left: float, right: float, *, name: str, shown: Callable[[float], str]
) -> list[Markup]:
    """The vertical axis: a line across for each step, its value, and above all what is measured."""
    shapes = [label(0, up(steps[-1]) - 12, name, class_="small")]
    for step in steps:
        shapes.append(line(left, up(step), right, up(step), "axis" if step == 0 else "grid"))
        shapes.append(label(left - 7, up(step) + 4, shown(step), anchor="end", class_="small"))
    return shapes
