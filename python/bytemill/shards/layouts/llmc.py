"""`.bin` files with a header of 256 numbers, as llm.c and modded-nanogpt read them."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from bytemill.errors import ShardError
from bytemill.shards.layouts.files import FileFacts, map_array, read_head
from bytemill.shards.layouts.plain import PlainLayout

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from bytemill.shards.layouts.files import Dtype

HEADER_BYTES = 256 * 4
_KINDS: dict[Dtype, tuple[int, int]] = {"uint16": (20240520, 1), "uint32": (20240801, 7)}
"""Magic number and version: of GPT-2's ids, and of ids of larger vocabularies such as Llama 3's."""
_MAX_TOKENS = 2**31 - 1


class LlmcLayout(PlainLayout):
    """A header of 256 int32 (magic number, version, number of tokens, zeros), then the ids.

    Its readers expect every document to begin with the end-of-text token.
    """

    name = "llmc"
    suffix = ".bin"
    separator_in_front = True

    def header(self, dtype: Dtype, n_tokens: int) -> bytes:
        """256 numbers, of which three say something."""
        if n_tokens > _MAX_TOKENS:
            raise ShardError(
                f"a shard of {n_tokens:,} tokens: the layout llmc counts up to {_MAX_TOKENS:,}",
                hint="make shards of fewer tokens (--shard-tokens)",
            )
        return struct.pack("<3i", *_KINDS[dtype], n_tokens).ljust(HEADER_BYTES, b"\0")

    def inspect(self, path: Path, dtype: str | None = None) -> FileFacts:
        """As its header says."""
        facts = _read_header(path)
        if dtype not in (None, facts.dtype):
            raise ShardError(f"{path.name} holds {facts.dtype}, not {dtype}")
        return facts

    def open(self, path: Path, dtype: str, n_tokens: int) -> NDArray[Any]:
        """Mapped from the disk."""
        facts = self.inspect(path, dtype)
        if facts.n_tokens != n_tokens:
            raise ShardError(f"{path.name} holds {facts.n_tokens:,} tokens, not {n_tokens:,}")
        return map_array(path, dtype, n_tokens, HEADER_BYTES)


def has_header(path: Path) -> bool:
    """True where the file begins as this layout does."""
    head = read_head(path, 8)
    return len(head) == 8 and struct.unpack("<2i", head) in _KINDS.values()


def _read_header(path: Path) -> FileFacts:
    head = read_head(path, HEADER_BYTES)
    if len(head) < HEADER_BYTES:
        raise ShardError(f"{path.name} has {len(head):,} bytes: too few for the header of the layout llmc")
    magic, version, n_tokens = struct.unpack_from("<3i", head)
    for dtype, kind in _KINDS.items():
        if kind == (magic, version):
            if n_tokens < 0:
                raise ShardError(f"the header of {path.name} says {n_tokens:,} tokens")
            return FileFacts(dtype, n_tokens)
    raise ShardError(
        f"{path.name} begins with {magic} and {version}, no magic number and version of the layout llmc",
        hint=f"there are {' and '.join(f'{magic} version {version}' for magic, version in _KINDS.values())}",
    )
