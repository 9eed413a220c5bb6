"""Makes small web archives for tests."""

import gzip
from collections.abc import Iterable
from pathlib import Path

NAVIGATION = '<nav><a href="/">Home</a> <a href="/about">About us</a></nav>'


def page(title: str, body: str, encoding: str = "utf-8") -> bytes:
    """A page with navigation, a main part and a footer."""
    paragraphs = "".join(f"<p>{part}</p>" for part in body.split("\n") if part.strip())
    html = (
        f"<html><head><title>{title}</title></head><body>{NAVIGATION}"
        f"<main><h1>{title}</h1>{paragraphs}</main><footer>Copyright</footer></body></html>"
    )
    return html.encode(encoding)


def write_archive(
    path: Path, pages: Iterable[tuple[str, bytes]], content_type: str = "text/html", status: str = "200 OK"
) -> None:
    """Add responses to a WARC file."""
    with path.open("ab") as file:
        for url, data in pages:
            record = warc_record(url, data, content_type, status)
            file.write(gzip.compress(record, mtime=0) if path.suffix == ".gz" else record)


def warc_record(url: str, data: bytes, content_type: str = "text/html", status: str = "200 OK") -> bytes:
    """A response as a WARC file holds it."""
    response = f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\n\r\n".encode() + data
    head = (
        f"WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: {url}\r\nWARC-Date: 2024-01-01T00:00:00Z\r\n"
        "WARC-Record-ID: <urn:uuid:00000000-0000-0000-0000-000000000000>\r\n"
        f"Content-Type: application/http; msgtype=response\r\nContent-Length: {len(response)}\r\n\r\n"
    )
    return head.encode() + response + b"\r\n\r\n"
