"""Errors and hints for sources and documents that cannot be read as text."""

from __future__ import annotations

import difflib
import os
import stat
from typing import TYPE_CHECKING, Any, cast

from bytemill.corpus.options import REPLACE_HINT
from bytemill.errors import CorpusError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bytemill.corpus.sources import Source

_READ_BYTES = 8 << 20
_MAX_FIELDS = 20
"""Most fields that a hint lists."""


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


def fields_of(value: object) -> list[str]:
    r"""Return the paths of the strings in an object, as the option `field` writes them; of all values if none is one.

    >>> fields_of({"id": 1, "body": "x", "meta": {"a.b": "y", "n": 2}}), fields_of({"id": 1})
    (['body', 'meta.a\\.b'], ['id'])
    """
    paths = list(_paths(value))
    return [path for path, leaf in paths if isinstance(leaf, str)] or [path for path, _ in paths]


def _paths(value: object, prefix: str = "") -> Iterator[tuple[str, object]]:
    if not isinstance(value, dict):
        return
    for name, inner in cast("dict[Any, object]", value).items():
        path = prefix + str(name).replace(".", "\\.")
        if isinstance(inner, dict) and inner:
            yield from _paths(cast("object", inner), f"{path}.")
        else:
            yield path, inner


def choose_field(wanted: str, fields: Sequence[str], option: str) -> str:
    """Return the hint that names the fields there are, and the one that was probably meant.

    >>> choose_field("txt", ["id", "text"], "--field (field=)")
    "did you mean 'text'? choose one with --field (field=): id, text"
    """
    close = difflib.get_close_matches(wanted, fields, n=1)
    # A longer path that ends with the name, or the name in another case.
    close = close or [each for each in fields if each.rpartition(".")[2].lower() == wanted.lower()][:1]
    listing = ", ".join(fields[:_MAX_FIELDS]) + (", …" if len(fields) > _MAX_FIELDS else "")
    meant = f"did you mean {close[0]!r}? " if close else ""
    return f"{meant}choose one with {option}: {listing}"


def document_too_large(where: str, max_document_bytes: int) -> CorpusError:
    """Make the error for a document that must not be held in memory."""
    return CorpusError(
        f"{where} is larger than max_document_bytes ({max_document_bytes:,})",
        hint="raise max_document_bytes (--max-document-bytes), or leave such documents out with "
        'on_error="skip" (--on-error skip)',
    )
