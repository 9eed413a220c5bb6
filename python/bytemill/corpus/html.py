"""Text of web pages, through resiliparse: the encoding, the title, and the main content or all that is visible."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bytemill.corpus.documents import Chunk
from bytemill.corpus.formats import library
from bytemill.corpus.options import document_too_large

if TYPE_CHECKING:
    from collections.abc import Generator

    from bytemill.corpus.options import CorpusOptions
    from bytemill.corpus.streams import OpenFile

_CHARSET = re.compile(r"charset\s*=\s*[\"']?([\w.:-]+)", re.IGNORECASE)
_HTML_TYPES = {"text/html", "application/xhtml+xml"}
_READ_BYTES = 1 << 20


@dataclass(frozen=True)
class PageText:
    """What a page says."""

    text: str
    title: str | None
    encoding: str


def is_html(content_type: str) -> bool:
    """Check whether a content type is that of a web page. Pages without one are taken for HTML."""
    return content_type.partition(";")[0].strip().lower() in {*_HTML_TYPES, ""}


def page_text(
    page: bytes,
    content_type: str = "",
    *,
    main_content: bool = False,
    links: bool = False,
    name: str = "a page",
) -> PageText:
    """Return the text of an HTML page.

    The encoding is that of the content type, or UTF-8 if the page is valid UTF-8, or the one that the page declares, or
    the one that its bytes suggest.

    Args:
        page: The page.
        content_type: Its HTTP content type.
        main_content: Leave out menus, headers, footers and comments, by the rules of resiliparse.
        links: Write the targets of links.
        name: Name of the page, for the message if resiliparse is not installed.

    Raises:
        CorpusError: resiliparse is not installed.
    """
    extract: Any = library("resiliparse.extract.html2text", name)
    parse: Any = library("resiliparse.parse.html", name)
    html, encoding = decoded(page, content_type, name=name)
    tree = parse.HTMLTree.parse(html)
    text: str = extract.extract_plain_text(tree, main_content=main_content, links=links)
    title: str = tree.title or ""
    return PageText(_whole(text), " ".join(_whole(title).split()) or None, encoding)


def decoded(page: bytes, content_type: str = "", *, name: str = "a page") -> tuple[str, str]:
    """Return a page as a string, and its encoding; see `page_text`."""
    declared = _CHARSET.search(content_type)
    for encoding in (declared[1] if declared else None, "utf-8"):
        try:
            if encoding is not None:
                # An alias such as latin1 means windows-1252 on the web, which the detection below knows.
                known = codecs.lookup(encoding).name
                if known not in ("iso8859-1", "ascii"):
                    return page.removeprefix(codecs.BOM_UTF8).decode(known), known
        except (LookupError, UnicodeError):
            continue
    module: Any = library("resiliparse.parse.encoding", name)
    found: str = module.detect_encoding(page, from_html_meta=True)
    return module.bytes_to_str(page, found), found


def _whole(text: str) -> str:
    """Return a text without lone surrogates."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def read_html(file: OpenFile, options: CorpusOptions, state: dict[str, Any]) -> Generator[Chunk]:
    """Yield the text of a page, a document."""
    if state.get("done"):
        return
    page, n_read = whole_file(file, options.max_document_bytes)
    text = page_text(page, name=file.name).text.encode()
    yield Chunk.of_texts([text], options, n_read, {"done": True}, lambda _: file.name)


def whole_file(file: OpenFile, max_bytes: int) -> tuple[bytes, int]:
    """Return the bytes of a file, and how many bytes of it that took; raise CorpusError if it is too large."""
    blocks: list[bytes] = []
    n_bytes = 0
    with file.stream(0) as stream:
        while not file.stop.is_set():
            block, _ = stream.block(_READ_BYTES)
            if not block:
                break
            blocks.append(bytes(block))
            n_bytes += len(block)
            if n_bytes > max_bytes:
                raise document_too_large(file.name, max_bytes)
            stream.advance(len(block))
        return b"".join(blocks), stream.n_bytes_read
