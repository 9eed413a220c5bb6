"""File layouts of token shards."""

from bytemill.shards.layouts.base import LAYOUTS, Layout, layout_named, register_layout
from bytemill.shards.layouts.files import Dtype, FileFacts
from bytemill.shards.layouts.plain import PlainLayout

__all__ = ["LAYOUTS", "Dtype", "FileFacts", "Layout", "PlainLayout", "layout_named", "register_layout"]
