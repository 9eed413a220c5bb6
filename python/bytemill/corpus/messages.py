"""Errors and hints for sources and documents that cannot be read as text."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from bytemill.corpus.options import REPLACE_HINT
from bytemill.errors import CorpusError

if TYPE_CHECKING:
    from bytemill.corpus.sources import Source

_READ_BYTES = 8 << 20


def not_utf8(source: Source, error: UnicodeDecodeError) -> CorpusError:
    """Make the error for malformed UTF-8.

    Args:
        source: The source.
        error: Its `start` is the byte offset in the source.
    """
    start = error.start
    byte, where = "", source.name
    # A pipe must not be opened again: that could block for ever.
    if source.path is not None and source.n_bytes is not None:
        line, offending = _line_and_byte(source.path, start)
        byte = f" (0x{offending[0]:02x})" if offending else ""
        where = f"{source.name}:{line:,}" if line else source.name
    return CorpusError(
        f"{where}: byte offset {start}{byte} is not valid UTF-8",
        hint=f"{REPLACE_HINT}; or convert the input to UTF-8",
    )


def _line_and_byte(path: os.PathLike[str], offset: int) -> tuple[int, bytes]:
    """Return the line number of the byte at `offset`, and that byte; (0, b"") if it can no longer be read."""
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return 0, b""
            line, n_left = 1, offset
            while n_left and (block := file.read(min(n_left, _READ_BYTES))):
                line += block.count(b"\n")
                n_left -= len(block)
            return line, file.read(1)
    except OSError:
        return 0, b""


def not_a_str(item: object, index: int) -> CorpusError:
    """Make the error for an item of an iterable that is not a text."""
    return CorpusError(
        f"item {index} of the corpus is not a str: {item!r:.80}",
        hint="pass file names to train or Corpus as a list, for example sorted(folder.glob('*.txt'))"
        if isinstance(item, os.PathLike)
        else "pass rows to Corpus.from_rows"
        if isinstance(item, dict)
        else "convert every item to a str",
    )


def document_too_large(where: str, max_document_bytes: int) -> CorpusError:
    """Make the error for a document that must not be held in memory."""
    return CorpusError(
        f"{where} is larger than max_document_bytes ({max_document_bytes:,})",
        hint="raise max_document_bytes (--max-document-bytes), or leave such documents out with "
        'on_error="skip" (--on-error skip)',
    )
