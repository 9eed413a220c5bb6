"""What a layout is, and which there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from bytemill.errors import ShardError
from bytemill.shards.layouts.bin import BinLayout
from bytemill.shards.layouts.datatrove import DatatroveLayout
from bytemill.shards.layouts.llmc import LlmcLayout
from bytemill.shards.layouts.megatron import MegatronLayout
from bytemill.shards.layouts.npy import NpyLayout

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Any

    import numpy as np
    from numpy.typing import NDArray

    from bytemill.shards.layouts.files import Dtype, FileFacts


class Layout(Protocol):
    """How a shard's ids lie in its file: a header of fixed size, the ids one after another, little-endian; and what
    stands beside it.

    Every method that reads raises `ShardError`, and nothing else, for a file that is damaged or of another kind.
    """

    @property
    def name(self) -> str:
        """As it is asked for: `--layout NAME`."""
        ...

    @property
    def suffix(self) -> str:
        """Of a shard's file, with its dot."""
        ...

    @property
    def companion_suffixes(self) -> tuple[str, ...]:
        """Of the files beside a shard: each stands in the place of `suffix`."""
        ...

    @property
    def separator_in_front(self) -> bool:
        """True where readers expect the separator before each document, and not behind it."""
        ...

    @property
    def whole_documents(self) -> bool:
        """True where no document goes on in another shard: a shard ends with the document that fills it."""
        ...

    def dtype(self, narrowest: Dtype) -> Dtype:
        """The dtype of the ids on disk, given the narrowest that holds all ids of the vocabulary.

        Raises `ShardError` where the layout cannot hold them.
        """
        ...

    def header(self, dtype: Dtype, n_tokens: int) -> bytes:
        """What stands before the ids; its size depends on neither argument. Raises `ShardError` for too many tokens."""
        ...

    def companions(
        self, dtype: Dtype, document_ends: NDArray[np.uint64], fingerprint: str
    ) -> Sequence[tuple[str, bytes]]:
        """Files beside a shard, as (suffix, content), given where its documents end, in tokens from its beginning, and
        the fingerprint of the tokenizer.

        A document that goes on in the next shard ends with this one; the last end is the number of tokens. Raises
        `ShardError` where the layout cannot say it.
        """
        ...

    def inspect(self, path: Path, dtype: str | None = None) -> FileFacts:
        """What a file of unknown origin holds; `dtype` is needed where nothing in the files tells it."""
        ...

    def open(self, path: Path, dtype: str, n_tokens: int) -> NDArray[Any]:
        """The ids of a shard as a read-only array of this dtype, mapped from the disk.

        Raises `ShardError` where the file is not of this layout, dtype and number of tokens.
        """
        ...

    def document_ends(self, path: Path, dtype: str, n_tokens: int) -> NDArray[np.uint64] | None:
        """Where the documents of a shard end, in tokens from its beginning, ascending to `n_tokens`; None where nothing
        beside the shard tells it."""
        ...


LAYOUTS: dict[str, Layout] = {
    layout.name: layout
    for layout in (NpyLayout(), BinLayout(), LlmcLayout(), MegatronLayout(), DatatroveLayout())
}
"""All layouts by name; `register_layout` adds one."""


def register_layout(layout: Layout) -> None:
    """Add a layout, so that encoding, reading, converting and verifying accept its name.

    Args:
        layout: Usually an instance of a subclass of `PlainLayout`.

    Raises:
        ShardError: If a layout of this name exists already.
    """
    if layout.name in LAYOUTS:
        raise ShardError(f"layout {layout.name!r} already exists", hint="choose another name")
    LAYOUTS[layout.name] = layout


def layout_named(name: str) -> Layout:
    """Return the layout with this name. Raises `ShardError` if there is none."""
    if name not in LAYOUTS:
        raise ShardError(f"there is no layout {name!r}", hint=f"choose one of: {', '.join(LAYOUTS)}")
    return LAYOUTS[name]
