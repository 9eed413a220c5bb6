"""Charts of points with fitted curves and their bands, on linear or logarithmic axes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bytemill.report.charts import (
    NARROW,
    Chart,
    Linear,
    Logarithmic,
    Shape,
    drawings,
    label,
    line,
    nice_range,
    path,
    text_width,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_TOP, _PLOT_HEIGHT = 24.0, 280.0
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_UNITS = ((1e9, "B"), (1e6, "M"), (1e3, "k"))


@dataclass(frozen=True)
class Cloud:
    """Points, and a curve with its band."""

    name: str
    colour: int
    """1 to 7, as in the style sheet."""
    points: Sequence[tuple[float, float]] = ()
    """(x, y) of dots."""
    curve: Sequence[tuple[float, float]] = ()
    """(x, y) of a line."""
    band: Sequence[tuple[float, float, float]] = ()
    """(x, low, high) of the area around the line."""
    bars: Sequence[tuple[float, float, float]] = ()
    """(x, low, high) of vertical intervals."""
    marks: Sequence[tuple[float, float]] = field(default_factory=tuple)
    """(x, y) of large rings."""
    dashed: bool = False


def short_number(value: float) -> str:
    """Return a round number in few characters.

    >>> [short_number(value) for value in (512, 2e5, 1.5e6, 3e10, 0.02)]
    ['512', '200k', '1.5M', '3·10¹⁰', '0.02']
    """
    if abs(value) >= 1e10:
        exponent = math.floor(math.log10(abs(value)) + 1e-9)
        factor = f"{value / 10**exponent:.3g}"
        power = f"10{str(exponent).translate(_SUPERSCRIPTS)}"
        return power if factor == "1" else f"{factor}·{power}"
    for unit, name in _UNITS:
        if abs(value) >= unit:
            return f"{value / unit:.3g}{name}"
    return f"{value:.4g}"


def log_ticks(low: float, high: float, n_wanted: int = 6) -> list[float]:
    """Return round numbers of a logarithmic axis: 1, 2, 5 and 10 times powers of ten, or fewer of them.

    >>> [float(f"{value:g}") for value in log_ticks(30, 700)], log_ticks(1e3, 1e9, 4)
    ([50.0, 100.0, 200.0, 500.0], [1000.0, 100000.0, 10000000.0, 1000000000.0])
    """
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    found: list[float] = []
    for factors, step in (((1, 2, 5), 1), ((1, 3), 1), ((1,), 1), ((1,), 2), ((1,), 3), ((1,), 5)):
        found = [
            factor * 10.0**decade
            for decade in decades
            if (decade - decades[0]) % step == 0
            for factor in factors
            if low * 0.999 <= factor * 10.0**decade <= high * 1.001
        ]
        if len(found) <= n_wanted:
            break
    return found if len(found) > 1 else [low, high]


def scatter_chart(
    id_: str,
    title: str,
    description: str,
    clouds: Sequence[Cloud],
    *,
    x_axis: str,
    y_axis: str,
    log_y: bool = False,
    zero: bool = False,
) -> Chart:
    """Draw points, curves, bands and intervals; x is logarithmic.

    Args:
        id_: Identifier of the chart, unique on the page.
        title: What the chart shows.
        description: The chart in words, for readers who do not see it.
        clouds: What is drawn.
        x_axis: Quantity and unit of x, all values of which are above 0.
        y_axis: Quantity and unit of y.
        log_y: Use a logarithmic axis for y too.
        zero: Draw a line at y = 0.
    """
    xs = [x for own in clouds for x in _xs(own)]
    ys = [y for own in clouds for y in _ys(own)]
    left_x, right_x = min(xs), max(xs)
    if right_x <= left_x:
        left_x, right_x = left_x / 2, right_x * 2

    def draw(width: float) -> tuple[float, list[Shape]]:
        narrow = width <= NARROW
        bottom = _TOP + _PLOT_HEIGHT
        if log_y:
            low, high = min(ys) / 1.1, max(ys) * 1.1
            steps, tops = log_ticks(low, high), (low, high)
        else:
            steps = nice_range(min(ys), max(ys))
            tops = (steps[0], steps[-1])
        names = [short_number(step) for step in steps]
        left = 10 + max(text_width(name, 12) for name in names)
        right = width - 14
        y_of: Callable[[float], float] = (
            Logarithmic(*tops, bottom, _TOP) if log_y else Linear(tops[1], bottom, _TOP, tops[0])
        )
        x_of = Logarithmic(left_x, right_x, left + 12, right - 12)
        shapes = [label(0, _TOP - 12, y_axis, "small"), line(left, bottom, right, bottom, "axis")]
        for step, name in zip(steps, names, strict=True):
            shapes.append(line(left, y_of(step), right, y_of(step), "grid"))
            shapes.append(label(left - 6, y_of(step) + 4, name, "small", "end"))
        for x in log_ticks(left_x, right_x, 4 if narrow else 8):
            shapes.append(line(x_of(x), bottom, x_of(x), bottom + 5, "axis"))
            shapes.append(label(x_of(x), bottom + 19, short_number(x), "small", "middle"))
        shapes.append(label((left + right) / 2, bottom + 39, x_axis, "small", "middle"))
        if zero and tops[0] < 0 < tops[1]:
            shapes.append(line(left, y_of(0), right, y_of(0), "axis"))

        def at(x: float, y: float) -> tuple[float, float]:
            return x_of(x), y_of(y)

        for own in clouds:
            shapes += _areas(own, at)
        for own in clouds:
            shapes += _lines(own, at)
            shapes += _dots(own, at, y_axis)
        return bottom + 45, shapes

    return Chart(id_, title, description, drawings(draw), [(f"f{own.colour}", own.name) for own in clouds])


def _xs(own: Cloud) -> list[float]:
    return [each[0] for each in (*own.points, *own.curve, *own.band, *own.bars, *own.marks)]


def _ys(own: Cloud) -> list[float]:
    single = [y for _, y in (*own.points, *own.curve, *own.marks)]
    return single + [y for _, low, high in (*own.band, *own.bars) for y in (low, high)]


def _areas(own: Cloud, at: Callable[[float, float], tuple[float, float]]) -> list[Shape]:
    if not own.band:
        return []
    edge = [at(x, low) for x, low, _ in own.band] + [at(x, high) for x, _, high in reversed(own.band)]
    area = path(edge, f"f{own.colour}")
    area.attributes["opacity"] = 0.16
    return [area]


def _lines(own: Cloud, at: Callable[[float, float], tuple[float, float]]) -> list[Shape]:
    shapes: list[Shape] = []
    if own.curve:
        style = f"line s{own.colour}" + (" dashed" if own.dashed else "")
        shapes.append(path([at(x, y) for x, y in own.curve], style))
    for x, low, high in own.bars:
        shapes.append(path([at(x, low), at(x, high)], f"line s{own.colour}"))
    return shapes


def _dots(own: Cloud, at: Callable[[float, float], tuple[float, float]], axis: str) -> list[Shape]:
    shapes: list[Shape] = []
    for points, radius in ((own.points, 4.0), (own.marks, 7.0)):
        for x, y in points:
            cx, cy = at(x, y)
            style = f"f{own.colour} gap" if radius < 5 else f"line s{own.colour}"
            position = {"cx": round(cx, 2), "cy": round(cy, 2), "r": radius}
            position = {"cx": round(cx, 2), "cy": round(cy, 2), "r": radius}
            attributes: dict[str, str | float | None] = {**position, "class": style}
            shapes.append(
                Shape("circle", attributes, tooltip=f"{own.name}, {short_number(x)}: {y:.4g} {axis}")
            )
    return shapes
