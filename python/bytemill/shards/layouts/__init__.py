"""The files that token ids can be laid out in."""

from bytemill.shards.layouts.base import LAYOUTS, Layout, layout_named

__all__ = ["LAYOUTS", "Layout", "layout_named"]
