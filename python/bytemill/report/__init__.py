"""HTML reports: self-contained pages with charts, tables and token views, rendered from Jinja templates."""

from bytemill.report.charts import (
    Chart,
    Interval,
    Series,
    heat_map,
    interval_chart,
    line_chart,
)
from bytemill.report.rendering import Figure, Table, render

__all__ = [
    "Chart",
    "Figure",
    "Interval",
    "Series",
    "Table",
    "heat_map",
    "interval_chart",
    "line_chart",
    "render",
]
