"""Clients that send or read slowly: they are cut off, and hold nobody else."""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock
from urllib.parse import urlsplit

import httpx
import pytest
from uvicorn import Config
from uvicorn.server import ServerState

from bytemill.studio import security, server
from bytemill.studio.server import HEADER_SECONDS, READER_SECONDS, Connection


@contextmanager
def connected(url: str, sent: bytes) -> Iterator[socket.socket]:
    """Open a connection and send the beginning of a request."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=20) as own:
        own.sendall(sent.replace(b"HOST", parts.netloc.encode()))
        yield own


def read_all(own: socket.socket) -> bytes:
    return b"".join(iter(lambda: own.recv(65536), b""))


@pytest.mark.parametrize("sent", [b"", b"GET /api/v1/status HTTP/1.1\r\nhost: HOST\r\n"])
def test_headers_that_do_not_end_close_the_connection(url: str, sent: bytes, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server, "HEADER_SECONDS", 0.2)
    with connected(url, sent) as own:
        assert read_all(own) == b""


def test_the_next_headers_on_a_connection_have_the_same_time(url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server, "HEADER_SECONDS", 0.2)
    with connected(url, b"GET /api/v1/status HTTP/1.1\r\nhost: HOST\r\n\r\n") as own:
        assert own.recv(65536).startswith(b"HTTP/1.1 200 ")
        own.sendall(b"GET /api")
        assert b"HTTP" not in read_all(own)


def test_a_body_that_does_not_end_is_answered_with_408(url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(security, "BODY_SECONDS", 0.2)
    head = b"POST /api/v1/texts HTTP/1.1\r\nhost: HOST\r\ncontent-type: application/json\r\ncontent-length: 50\r\n\r\n"
    with connected(url, head + b'{"text": ') as own:
        answer = read_all(own)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"the body did not arrive within" in answer
    assert b"content-security-policy" in answer
    assert httpx.get(f"{url}api/v1/status", trust_env=False).status_code == 200


class FakeTransport:
    """A transport whose reader takes `n_taken` bytes between two looks."""

    def __init__(self) -> None:
        self.n_unsent, self.n_taken = 100_000, 0
        self.is_aborted = self.is_closed = False

    def get_extra_info(self, _: str) -> None:
        return None

    def get_write_buffer_size(self) -> int:
        self.n_unsent -= self.n_taken
        return self.n_unsent

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_aborted = True


class FakeLoop:
    """A loop whose timers end when the test says so."""

    def __init__(self) -> None:
        self.timers: dict[Any, tuple[float, Callable[[], None]]] = {}

    def call_later(self, seconds: float, call: Callable[[], None]) -> Any:
        loop = self

        class Timer:
            def cancel(self) -> None:
                loop.timers.pop(self, None)

        timer = Timer()
        self.timers[timer] = seconds, call
        return timer

    def create_task(self, work: Any) -> Any:
        work.close()
        return MagicMock()

    def end(self, seconds: float) -> None:
        ((timer, (_, call)),) = [each for each in self.timers.items() if each[1][0] == seconds]
        del self.timers[timer]
        call()

    @property
    def seconds(self) -> list[float]:
        return [seconds for seconds, _ in self.timers.values()]


@pytest.fixture
def made() -> tuple[Connection, FakeTransport, FakeLoop]:
    """A connection that has just been made."""

    async def app(scope: Any, receive: Any, send: Any) -> None: ...

    transport, loop = FakeTransport(), FakeLoop()
    config = Config(app, log_level="error", ws="none", lifespan="off")
    own = Connection(config, ServerState(), {}, loop)  # type: ignore[arg-type]
    own.connection_made(transport)  # type: ignore[arg-type]
    return own, transport, loop


def test_each_byte_of_the_headers_does_not_prolong_their_time(made: tuple[Connection, Any, FakeLoop]):
    own, transport, loop = made
    for byte in b"GET / HTT":
        own.data_received(bytes([byte]))
    assert loop.seconds == [HEADER_SECONDS]
    loop.end(HEADER_SECONDS)
    assert transport.is_closed


def test_with_complete_headers_their_time_is_over(made: tuple[Connection, Any, FakeLoop]):
    own, _, loop = made
    own.data_received(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
    assert loop.seconds == []


def test_a_reader_that_takes_nothing_is_cut_off(made: tuple[Connection, FakeTransport, FakeLoop]):
    own, transport, loop = made
    own.data_received(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
    own.pause_writing()
    transport.n_taken = 10
    for _ in range(3):
        loop.end(READER_SECONDS)
        assert not transport.is_aborted
    transport.n_taken = 0
    loop.end(READER_SECONDS)
    assert transport.is_aborted


def test_a_reader_that_has_taken_all_is_not_watched(made: tuple[Connection, FakeTransport, FakeLoop]):
    own, _, loop = made
    own.data_received(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
    own.pause_writing()
    own.resume_writing()
    assert loop.seconds == []
    own.pause_writing()
    own.connection_lost(None)
    assert loop.seconds == []


def test_readers_that_read_nothing_hold_no_other_request(url: str, client: httpx.Client, root: Path):
    from tests.studio.conftest import id_of

    model = id_of(client, "runs/first", "models")
    body = b'{"ids": [], "max_tokens": 500, "stop_at_special": false}'
    head = (
        f"POST /api/v1/models/{model}/generate HTTP/1.1\r\nhost: HOST\r\ncontent-type: application/json\r\n"
    )
    request = f"{head}content-length: {len(body)}\r\n\r\n".encode() + body
    with (
        connected(url, request),
        connected(url, request),
        connected(url, request),
        connected(url, request),
        connected(url, request),
    ):
        answer = client.post(f"/models/{model}/surprisal", json={"text": "The cat"})
        assert answer.status_code == 200
