"""What a layout is, and which there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

from bytemill.errors import ShardError
from bytemill.shards.layouts.npy import NpyLayout

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

Dtype = Literal["uint16", "uint32"]


class Layout(Protocol):
    """How a shard's ids lie in its file: a header of fixed size, the ids one after another, little-endian; and what
    stands beside it."""

    @property
    def name(self) -> str:
        """As it is asked for: `--layout NAME`."""
        ...

    @property
    def suffix(self) -> str:
        """Of a shard's file, with its dot."""
        ...

    @property
    def separator_in_front(self) -> bool:
        """True where readers expect the separator before each document, and not behind it."""
        ...

    @property
    def whole_documents(self) -> bool:
        """True where no document goes on in another shard: a shard ends with the document that fills it."""
        ...

    def dtype(self, narrowest: Dtype) -> str:
        """The dtype of the ids on disk (numpy's name), given the narrowest that holds all ids of the vocabulary.

        Raises `ShardError` where the layout cannot hold them.
        """
        ...

    def header(self, dtype: str, n_tokens: int) -> bytes:
        """What stands before the ids; its size depends on neither argument. Raises `ShardError` for too many tokens."""
        ...

    def companions(self, dtype: str, document_ends: NDArray[np.uint64]) -> Sequence[tuple[str, bytes]]:
        """Files beside a shard, as (suffix, content), given where its documents end, in tokens from its beginning.

        A document that goes on in the next shard ends with this one.
        """
        ...

    def open(self, path: Path, dtype: str, n_tokens: int) -> NDArray[np.uint16] | NDArray[np.uint32]:
        """The ids of a shard as a read-only array mapped from the disk.

        Raises `ShardError` where the file is not of this layout, dtype and number of tokens.
        """
        ...


LAYOUTS: dict[str, Layout] = {layout.name: layout for layout in (NpyLayout(),)}
"""All layouts by name."""


def layout_named(name: str) -> Layout:
    """The layout of this name. Raises `ShardError` where there is none."""
    if name not in LAYOUTS:
        raise ShardError(f"there is no layout {name!r}", hint=f"there are {', '.join(LAYOUTS)}")
    return LAYOUTS[name]
