"""Errors and hints for sources and documents that cannot be read as text."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from bytemill.errors import CorpusError

if TYPE_CHECKING:
    from bytemill.corpus.sources import Source

SKIP_HINT = 'on_error="skip" (--on-error skip) leaves broken documents out and counts them'

_READ_BYTES = 8 << 20

# What people feed to text tools by mistake, by its first bytes.
_NOT_TEXT = (
    (b"\x1f\x8b", "gzip-compressed", "decompress it first, for example `gzip -dc FILE`"),
    (b"\x28\xb5\x2f\xfd", "zstd-compressed", "decompress it first, for example `zstd -dc FILE`"),
    (b"\xff\xfe", "UTF-16", "convert it first: `iconv -f UTF-16 -t UTF-8 FILE`"),
    (b"\xfe\xff", "UTF-16", "convert it first: `iconv -f UTF-16 -t UTF-8 FILE`"),
)


def not_utf8(source: Source, error: UnicodeDecodeError) -> CorpusError:
    """The `CorpusError` that names the place: `error.start` is the byte offset in `source`."""
    start = error.start
    head, byte, place = b"", "", source.name
    # A pipe must not be opened again: that could wait for ever.
    if source.path is not None and source.n_bytes is not None:
        head, line, offending = _head_line_and_byte(source.path, start)
        byte = f" (0x{offending[0]:02x})" if offending else ""
        place = f"{source.name}:{line:,}" if line else source.name
    hint = not_text_hint(source, head, start)
    if hint is None:
        hint = 'give errors="replace" (--errors replace) to read such bytes as U+FFFD, or convert it to UTF-8'
    return CorpusError(f"{place}: byte offset {start}{byte} is not valid UTF-8", hint=hint)


def not_text_hint(source: Source, head: bytes, offset: int) -> str | None:
    """What to do about a source that begins with `head`, is no UTF-8 at `offset`, and is known to be no text."""
    for magic, what, remedy in _NOT_TEXT:
        if offset < len(magic) and head.startswith(magic):
            return f"it looks like {what} data; {remedy.replace('FILE', source.name)}"
    return None


def _head_line_and_byte(path: os.PathLike[str], offset: int) -> tuple[bytes, int, bytes]:
    """The first four bytes of a file, the line of the byte at `offset`, and that byte; (b"", 0, b"") where it cannot be
    read any more."""
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return b"", 0, b""
            head = file.read(4)
            file.seek(0)
            line, n_left = 1, offset
            while n_left and (block := file.read(min(n_left, _READ_BYTES))):
                line += block.count(b"\n")
                n_left -= len(block)
            return head, line, file.read(1)
    except OSError:
        return b"", 0, b""


def no_text(item: object, index: int) -> CorpusError:
    """The error for an item that is no document."""
    return CorpusError(
        f"item {index} of the corpus is no str: {item!r:.80}",
        hint="give names of files as a list, for example sorted(folder.glob('*.txt'))"
        if isinstance(item, os.PathLike)
        else None,
    )
