"""First bytes of files that are no text, and the shapes of JSON."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

HEAD_BYTES = 1 << 12
"""First bytes of a file that are inspected."""

_UNPACK = "unpack it first, and name the files"
_EXTRACT = "extract its text first"
_LEAVE_OUT = "leave the file out"


@dataclass(frozen=True)
class Signature:
    """A kind of files that hold no text as it is.

    Attributes:
        what: Its name, with an article.
        magic: The first bytes.
        hint: What to do with such a file.
        offset: Where the bytes are.
    """

    what: str
    magic: bytes
    hint: str = _LEAVE_OUT
    offset: int = 0

    def matches(self, head: bytes) -> bool:
        """Check the first bytes of a file."""
        return head.startswith(self.magic, self.offset)


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
        if each.matches(head) and (each.what not in _NEED_NUL or b"\0" in head):
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
