"""Base class of layouts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from bytemill.errors import ShardError
from bytemill.shards.layouts.files import FileSummary, map_array

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from bytemill.shards.layouts.files import Dtype


class PlainLayout(ABC):
    """Ids of the narrowest type, without a header or sidecar files. See `Layout` for the methods.

    A subclass has a `name`, a `suffix` and at least the method `inspect`.
    """

    name: str
    suffix: str

    sidecar_suffixes: tuple[str, ...] = ()
    separator_in_front = False
    whole_documents = False

    def dtype(self, narrowest: Dtype) -> Dtype:
        """Return the narrowest type."""
        return narrowest

    def header(self, dtype: Dtype, n_tokens: int) -> bytes:
        """Return an empty header."""
        del dtype, n_tokens
        return b""

    def sidecars(
        self, dtype: Dtype, document_ends: NDArray[np.uint64], fingerprint: str
    ) -> list[tuple[str, bytes]]:
        """Return no files."""
        del dtype, document_ends, fingerprint
        return []

    @abstractmethod
    def inspect(self, path: Path, dtype: str | None = None) -> FileSummary:
        """See `Layout`."""

    def open(self, path: Path, dtype: str, n_tokens: int) -> NDArray[Any]:
        """Map the ids that `inspect` finds."""
        summary = self.inspect(path, dtype)
        if summary.n_tokens != n_tokens:
            raise ShardError(f"{path.name} holds {summary.n_tokens:,} tokens, not {n_tokens:,}")
        return map_array(path, dtype, n_tokens, summary.offset)

    def document_ends(self, path: Path, dtype: str, n_tokens: int) -> NDArray[np.uint64] | None:
        """Return None: the ends are unknown."""
        del path, dtype, n_tokens
        return None
