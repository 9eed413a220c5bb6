"""Run the studio: a socket, a server, how it ends, and connections that end when the other side is too slow."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

import h11
import uvicorn
from anyio import to_thread
from uvicorn.protocols.http.h11_impl import H11Protocol

from bytemill.errors import OutputError
from bytemill.studio.app import create_app
from bytemill.studio.security import Access, bracketed, reachable_host

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bytemill.studio.library import Library


DEFAULT_PORT = 8321
_N_PORTS = 20
_N_THREADS = 6


@dataclass(frozen=True)
class Address:
    """Where a server listens."""

    socket: socket.socket
    url: str
    """What to open, also from another machine if it may; with the token if there is one."""
    access: Access


def listen(host: str = "127.0.0.1", port: int | None = None, allowed: Sequence[str] = ()) -> Address:
    """Open the socket of a server.

    Args:
        host: Address to listen on. Anything but the loopback interface needs a token, which is part of the URL.
        port: Port; 0 for any free one. By default 8321, or the next one that is free.
        allowed: Further names under which browsers reach it, as in `Access.of`.

    Raises:
        OutputError: The port is in use, the address is not one of this machine, or `allowed` has something that is no
            name of a host.
    """
    ports = range(DEFAULT_PORT, DEFAULT_PORT + _N_PORTS) if port is None else [port]
    for number in ports:
        try:
            own = _bound_socket(host, number)
        except OSError as error:
            if error.errno == errno.EADDRINUSE and number != ports[-1]:
                continue
            raise OutputError(
                f"cannot listen on {host}:{number}: {error.strerror or error}",
                hint="choose another port: --port 0 takes a free one",
            ) from error
        address, own_port = own.getsockname()[:2]
        try:
            access = Access.of(host, own_port, allowed)
        except OutputError:
            own.close()
            raise
        shown = reachable_host(own) if ipaddress.ip_address(address).is_unspecified else bracketed(host)
        url = f"http://{shown}:{own_port}/"
        return Address(own, url if access.token is None else f"{url}?token={access.token}", access)
    raise AssertionError("there is at least one port")


def _bound_socket(host: str, port: int) -> socket.socket:
    family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    # With the protocol named, asyncio turns Nagle's algorithm off: small answers would wait for 40 ms.
    own = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        own.bind((host, port))
        own.listen(128)
    except OSError:
        own.close()
        raise
    return own


def serve(
    library: Library, address: Address, *, device: str = "auto", on_start: Callable[[], None] | None = None
) -> None:
    """Answer requests until SIGINT or SIGTERM.

    Args:
        library: What may be opened.
        address: Where to listen.
        device: Device of models.
        on_start: Called when requests are answered.

    Raises:
        KeyboardInterrupt: The server was interrupted.
    """
    server = Server(library, address, device, on_start)
    with contextlib.suppress(asyncio.CancelledError):
        server.run(sockets=[address.socket])


class Server(uvicorn.Server):
    """uvicorn's server of the application; the arguments are those of `serve`."""

    def __init__(
        self, library: Library, address: Address, device: str, on_start: Callable[[], None] | None
    ) -> None:
        app = create_app(library, address.access, device=device)
        self._jobs, self._on_start = app.state.studio.jobs, on_start
        super().__init__(
            uvicorn.Config(
                app,
                log_level="error",
                access_log=False,
                server_header=False,
                ws="none",
                lifespan="off",
                timeout_graceful_shutdown=1,
                timeout_keep_alive=75,
                http=Connection,
            )
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer."""
        # Requests run on few threads: each keeps memory of its own, and two encode a text on all cores.
        to_thread.current_default_thread_limiter().total_tokens = _N_THREADS
        await super().startup(sockets)
        if self._on_start is not None:
            self._on_start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End, and cancel all jobs."""
        self._jobs.stop()
        await super().shutdown(sockets)


HEADER_SECONDS = 20.0
"""Time for the line and the headers of a request, from its first byte or from the connection on."""
READER_SECONDS = 60.0
"""A client that has taken nothing of an answer for this time is gone."""


class Connection(H11Protocol):
    """uvicorn's protocol with limits of time. It has one of its own for the time between two requests."""

    _header_timer: asyncio.TimerHandle | None = None
    _reader_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request."""
        super().connection_made(transport)
        self._header_timer = self.loop.call_later(HEADER_SECONDS, self.timeout_keep_alive_handler)

    def data_received(self, data: bytes) -> None:
        """Read a part of a request."""
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:  # the headers are complete
            self._header_timer = _cancelled(self._header_timer)
        elif self._header_timer is None:
            self._header_timer = self.loop.call_later(HEADER_SECONDS, self.timeout_keep_alive_handler)

    def pause_writing(self) -> None:
        """Watch whether the client takes anything of what is to be sent."""
        super().pause_writing()
        self._watch_reader()

    def resume_writing(self) -> None:
        """Send on."""
        super().resume_writing()
        self._reader_timer = _cancelled(self._reader_timer)

    def connection_lost(self, exc: Exception | None) -> None:
        """End the request."""
        super().connection_lost(exc)
        self._header_timer = _cancelled(self._header_timer)
        self._reader_timer = _cancelled(self._reader_timer)

    def _watch_reader(self) -> None:
        n_before = self.transport.get_write_buffer_size()

        def check() -> None:
            if self.transport.get_write_buffer_size() < n_before:
                self._watch_reader()
            else:
                self.transport.abort()

        self._reader_timer = self.loop.call_later(READER_SECONDS, check)


def _cancelled(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
