"""Layout `llmc`: `.bin` files with a header of 256 numbers, as llm.c and modded-nanogpt read them."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from bytemill.errors import ShardError
from bytemill.shards.layouts.files import FileSummary, read_head
from bytemill.shards.layouts.plain import PlainLayout

if TYPE_CHECKING:
    from pathlib import Path

    from bytemill.shards.layouts.files import Dtype

HEADER_BYTES = 256 * 4
_KINDS: dict[Dtype, tuple[int, int]] = {"uint16": (20240520, 1), "uint32": (20240801, 7)}
"""Magic number and version: for GPT-2's ids, and for ids of larger vocabularies such as Llama 3's."""
_MAX_TOKENS = 2**31 - 1


class LlmcLayout(PlainLayout):
    """A header of 256 int32 (magic number, version, number of tokens, zeros), then the ids.

    Readers expect every document to begin with the end-of-text token.
    """

    name = "llmc"
    suffix = ".bin"
    separator_in_front = True

    def header(self, dtype: Dtype, n_tokens: int) -> bytes:
        """Return 256 numbers, of which all but three are 0."""
        if n_tokens > _MAX_TOKENS:
            raise ShardError(
                f"a shard of layout llmc has at most {_MAX_TOKENS:,} tokens, not {n_tokens:,}",
                hint="use fewer tokens per shard (--shard-tokens)",
            )
        return struct.pack("<3i", *_KINDS[dtype], n_tokens).ljust(HEADER_BYTES, b"\0")

    def inspect(self, path: Path, dtype: str | None = None) -> FileSummary:
        """Read the header."""
        summary = _read_header(path)
        if dtype not in (None, summary.dtype):
            raise ShardError(f"{path.name} holds {summary.dtype}, not {dtype}")
        return summary


def has_header(path: Path) -> bool:
    """Check whether a file begins with a header of this layout."""
    head = read_head(path, 8)
    return len(head) == 8 and struct.unpack("<2i", head) in _KINDS.values()


def _read_header(path: Path) -> FileSummary:
    head = read_head(path, HEADER_BYTES)
    if len(head) < HEADER_BYTES:
        raise ShardError(f"{path.name} has {len(head):,} bytes: too few for the header of layout llmc")
    magic, version, n_tokens = struct.unpack_from("<3i", head)
    for dtype, kind in _KINDS.items():
        if kind == (magic, version):
            if n_tokens < 0:
                raise ShardError(f"{path.name} is damaged: its header has {n_tokens:,} tokens")
            return FileSummary(dtype, n_tokens, HEADER_BYTES)
    raise ShardError(
        f"{path.name} begins with {magic} and {version}, which is not a magic number and version of layout llmc",
        hint=f"known are {' and '.join(f'{magic} version {version}' for magic, version in _KINDS.values())}",
    )
