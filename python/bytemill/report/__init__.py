"""HTML reports: self-contained pages with charts, tables and token views, rendered from Jinja templates."""

from bytemill.report.charts import (
    Bar,
    Interval,
    Series,
    bar_chart,
    column_chart,
    heat_map,
    interval_chart,
    line_chart,
    parts_chart,
)
from bytemill.report.rendering import Figure, Table, render
from bytemill.report.shapes import Chart

__all__ = [
    "Bar",
    "Chart",
    "Figure",
    "Interval",
    "Series",
    "Table",
    "bar_chart",
    "column_chart",
    "heat_map",
    "interval_chart",
    "line_chart",
    "parts_chart",
    "render",
]
