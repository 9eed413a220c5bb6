"""Layout `bin`: headerless `.bin` files, as nanoGPT reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bytemill.shards.layouts.files import FileSummary, known_dtype, n_items_of
from bytemill.shards.layouts.plain import PlainLayout

if TYPE_CHECKING:
    from pathlib import Path


class BinLayout(PlainLayout):
    """Ids without a header.

    nanoGPT reads uint16. Ids of larger vocabularies are written as uint32, which its forks read. The file does not
    store the type.
    """

    name = "bin"
    suffix = ".bin"

    def inspect(self, path: Path, dtype: str | None = None) -> FileSummary:
        """Derive the number of ids from the file size."""
        dtype = known_dtype(path, dtype)
        return FileSummary(dtype, n_items_of(path, dtype))
