"""Interface and registry of layouts."""

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

    from bytemill.shards.layouts.files import Dtype, FileSummary


class Layout(Protocol):
    """Format of a shard file: a header of fixed size, then little-endian ids; and of its sidecar files.

    Methods that read a file raise `ShardError`, and nothing else, if it is damaged or of another format.
    """

    @property
    def name(self) -> str:
        """Value of `--layout`."""
        ...

    @property
    def suffix(self) -> str:
        """Suffix of shard files, with the dot."""
        ...

    @property
    def sidecar_suffixes(self) -> tuple[str, ...]:
        """Suffixes of sidecar files, which replace `suffix`."""
        ...

    @property
    def separator_in_front(self) -> bool:
        """True if readers expect the separator before each document, not after it."""
        ...

    @property
    def whole_documents(self) -> bool:
        """True if no document continues in the next shard: the document that fills a shard ends it."""
        ...

    def dtype(self, narrowest: Dtype) -> Dtype:
        """Return the type of the ids on disk.

        Args:
            narrowest: The narrowest type that holds all ids of the vocabulary.

        Raises:
            ShardError: If the layout cannot represent them.
        """
        ...

    def header(self, dtype: Dtype, n_tokens: int) -> bytes:
        """Return the header, whose size is the same for all arguments. Raises `ShardError` for too many tokens."""
        ...

    def sidecars(
        self, dtype: Dtype, document_ends: NDArray[np.uint64], fingerprint: str
    ) -> Sequence[tuple[str, bytes]]:
        """Return the sidecar files of a shard as (suffix, content).

        Args:
            dtype: Type of the ids on disk.
            document_ends: End of each document, in tokens from the start of the shard. The last one is the number of
                tokens.
            fingerprint: Fingerprint of the tokenizer.

        Raises:
            ShardError: If the layout cannot represent the documents.
        """
        ...

    def inspect(self, path: Path, dtype: str | None = None) -> FileSummary:
        """Return the type and number of the ids in a file.

        Args:
            path: A shard file, from any program.
            dtype: Type of the ids, for formats that do not store it.
        """
        ...

    def open(self, path: Path, dtype: str, n_tokens: int) -> NDArray[Any]:
        """Map the ids of a shard as a read-only array.

        Args:
            path: The shard file.
            dtype: Expected type of the ids.
            n_tokens: Expected number of ids.

        Raises:
            ShardError: If the file has another format, type or number of ids.
        """
        ...

    def document_ends(self, path: Path, dtype: str, n_tokens: int) -> NDArray[np.uint64] | None:
        """Return the ends of the documents of a shard, in tokens from its start, ascending to `n_tokens`.

        Returns None if there is no sidecar file with them.
        """
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
