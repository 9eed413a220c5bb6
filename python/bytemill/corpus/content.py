"""Recognition of content by its first bytes, and errors for files that are not what their names say."""

from __future__ import annotations

from pathlib import PurePath

from bytemill.corpus.compression import SUFFIXES as COMPRESSIONS
from bytemill.corpus.compression import compression_of
from bytemill.corpus.formats import FORMATS, format_of_magic
from bytemill.corpus.signatures import HEAD_BYTES, json_shape, signature_of
from bytemill.errors import CorpusError

UTF8_BOM = b"\xef\xbb\xbf"

_LFS_POINTER = b"version https://git-lfs.github.com/spec/"
_HTML = (b"<!doctype html", b"<html")
_NAMES_OF_TEXT = {"text": "text", "jsonl": "JSON lines", "csv": "CSV", "tsv": "TSV"}
_AS_IT_IS = '--format text (format="text") reads any UTF-8 as it is'
_UTF_BOMS = (  # UTF-32 first: its little-endian mark begins with UTF-16's
    (b"\xff\xfe\x00\x00", "UTF-32"),
    (b"\x00\x00\xfe\xff", "UTF-32"),
    (b"\xff\xfe", "UTF-16"),
    (b"\xfe\xff", "UTF-16"),
)


def encoding_of(head: bytes) -> str | None:
    """Return the encoding that a byte-order mark other than UTF-8's announces, or None."""
    return next((encoding for mark, encoding in _UTF_BOMS if head.startswith(mark)), None)


def describe(head: bytes) -> str:
    """Name what a file with these first bytes contains.

    >>> describe(b"version https://git-lfs.github.com/spec/v1\\noid sha256:12"), describe(b"<!DOCTYPE html><html>")
    ('a Git LFS pointer', 'an HTML page')
    >>> describe(b"Once upon a time"), describe(b"\\x1f\\x8b\\x08\\x00"), describe(b"")
    ('plain text', 'gzip data', 'an empty file')
    """
    if not head:
        return "an empty file"
    if head.startswith(_LFS_POINTER):
        return "a Git LFS pointer"
    if head.lstrip().lower().startswith(_HTML):
        return "an HTML page"
    if (compression := compression_of(head)) is not None:
        return f"{compression} data"
    if (name := format_of_magic(head)) is not None:
        return f"{name} data"
    if (signature := signature_of(head)) is not None:
        return signature.what
    if (encoding := encoding_of(head)) is not None:
        return f"{encoding} text"
    if not _is_text(head):
        return "unknown binary data"
    return json_shape(head) or "plain text"


def check_compression(name: str, head: bytes) -> None:
    """Raise `CorpusError` if a file's suffix names a compression that its first bytes are not."""
    expected = COMPRESSIONS.get(PurePath(name).suffix.lower())
    if expected is not None and compression_of(head) != expected:
        raise _not_what_it_says(name, f"{expected} data", head)


def check_magic(name: str, format_name: str, head: bytes) -> None:
    """Raise `CorpusError` if the (decompressed) first bytes of a file are not those of its format."""
    magic = FORMATS[format_name].magic
    if magic and not head.startswith(magic):
        raise _not_what_it_says(name, f"{format_name} data", head)


def check_text(name: str, head: bytes, format_name: str = "text", *, is_chosen: bool = False) -> None:
    """Raise `CorpusError` if the (decompressed) first bytes of a file are not those of a format of text.

    Args:
        name: Name of the file.
        head: Its first bytes.
        format_name: The format: "text", "jsonl", or another one that may begin with any text.
        is_chosen: True if the user has chosen the format. Then "text" is anything in UTF-8.
    """
    if head.startswith(_LFS_POINTER):
        raise CorpusError(f"{name} is a Git LFS pointer, not the file itself", hint=_hint(name, head))
    if (encoding := encoding_of(head)) is not None:
        raise CorpusError(
            f"{name} is {encoding} text, not UTF-8",
            hint=f"convert it first: iconv -f {encoding} -t UTF-8 {name} > utf8.txt",
        )
    if format_name == "text" and is_chosen:
        return
    what = describe(head)
    if what == "unknown binary data":
        if (offset := head.find(b"\0")) < 0:
            return  # text in another encoding: reading it names the first wrong byte
        what = f"binary data (byte {offset:,} is zero)"
    expected = _NAMES_OF_TEXT.get(format_name, f"{format_name} data")
    accepted = (
        "plain text",
        "an empty file",
        expected,
        *(("an HTML page",) if format_name == "text" else ()),
    )
    if what not in accepted:
        hint = _hint_for_text(name, head, what)
        if format_name == "text":
            hint += f"; {_AS_IT_IS}"
        raise CorpusError(f"{name} is {what}, not {expected}", hint=hint)


def _not_what_it_says(name: str, expected: str, head: bytes) -> CorpusError:
    return CorpusError(f"{name} is not {expected} but {describe(head)}", hint=_hint(name, head))


def _hint(name: str, head: bytes) -> str:
    if head.startswith(_LFS_POINTER):
        return "fetch the file itself: git lfs pull"
    if describe(head) in ("an HTML page", "an empty file"):
        return "download the file again"
    return f"rename {name} to match its content"


def _hint_for_text(name: str, head: bytes, what: str) -> str:
    """Return what to do with a file that is read as text and is something else."""
    if (format_name := format_of_magic(head)) is not None:
        return f'use --format {format_name} (format="{format_name}")'
    if (signature := signature_of(head)) is not None:
        return signature.hint
    match what:
        case "JSON lines":
            return '--format jsonl (format="jsonl") reads a field of every line'
        case "a JSON list":
            return f"convert it to lines: jq -c '.[]' {name} > lines.jsonl"
        case "a JSON object over several lines":
            return f"convert it to a line: jq -c . {name} > lines.jsonl"
        case "an HTML page":
            return "download the file again"
        case "gzip data" | "xz data" | "bzip2 data" | "zstd data":
            return "decompress it first: it is compressed twice"
        case _:
            return "convert it to text in UTF-8"


def _is_text(head: bytes) -> bool:
    try:
        head.decode()
    except UnicodeDecodeError as error:
        # The last character may be cut off.
        return error.start > len(head) - 4 and len(head) >= HEAD_BYTES
    return b"\0" not in head
