"""A chart as an SVG document of its own, with the colours of the report's style sheet."""

from __future__ import annotations

import re
from importlib import resources
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape, quoteattr

if TYPE_CHECKING:
    from bytemill.report.charts import Chart, Shape

_OF_CHARTS = re.compile(r"\s*(svg \.|svg text|\.[fs]\d|\.line|\.dashed)")
_LEGEND_HEIGHT, _LEGEND_ENTRY = 26.0, 20.0


def chart_svg(chart: Chart) -> str:
    """Return a chart, drawn for a screen, as an SVG document in the colours of a light page, with its legend.

    Args:
        chart: The chart.
    """
    drawing = next(own for own in chart.drawings if own.name == "wide")
    lines: list[str] = []
    x = 0.0
    for css_class, meaning in chart.legend:
        lines.append(f'<rect x="{x:.0f}" y="4" width="10" height="10" rx="2" class="{css_class}"/>')
        lines.append(f'<text x="{x + 15:.0f}" y="13" class="small">{escape(meaning)}</text>')
        x += _LEGEND_ENTRY + 7.0 * len(meaning) + 8
    top = _LEGEND_HEIGHT if chart.legend else 0.0
    height = drawing.height + top
    shapes = "\n".join(_element(shape) for shape in drawing.shapes)
    legend = "\n".join(lines)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-8 -8 {drawing.width + 16:.0f} {height + 16:.0f}" '
        f'width="{drawing.width + 16:.0f}" height="{height + 16:.0f}" role="img">\n'
        f"<title>{escape(chart.title)}</title>\n<desc>{escape(chart.description)}</desc>\n"
        f"<style>{_style()}</style>\n"
        f'<rect x="-8" y="-8" width="100%" height="100%" fill="var(--card)"/>\n'
        f'{legend}\n<g transform="translate(0 {top:.0f})">\n{shapes}\n</g>\n</svg>\n'
    )


def _element(shape: Shape) -> str:
    attributes = " ".join(
        f"{name}={quoteattr(str(value))}" for name, value in shape.attributes.items() if value is not None
    )
    tooltip = f"<title>{escape(shape.tooltip)}</title>" if shape.tooltip else ""
    return f"<{shape.element} {attributes}>{tooltip}{escape(shape.text)}</{shape.element}>"


def _style() -> str:
    """Return the rules of the style sheet that charts need."""
    sheet = resources.files("bytemill.report").joinpath("templates/style.css").read_text(encoding="utf-8")
    variables = re.search(r":root\s*\{([^}]*)\}", sheet)
    rules = [rule for rule in re.findall(r"[^{}]+\{[^{}]*\}", sheet) if _OF_CHARTS.match(rule)]
    root = "" if variables is None else f"svg {{{variables.group(1)} font-family: var(--sans); }}"
    return "\n".join([root, *(rule.strip() for rule in rules)])
