"""File layouts of token shards."""

from bytemill.shards.layouts.base import LAYOUTS, Layout, layout_named, register_layout
from bytemill.shards.layouts.files import Dtype, FileSummary
from bytemill.shards.layouts.plain import PlainLayout

__all__ = ["LAYOUTS", "Dtype", "FileSummary", "Layout", "PlainLayout", "layout_named", "register_layout"]
