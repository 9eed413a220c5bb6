"""A server on this machine that behaves as it is told."""

import re
import threading
from collections import deque
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

CONTENT = bytes(range(256)) * 2_000 + b"the cat sat on the mat\n" * 10_000
PATH = "datasets/somebody/sample/sample.txt"


@dataclass
class Reply:
    """How one request is answered; where nothing else is said, as it should be."""

    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    cut_after: int | None = None
    """Close the connection after so many bytes of the body."""
    hold_after: int | None = None
    """After so many bytes wait for `FileServer.go_on`."""
    location: str | None = None


class FileServer(ThreadingHTTPServer):
    """Serves one file at any path."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.content = CONTENT
        self.etag: str | None = '"first"'
        self.last_modified: str | None = None
        self.knows_ranges = True
        self.heeds_if_range = True
        self.says_length = True
        self.replies: deque[Reply] = deque()
        """For the next requests; after them all is well."""
        self.requests: list[tuple[str, dict[str, str]]] = []
        """Paths and headers."""
        self.go_on = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def ranges(self) -> list[str | None]:
        """The `Range` of each request."""
        return [headers.get("Range") for _, headers in self.requests]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed is no trouble of the server."""


class _Handler(BaseHTTPRequestHandler):
    server: FileServer  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_GET(self) -> None:
        server = self.server
        server.requests.append((self.path, dict(self.headers)))
        reply = server.replies.popleft() if server.replies else Reply()
        if reply.location is not None:
            self._head(302, {"Location": reply.location, "Content-Length": "0"})
            return
        if reply.status is not None:
            self._head(reply.status, {"Content-Length": "0", **reply.headers})
            return
        content = server.content
        headers = {
            name: value
            for name, value in (("ETag", server.etag), ("Last-Modified", server.last_modified))
            if value
        }
        start = self._start()
        if start is not None and start >= len(content):
            self._head(416, {"Content-Range": f"bytes */{len(content)}", "Content-Length": "0"})
            return
        body = content[start or 0 :]
        if server.says_length:
            headers["Content-Length"] = str(len(body))
        if start is not None:
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        self._head(200 if start is None else 206, {**headers, **reply.headers})
        if reply.hold_after is not None:
            self.wfile.write(body[: reply.hold_after])
            self.wfile.flush()
            server.go_on.wait(30)
            body = body[reply.hold_after :]
        self.wfile.write(body[: reply.cut_after])
        self.close_connection = True

    def _start(self) -> int | None:
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if asked is None or not self.server.knows_ranges:
            return None
        condition = self.headers.get("If-Range")
        is_same = condition in (None, self.server.etag, self.server.last_modified)
        return None if self.server.heeds_if_range and not is_same else int(asked[1])

    def _head(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the name of the class above)
        """Says nothing."""
