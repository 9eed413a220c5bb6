"""HTML reports: self-contained pages with charts, tables and token views, rendered from Jinja templates."""

from bytemill.report.charts import Bar, Chart, Series, bar_chart, column_chart, line_chart, parts_chart
from bytemill.report.render import Figure, Table, render

__all__ = [
    "Bar",
    "Chart",
    "Figure",
    "Series",
    "Table",
    "bar_chart",
    "column_chart",
    "line_chart",
    "parts_chart",
    "render",
]
