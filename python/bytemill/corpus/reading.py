"""Reading sources: as blocks of bytes in constant memory, or as texts."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from bytemill.corpus.pipes import open_pipe
from bytemill.corpus.sources import CorpusInputs, Source, is_texts, unreadable
from bytemill.errors import CorpusError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

    from bytemill.corpus.corpus import Corpus
    from bytemill.corpus.options import EncodingErrors

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
    with open_pipe(source) if source.is_pipe else source.open() as stream:
        while True:
            try:
                block = stream.read(block_bytes)
            except OSError as error:
                raise unreadable(source.name, error) from error
            if not block:
                return
            yield block


def iter_texts(inputs: CorpusInputs | Corpus, *, errors: EncodingErrors = "strict") -> Iterator[str]:
    """The documents of a corpus as texts: those of a `Corpus`, an iterable's own, or each text file as one.

    One document at a time is held in memory, whole. `errors="replace"` reads what is not UTF-8 as U+FFFD; a `Corpus`
    has its own option for that. Raises `CorpusError` for files that cannot be read or are not UTF-8, and for an item
    that is no str.

    >>> list(iter_texts(iter(["one", "two"])))
    ['one', 'two']
    """
    from bytemill.corpus.corpus import Corpus

    if isinstance(inputs, Corpus):
        yield from _texts_of(inputs)
    elif is_texts(inputs):
        yield from _checked(inputs)
    else:
        yield from _texts_of(Corpus(inputs, encoding_errors=errors))


def _texts_of(corpus: Corpus) -> Iterator[str]:
    begun: list[bytes] = []
    for batch in corpus.read():
        start, last = 0, len(batch.ends) - 1
        for place, end in enumerate(batch.ends.tolist()):
            part = bytes(batch.data[start:end])
            if place == last and batch.is_open:
                begun.append(part)
            else:
                yield b"".join([*begun, part]).decode()
                begun = []
            start = end


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
            while n_left and (block := file.read(min(n_left, BLOCK_BYTES))):
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


def _checked(texts: Iterable[object]) -> Iterator[str]:
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise no_text(text, index)
        yield text
