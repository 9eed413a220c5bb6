"""Pages that show results: one file of HTML with charts in it, which needs nothing from elsewhere."""

from bytemill.report.markup import Markup, tag
from bytemill.report.page import page

__all__ = ["Markup", "page", "tag"]
