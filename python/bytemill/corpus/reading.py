"""Sources as blocks of bytes, in constant memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bytemill.corpus.pipes import open_pipe
from bytemill.corpus.sources import Source, unreadable

if TYPE_CHECKING:
    from collections.abc import Generator

BLOCK_BYTES = 8 << 20
"""Enough work for every thread of the encoder, and little memory."""


def read_blocks(source: Source, block_bytes: int = BLOCK_BYTES) -> Generator[bytes]:
    """Yield the bytes of a source in non-empty blocks of at most `block_bytes`, cut at any byte.

    Raises:
        CorpusError: Reading fails.
    """
    source.check_unchanged()
    with open_pipe(source) if source.is_pipe else source.open() as stream:
        while True:
            try:
                block = stream.read(block_bytes)
            except OSError as error:
                raise unreadable(source.name, error) from error
            if not block:
                source.check_unchanged()
                return
            yield block
