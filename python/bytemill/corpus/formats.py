"""Registry of corpus formats: names, file suffixes, magic bytes and readers; and the libraries that these need.

A new format is one module with a read function plus one call of `register_corpus_format`:

    register_corpus_format(CorpusFormat("paragraphs", suffixes=(".par",), reader=read_paragraphs))

`docs/guides/extending.md` shows the steps.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from importlib import import_module
from pathlib import PurePath
from typing import Any, TypeAlias

from bytemill.corpus.documents import Chunk
from bytemill.errors import CorpusError
from bytemill.system.extras import install_hint

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd", ".xz": "xz", ".bz2": "bzip2"}
"""Compressions by file suffix."""

ReadFunction: TypeAlias = Callable[..., Generator[Chunk]]
"""Called as `read(file, options, state)` with an `OpenFile`, the `CorpusOptions` and the state of the chunk before
({} at the beginning); yields the same chunks in every run."""


@dataclass(frozen=True)
class CorpusFormat:
    """A file format of corpora.

    Attributes:
        name: The value of `format` that selects it.
        suffixes: File suffixes, lower-case with the dot. Folders contribute files with these suffixes.
        reader: The read function, or "module:function" to import it with the first file.
        magic: First bytes of every file, one of these; empty if the format has none.
    """

    name: str
    suffixes: tuple[str, ...]
    reader: ReadFunction | str
    magic: tuple[bytes, ...] = ()

    def read_function(self) -> ReadFunction:
        """Return the read function, importing its module if necessary."""
        if not isinstance(self.reader, str):
            return self.reader
        module, _, function = self.reader.partition(":")
        return getattr(import_module(module), function)


FORMATS: dict[str, CorpusFormat] = {}
"""Registered formats by name."""


def register_corpus_format(corpus_format: CorpusFormat) -> None:
    """Add a format, or replace the one of the same name.

    Raises:
        ValueError: The name is "auto", or another format has one of the suffixes.
    """
    if corpus_format.name == "auto":
        raise ValueError('a corpus format cannot be named "auto"')
    for other in FORMATS.values():
        if other.name != corpus_format.name and (shared := {*other.suffixes} & {*corpus_format.suffixes}):
            raise ValueError(f"the format {other.name!r} already has the suffix {shared.pop()!r}")
    FORMATS[corpus_format.name] = corpus_format


_ARROW_MAGIC = (b"ARROW1", b"\xff\xff\xff\xff")
"""First bytes of an Arrow file and of an Arrow stream."""

for _name, _suffixes, _reader, _magic in (
    ("text", (".txt", ".text", ".md"), "blocks:read_text", ()),
    ("jsonl", (".jsonl", ".ndjson", ".jsonlines", ".json"), "blocks:read_json_lines", ()),
    ("csv", (".csv",), "delimited:read_csv", ()),
    ("tsv", (".tsv",), "delimited:read_tsv", ()),
    ("parquet", (".parquet", ".pq"), "columns:read_parquet", (b"PAR1",)),
    ("arrow", (".arrow", ".feather", ".ipc"), "columns:read_arrow", _ARROW_MAGIC),
    ("warc", (".warc", ".wet", ".wat"), "warc:read_warc", (b"WARC/",)),
    ("html", (".html", ".htm", ".xhtml"), "html:read_html", ()),
):
    register_corpus_format(CorpusFormat(_name, _suffixes, f"bytemill.corpus.{_reader}", _magic))


def check_format(name: str) -> None:
    """Raise `CorpusError` unless `name` is "auto" or a registered format."""
    if name != "auto" and name not in FORMATS:
        known = ", ".join(map(repr, ("auto", *FORMATS)))
        raise CorpusError(f"unknown format {name!r}", hint=f"use one of {known}")


def suffixes(format_name: str = "auto") -> list[str]:
    """Return the file suffixes of a format, or of all formats."""
    chosen = FORMATS.values() if format_name == "auto" else [FORMATS[format_name]]
    return [suffix for each in chosen for suffix in each.suffixes]


def format_of_name(name: str) -> str | None:
    """Return the format that a file name implies, ignoring a compression suffix, or None.

    >>> format_of_name("part-00.JSONL.zst"), format_of_name("corpus.gz"), format_of_name("notes")
    ('jsonl', None, None)
    """
    path = PurePath(name)
    if path.suffix.lower() in COMPRESSIONS:
        path = path.with_suffix("")
    suffix = path.suffix.lower()
    return next((each.name for each in FORMATS.values() if suffix in each.suffixes), None)


def format_of_magic(head: bytes) -> str | None:
    """Return the format whose magic a file begins with, or None."""
    return next((each.name for each in FORMATS.values() if head.startswith(each.magic)), None)


_NEEDS = {
    "zstandard": ("zstd-compressed files need", "data"),
    "pyarrow": ("Parquet, Arrow, CSV and TSV files need", "data"),
    "warcio": ("WARC files need", "data"),
    "fsspec": ("URLs need", "data"),
    "resiliparse": ("web pages need", "curate"),
}
"""What needs a library, and the extra that brings it."""


def library(module: str, name: str) -> Any:
    """Import an optional library, or a module of it, with the first input that needs it.

    Args:
        module: The module, of a library in `_NEEDS`.
        name: The input that needs it, for the error message.

    Raises:
        CorpusError: The library is not installed.
    """
    package = module.partition(".")[0]
    try:
        return import_module(module)
    except ImportError as error:
        needs, extra = _NEEDS[package]
        raise CorpusError(
            f"{name}: {needs} {package}, which is not installed", hint=install_hint(extra)
        ) from error
