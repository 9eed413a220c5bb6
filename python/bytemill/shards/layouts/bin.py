"""`.bin` files without a header: ids and nothing else, as nanoGPT reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bytemill.shards.layouts.files import FileFacts, known_dtype, map_array, n_items_of

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from bytemill.shards.layouts.files import Dtype


class BinLayout:
    """The ids alone.

    nanoGPT maps uint16; ids of a larger vocabulary are written as uint32, which its forks for such vocabularies map.
    Nothing in the file tells which it is.
    """

    name = "bin"
    suffix = ".bin"
    companion_suffixes: tuple[str, ...] = ()
    separator_in_front = False
    whole_documents = False

    def dtype(self, narrowest: Dtype) -> Dtype:
        """As narrow as can be."""
        return narrowest

    def header(self, dtype: Dtype, n_tokens: int) -> bytes:
        """None."""
        del dtype, n_tokens
        return b""

    def companions(
        self, dtype: Dtype, document_ends: NDArray[np.uint64], fingerprint: str
    ) -> list[tuple[str, bytes]]:
        """None."""
        del dtype, document_ends, fingerprint
        return []

    def inspect(self, path: Path, dtype: str | None = None) -> FileFacts:
        """As many ids as the file's size holds."""
        dtype = known_dtype(path, dtype)
        return FileFacts(dtype, n_items_of(path, dtype))

    def open(self, path: Path, dtype: str, n_tokens: int) -> NDArray[Any]:
        """Mapped from the disk."""
        return map_array(path, dtype, n_tokens)

    def document_ends(self, path: Path, dtype: str, n_tokens: int) -> NDArray[np.uint64] | None:
        """Unknown."""
        del path, dtype, n_tokens
        return None
