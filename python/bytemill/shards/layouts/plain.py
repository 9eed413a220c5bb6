"""What most layouts have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from bytemill.shards.layouts.files import Dtype


class PlainLayout:
    """Ids as narrow as can be, behind no header, with no file beside them that tells where documents end.

    See `Layout` for what the methods give.
    """

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

    def document_ends(self, path: Path, dtype: str, n_tokens: int) -> NDArray[np.uint64] | None:
        """Unknown."""
        del path, dtype, n_tokens
        return None
