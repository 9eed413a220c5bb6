"""A loopback server that behaves like the Hugging Face hub, for one file at any path."""

import re
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

CONTENT = bytes(range(256)) * 2_000 + b"the cat sat on the mat\n" * 10_000
REVISION = "0123456789abcdef0123456789abcdef01234567"


class FileServer(ThreadingHTTPServer):
    """Serves `content`, with the headers that the hub sends and with byte ranges."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.content = CONTENT
        self.statuses: deque[int] = deque()
        """Errors to answer the next requests with."""
        self.requests: list[tuple[str, str, str | None]] = []
        """(method, path, `Range` header)."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that close the connection early."""


@contextmanager
def running() -> Iterator[FileServer]:
    with FileServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: FileServer  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_GET(self) -> None:
        self.wfile.write(self._answer())

    def do_HEAD(self) -> None:
        self._answer()

    def _answer(self) -> bytes:
        byte_range = self.headers.get("Range")
        self.server.requests.append((self.command, self.path, byte_range))
        if self.server.statuses:
            self._head(self.server.statuses.popleft(), 0)
            return b""
        start = re.fullmatch(r"bytes=(\d+)-", byte_range or "")
        body = self.server.content[int(start[1]) if start else 0 :]
        self._head(206 if start else 200, len(body))
        return body

    def _head(self, status: int, n_bytes: int) -> None:
        self.send_response(status)
        headers = {"Content-Length": str(n_bytes), "ETag": '"first"', "X-Repo-Commit": REVISION}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the name in the base class)
        """Log nothing."""
