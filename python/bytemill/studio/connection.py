"""HTTP connections that end when the other side is too slow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio

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
