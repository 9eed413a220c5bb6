"""The files that token ids can be laid out in."""

from bytemill.shards.layouts.base import LAYOUTS, Layout, layout_named
from bytemill.shards.layouts.files import Dtype, FileFacts

__all__ = ["LAYOUTS", "Dtype", "FileFacts", "Layout", "layout_named"]
