"""Which format a file has: by its name, else by its first bytes."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING

from bytemill.corpus.compression import SUFFIXES as COMPRESSIONS

if TYPE_CHECKING:
    from bytemill.corpus.options import Format

SUFFIXES: dict[str, Format] = {
    **dict.fromkeys((".txt", ".text", ".md"), "text"),
    **dict.fromkeys((".jsonl", ".ndjson", ".jsonlines", ".json"), "jsonl"),
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
    **dict.fromkeys((".arrow", ".feather", ".ipc"), "arrow"),
    **dict.fromkeys((".warc", ".wet", ".wat"), "warc"),
}
"""Formats by suffix. What a folder gives has one of these."""

_MAGIC: tuple[tuple[bytes, Format], ...] = (
    (b"PAR1", "parquet"),
    (b"ARROW1", "arrow"),
    (b"\xff\xff\xff\xff", "arrow"),
    (b"WARC/", "warc"),
)


def format_of_name(name: str) -> Format | None:
    """The format that a file is named for, whether it is compressed or not; None where the name says nothing.

    >>> format_of_name("part-00.JSONL.zst"), format_of_name("corpus.gz"), format_of_name("notes")
    ('jsonl', None, None)
    """
    path = PurePath(name)
    if path.suffix.lower() in COMPRESSIONS:
        path = path.with_suffix("")
    return SUFFIXES.get(path.suffix.lower())


def format_of_head(head: bytes) -> Format:
    """The format of a file that begins with `head`: text where nothing says otherwise."""
    for magic, kind in _MAGIC:
        if head.startswith(magic):
            return kind
    return "text"
