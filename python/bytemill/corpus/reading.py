"""Sources read as blocks of bytes in constant memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bytemill.corpus.pipes import open_pipe
from bytemill.corpus.sources import Source, unreadable

if TYPE_CHECKING:
    from collections.abc import Generator

BLOCK_BYTES = 8 << 20
"""Large enough to keep every thread of the encoder busy, small enough not to matter for memory."""


def read_blocks(source: Source, block_bytes: int = BLOCK_BYTES) -> Generator[bytes]:
    """The bytes of `source` in order, at most `block_bytes` at a time, none of them empty.

    Blocks are cut anywhere, inside a character too. Raises `CorpusError` where reading fails.
    """
    with open_pipe(source) if source.is_pipe else source.open() as stream:
        while True:
            try:
                block = stream.read(block_bytes)
            except OSError as error:
                raise unreadable(source.name, error) from error
            if not block:
                return
            yield block
