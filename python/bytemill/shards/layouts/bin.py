"""`.bin` files without a header: ids and nothing else, as nanoGPT reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bytemill.shards.layouts.files import FileFacts, known_dtype, map_array, n_items_of
from bytemill.shards.layouts.plain import PlainLayout

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray


class BinLayout(PlainLayout):
    """The ids alone.

    nanoGPT maps uint16; ids of a larger vocabulary are written as uint32, which its forks for such vocabularies map.
    Nothing in the file tells which it is.
    """

    name = "bin"
    suffix = ".bin"

    def inspect(self, path: Path, dtype: str | None = None) -> FileFacts:
        """As many ids as the file's size holds."""
        dtype = known_dtype(path, dtype)
        return FileFacts(dtype, n_items_of(path, dtype))

    def open(self, path: Path, dtype: str, n_tokens: int) -> NDArray[Any]:
        """Mapped from the disk."""
        return map_array(path, dtype, n_tokens)
