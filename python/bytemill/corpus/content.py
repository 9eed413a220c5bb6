"""Recognition of content by its first bytes, and errors for files that are not what their names say."""

from __future__ import annotations

import json
import re
from pathlib import PurePath
from typing import NamedTuple

from bytemill.corpus.compression import compression_of
from bytemill.corpus.formats import COMPRESSIONS, FORMATS, format_of_magic
from bytemill.errors import CorpusError

HEAD_BYTES = 1 << 12
"""First bytes of a file that are inspected."""

_UNPACK = "unpack it first, and name the files"
_EXTRACT = "extract its text first"
_LEAVE_OUT = "leave the file out"


class Signature(NamedTuple):
    """A kind of files that hold no text as it is."""

    what: str
    """Its name, with an article."""
    magic: bytes
    """The first bytes."""
    hint: str = _LEAVE_OUT
    """What to do with such a file."""
    offset: int = 0
    """Where the bytes are."""


_TAR = Signature("a tar archive", b"ustar", "unpack it first (tar -xf), and name the files", 257)

_SIGNATURES = (
    _TAR,
    Signature("a ZIP archive", b"PK\x03\x04", "unpack it first (unzip), and name the files"),
    Signature("an empty ZIP archive", b"PK\x05\x06"),
    Signature("a 7z archive", b"7z\xbc\xaf\x27\x1c", _UNPACK),
    Signature("a RAR archive", b"Rar!\x1a\x07", _UNPACK),
    Signature("an ar archive", b"!<arch>\n", _UNPACK),
    Signature("a PDF document", b"%PDF-", "extract its text first (pdftotext)"),
    Signature("a PostScript document", b"%!PS", _EXTRACT),
    Signature("an RTF document", b"{\\rtf", _EXTRACT),
    Signature("an old Office document", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", _EXTRACT),
    Signature("a PNG image", b"\x89PNG\r\n\x1a\n"),
    Signature("a JPEG image", b"\xff\xd8\xff"),
    Signature("a GIF image", b"GIF87a"),
    Signature("a GIF image", b"GIF89a"),
    Signature("a TIFF image", b"II*\x00"),
    Signature("a TIFF image", b"MM\x00*"),
    Signature("a WebP image", b"WEBP", offset=8),
    Signature("a WAV recording", b"WAVEfmt ", offset=8),
    Signature("an Ogg recording", b"OggS\x00"),
    Signature("a FLAC recording", b"fLaC\x00"),
    Signature("an MP4 recording", b"ftyp", offset=4),
    Signature("an SQLite database", b"SQLite format 3\x00", _EXTRACT),
    Signature("a NumPy array", b"\x93NUMPY"),
    Signature("a safetensors file", b'{"', offset=8),
    Signature("a GGUF model", b"GGUF"),
    Signature("an HDF5 file", b"\x89HDF\r\n\x1a\n"),
    Signature("an ORC file", b"ORC"),
    Signature("an Avro file", b"Obj\x01"),
    Signature("an ELF program", b"\x7fELF"),
    Signature("LZ4 data", b"\x04\x22\x4d\x18", "decompress it first (lz4 -d)"),
)

_NEED_NUL = frozenset(
    {"a safetensors file", "an MP4 recording", "a GGUF model", "an ORC file", "a WebP image"}
)
"""Kinds whose magic could begin a text, which has no zero bytes."""

_STRING = rb'"(?:[^"\\\x00-\x1f]|\\.)*"'
_JSON_LINE = re.compile(rb"\{[ \t]*(?:%b[ \t]*:|\})" % _STRING)
_JSON_OBJECT = re.compile(rb"\{\s*%b\s*:" % _STRING)
_JSON_LIST = re.compile(rb"\[\s*(?:\{\s*%b\s*:|%b\s*,\s*\")" % (_STRING, _STRING))


def signature_of(head: bytes) -> Signature | None:
    """Return the kind of file that begins with `head`, or None if it is not known.

    >>> signature_of(b"%PDF-1.7").what, signature_of(b"Once upon a time")
    ('a PDF document', None)
    """
    for each in _SIGNATURES:
        if head.startswith(each.magic, each.offset) and (each.what not in _NEED_NUL or b"\0" in head):
            return each
    if head[:1] == b"\x80" and head[1:2] in {b"\x02", b"\x03", b"\x04", b"\x05"}:  # its protocol
        return Signature("a Python pickle", head[:2])
    if b"\0" in head and _has_tar_checksum(head):
        return _TAR
    return None


def json_shape(head: bytes) -> str | None:
    r"""Return how a text that begins with `head` is JSON, or None: "JSON lines", "a JSON list", or one object.

    >>> json_shape(b'{"text": "one"}\n{"text": "two"}\n'), json_shape(b'[{"text": "one"},\n{"text": "two"}]')
    ('JSON lines', 'a JSON list')
    >>> json_shape(b'{\n  "text": "one"\n}\n'), json_shape(b"{curly} words")
    ('a JSON object over several lines', None)
    """
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if _JSON_LIST.match(text):
        return "a JSON list"
    line, newline, _ = text.partition(b"\n")
    if _JSON_LINE.match(line):
        if not newline and len(head) >= HEAD_BYTES:
            return "JSON lines"  # the line goes on behind the head
        try:
            json.loads(line)
        except ValueError:
            pass
        else:
            return "JSON lines"
    is_broken = line.rstrip().endswith((b"{", b"[", b",", b":"))
    return "a JSON object over several lines" if is_broken and _JSON_OBJECT.match(text) else None


def _has_tar_checksum(head: bytes) -> bool:
    """Check for an archive of the first tar, which has no magic."""
    import tarfile

    try:
        tarfile.TarInfo.frombuf(head[:512], "utf-8", "surrogateescape")
    except (tarfile.HeaderError, ValueError):
        return False
    return True


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


def format_of_head(head: bytes) -> str:
    """Return the format of a file by its first bytes: that of its magic, "jsonl" for JSON lines, else "text"."""
    if (name := format_of_magic(head)) is not None:
        return name
    return "jsonl" if json_shape(head) == "JSON lines" else "text"
