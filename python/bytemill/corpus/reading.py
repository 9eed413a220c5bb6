"""Reading sources: as blocks of bytes in constant memory, or as texts."""

import os
import stat
from collections.abc import Generator, Iterable, Iterator
from typing import Literal

from bytemill.corpus.sources import CorpusInputs, Source, is_texts, resolve_inputs, unreadable
from bytemill.errors import CorpusError

BLOCK_BYTES = 8 << 20
"""Large enough to keep every thread of the encoder busy, small enough not to matter for memory."""

# What people feed to text tools by mistake, by its first bytes.
_NOT_TEXT = (
    (b"\x1f\x8b", "gzip-compressed", "decompress it first, for example `gzip -dc FILE`"),
    (b"\x28\xb5\x2f\xfd", "zstd-compressed", "decompress it first, for example `zstd -dc FILE`"),
    (b"\xff\xfe", "UTF-16", "convert it first: `iconv -f UTF-16 -t UTF-8 FILE`"),
    (b"\xfe\xff", "UTF-16", "convert it first: `iconv -f UTF-16 -t UTF-8 FILE`"),
)


def read_blocks(source: Source, block_bytes: int = BLOCK_BYTES) -> Generator[bytes]:
    """The bytes of `source` in order, at most `block_bytes` at a time, none of them empty.

    Blocks are cut anywhere, inside a character too. Raises `CorpusError` where reading fails.
    """
    with source.open() as stream:
        while True:
            try:
                block = stream.read(block_bytes)
            except OSError as error:
                raise unreadable(source.name, error) from error
            if not block:
                return
            yield block


def iter_texts(inputs: CorpusInputs, *, errors: Literal["strict", "replace"] = "strict") -> Iterator[str]:
    """The texts of `inputs`: an iterable's own, or each file as one text.

    One file at a time is held in memory, whole. `errors="replace"` reads what is not UTF-8 as U+FFFD.
    Raises `CorpusError` for files that cannot be read or are not UTF-8, and for an item that is no str.

    >>> list(iter_texts(iter(["one", "two"])))
    ['one', 'two']
    """
    if is_texts(inputs):
        yield from _checked(inputs)
        return
    for source in resolve_inputs(inputs):
        data = b"".join(read_blocks(source))
        try:
            yield data.decode("utf-8", errors)
        except UnicodeDecodeError as error:
            raise not_utf8(source, error) from error


def not_utf8(source: Source, error: UnicodeDecodeError) -> CorpusError:
    """The `CorpusError` that names the place: `error.start` is the byte offset in `source`."""
    start = error.start
    hint = 'give errors="replace" (--errors replace) to read such bytes as U+FFFD, or convert it to UTF-8'
    byte = ""
    # A pipe must not be opened again: that could wait for ever.
    if source.path is not None and source.n_bytes is not None:
        head, offending = _head_and_byte(source.path, start)
        byte = f" (0x{offending[0]:02x})" if offending else ""
        for magic, what, remedy in _NOT_TEXT:
            if start < len(magic) and head.startswith(magic):
                hint = f"it looks like {what} data; {remedy.replace('FILE', source.name)}"
    return CorpusError(f"{source.name}: byte offset {start}{byte} is not valid UTF-8", hint=hint)


def _head_and_byte(path: os.PathLike[str], offset: int) -> tuple[bytes, bytes]:
    """The first four bytes of a file and the one at `offset`; empty where it cannot be read any more."""
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return b"", b""
            head = file.read(4)
            file.seek(offset)
            return head, file.read(1)
    except OSError:
        return b"", b""


def _checked(texts: Iterable[object]) -> Iterator[str]:
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise CorpusError(
                f"item {index} of the corpus is no str: {text!r:.80}",
                hint="give names of files as a list, for example sorted(folder.glob('*.txt'))"
                if isinstance(text, os.PathLike)
                else None,
            )
        yield text
