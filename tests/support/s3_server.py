"""An S3 server on loopback, behind a proxy that injects faults.

It is moto's, in an environment of its own. With BYTEMILL_TEST_S3_SERVER it is the program of that path, which is
versitygw (https://github.com/versity/versitygw), so that the quirks of one server do not pass for the protocol.
"""

import contextlib
import http.client
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from uuid import uuid4

from filelock import FileLock

from .environments import run_uv

REPOSITORY = Path(__file__).resolve().parents[2]
REQUIREMENTS = Path(__file__).with_name("moto.txt")
KEY, SECRET = "AKIDOFTHETESTS", "secret-of-the-tests"
_HOP_BY_HOP = {"connection", "transfer-encoding", "content-length", "keep-alive"}


@dataclass
class Request:
    """What a fault sees of a request."""

    method: str
    path: str
    headers: dict[str, str]


Fault = Callable[[Request], str | None]
"""Returns what shall happen to a request: "500", "503", "403", "drop" (before the server sees it), "lose" (after it has
answered), "truncate" (half of the body of the answer), or None."""


@dataclass
class S3Server:
    """The server, as tests see it."""

    endpoint: str
    faults: list[Fault] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    latency: float = 0.0
    root: Path | None = None
    """Folder of the buckets of versitygw."""

    def bucket(self) -> str:
        """Make a bucket and return its URL."""
        name = f"bucket-{uuid4().hex[:12]}"
        if self.root is not None:
            (self.root / name).mkdir()
            return f"s3://{name}"
        connection = http.client.HTTPConnection(self.endpoint.removeprefix("http://"))
        with contextlib.closing(connection):
            connection.request("PUT", f"/{name}")
            assert connection.getresponse().status == 200
        return f"s3://{name}"

    @contextlib.contextmanager
    def fault(self, fault: Fault) -> Iterator[None]:
        """Inject a fault inside the block."""
        self.faults.append(fault)
        try:
            yield
        finally:
            self.faults.remove(fault)

    @property
    def environment(self) -> dict[str, str]:
        """The variables that lead clients to the server."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }


@contextlib.contextmanager
def s3_server() -> Iterator[S3Server]:
    """Run the server and its proxy."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        if program := os.environ.get("BYTEMILL_TEST_S3_SERVER"):
            root, sidecar = Path(folder, "root"), Path(folder, "sidecar")
            root.mkdir()
            sidecar.mkdir()
            own = ["--access", KEY, "--secret", SECRET, "--port", f"127.0.0.1:{port}"]
            command = [program, *own, "posix", "--sidecar", str(sidecar), str(root)]
        else:
            root = None
            # Windows looks for the program beside Python.
            start = "from moto.server import main; main()"
            command = [_python(), "-c", start, "-H", "127.0.0.1", "-p", str(port)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            _wait(port, process)
            with _proxy(port) as server:
                server.root = root
                yield server
        finally:
            process.kill()
            process.wait()


def _python() -> str:
    """Return the interpreter of the environment of the server, which is made when it is missing."""
    environment = REPOSITORY / ".cache" / "moto"
    python = environment / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    environment.parent.mkdir(exist_ok=True)
    installed = environment / "installed.txt"
    with FileLock(environment.with_suffix(".lock")):
        if not installed.exists() or installed.read_text() != REQUIREMENTS.read_text():
            run_uv("venv", "--no-project", "--clear", "--python", sys.executable, str(environment))
            run_uv("pip", "sync", "--python", str(python), str(REQUIREMENTS))
            installed.write_text(REQUIREMENTS.read_text())
    return str(python)


def _wait(port: int, process: "subprocess.Popen[bytes]") -> None:
    for _ in range(600):
        assert process.poll() is None, "the S3 server has ended"
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.1)
    raise AssertionError("the S3 server does not answer")


@contextlib.contextmanager
def _proxy(port: int) -> Iterator[S3Server]:
    conditional_writes = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def handle_one_request(self) -> None:
            with contextlib.suppress(ConnectionError):
                super().handle_one_request()

        def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002

        def _forward(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            request = Request(self.command, self.path, dict(self.headers))
            server.requests.append(request)
            time.sleep(server.latency)
            what = next(filter(None, (fault(request) for fault in server.faults)), None)
            if what == "drop":
                self._hang_up()
            elif what == "lose":
                self._ask(body)
                self._hang_up()
            elif what in _ANSWERS:
                status, code = _ANSWERS[what]
                text = f"<Error><Code>{code}</Code><Message>injected</Message></Error>".encode()
                self._answer(status, {"Content-Type": "application/xml"}, text, len(text))
            else:
                status, headers, text = self._ask(body)
                length = (
                    int(headers.get("Content-Length", len(text))) if self.command == "HEAD" else len(text)
                )
                if what == "truncate":
                    text = text[: len(text) // 2]
                self._answer(status, headers, text, length)
                if what == "truncate":
                    self._hang_up()

        def _ask(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            # moto checks the condition of a write and then writes; S3 does both at once.
            has_condition = "If-Match" in self.headers or "If-None-Match" in self.headers
            is_conditional = self.command != "GET" and has_condition
            alone = conditional_writes if is_conditional else contextlib.nullcontext()
            with alone, contextlib.closing(connection):
                connection.request(self.command, self.path, body, dict(self.headers))
                answer = connection.getresponse()
                return answer.status, dict(answer.getheaders()), answer.read()

        def _answer(self, status: int, headers: dict[str, str], text: bytes, length: int) -> None:
            self.send_response(status)
            for name, value in headers.items():
                if name.lower() not in _HOP_BY_HOP:
                    self.send_header(name, value)
            self.send_header("Content-Length", str(length))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(text)

        def _hang_up(self) -> None:
            self.close_connection = True
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _forward  # noqa: N815

    http_server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http_server.daemon_threads = True
    server = S3Server(f"http://127.0.0.1:{http_server.server_port}")
    thread = threading.Thread(target=http_server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        http_server.shutdown()
        http_server.server_close()


_ANSWERS = {"500": (500, "InternalError"), "503": (503, "SlowDown"), "403": (403, "ExpiredToken")}
