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
from bytemill.report.scatter import Cloud, scatter_chart

__all__ = [
    "Chart",
    "Cloud",
    "Figure",
    "Interval",
    "Series",
    "Table",
    "heat_map",
    "interval_chart",
    "line_chart",
    "render",
    "scatter_chart",
]
