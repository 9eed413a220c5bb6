"""Heavy work on a few threads, which ends when the client goes away."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from fastapi import HTTPException
from fastapi.responses import StreamingResponse

from bytemill.errors import BytemillError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from fastapi import Request

    Check = Callable[[], None]
    """Raises `JobCancelledError` once nobody waits for the result."""

T = TypeVar("T")

N_THREADS, MAX_WAITING, SECONDS = 4, 64, 300.0
RATE, BURST = 20.0, 60.0
"""Jobs that are accepted per second, and at once."""
_POLL_SECONDS = 0.2


class JobCancelledError(Exception):
    """The client has gone, the server stops, or the time limit is reached."""


class Jobs:
    """A queue of jobs, with limits of their number, rate and time."""

    def __init__(
        self,
        n_threads: int = N_THREADS,
        max_waiting: int = MAX_WAITING,
        rate: float = RATE,
        burst: float = BURST,
    ) -> None:
        self._executor = ThreadPoolExecutor(n_threads, thread_name_prefix="studio-job")
        self._limit = n_threads + max_waiting
        self._rate, self._burst = rate, burst
        self._credit, self._counted = burst, time.monotonic()
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self.n_active = 0
        """Jobs that run or wait."""

    async def run(self, request: Request, work: Callable[[Check], T]) -> T:
        """Run `work` on a thread and return its result.

        Raises:
            HTTPException: 503 if too many jobs wait, 429 if too many were started, 504 after the time limit.
        """
        cancelled = self._admit()
        future = asyncio.wrap_future(self._start(partial(work, self._check_of(cancelled))))
        try:
            while not (await asyncio.wait({future}, timeout=_POLL_SECONDS))[0]:
                if await request.is_disconnected():
                    cancelled.set()
            return future.result()
        except JobCancelledError as error:
            raise HTTPException(504, "the work was cancelled or took too long") from error
        finally:
            cancelled.set()

    def stream(self, work: Callable[[Check], Iterator[tuple[str, dict[str, Any]]]]) -> StreamingResponse:
        """Return the events (name, data) that `work` yields on a thread, as server-sent events.

        The last event is "done", or "failed" with `message` and `hint`.

        Raises:
            HTTPException: As in `run`, before the stream starts.
        """
        cancelled = self._admit()
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[tuple[str, dict[str, Any]] | None] = asyncio.Queue()

        def put(item: tuple[str, dict[str, Any]] | None) -> None:
            if not cancelled.is_set():
                loop.call_soon_threadsafe(queue.put_nowait, item)

        def produce() -> None:
            check = self._check_of(cancelled)
            try:
                for event in work(check):
                    check()
                    put(event)
                put(("done", {}))
            except JobCancelledError:
                if not self._stopped.is_set():  # else the stream just ends, as when the connection is lost
                    put(("failed", {"message": "the work was cancelled or took too long", "hint": None}))
            except BytemillError as error:
                put(("failed", {"message": str(error), "hint": error.hint}))
            except Exception as error:
                put(("failed", {"message": f"bytemill has a bug: {type(error).__name__}", "hint": None}))
                raise
            finally:
                put(None)

        # Started here and not by the first read, which never comes if the client has gone already.
        self._start(produce)
        return StreamingResponse(
            self._events(queue, cancelled),
            media_type="text/event-stream",
            headers={"Cache-Control": "no-store"},
        )

    @staticmethod
    async def _events(
        queue: asyncio.Queue[tuple[str, dict[str, Any]] | None], cancelled: threading.Event
    ) -> AsyncIterator[str]:
        try:
            while (event := await queue.get()) is not None:
                yield f"event: {event[0]}\ndata: {json.dumps(event[1])}\n\n"
        finally:
            cancelled.set()

    def stop(self) -> None:
        """Cancel all jobs, and accept no more."""
        self._stopped.set()
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _admit(self) -> threading.Event:
        with self._lock:
            return self._admitted(time.monotonic())

    def _admitted(self, now: float) -> threading.Event:
        self._credit = min(self._burst, self._credit + (now - self._counted) * self._rate)
        self._counted = now
        if self._credit < 1:
            raise HTTPException(429, "too many requests: wait a second", headers={"Retry-After": "1"})
        if self.n_active >= self._limit or self._stopped.is_set():
            raise HTTPException(503, "the studio is busy: try again soon", headers={"Retry-After": "2"})
        self._credit -= 1
        self.n_active += 1
        return threading.Event()

    def _start(self, work: Callable[[], T]) -> Future[T]:
        future = self._executor.submit(work)
        future.add_done_callback(self._leave)
        return future

    def _leave(self, _: Future[Any]) -> None:
        with self._lock:
            self.n_active -= 1

    def _check_of(self, cancelled: threading.Event) -> Check:
        end: float | None = None

        def check() -> None:
            nonlocal end
            if end is None:  # counted from the start of the work, not of the wait
                end = time.monotonic() + SECONDS
            if cancelled.is_set() or self._stopped.is_set() or time.monotonic() > end:
                raise JobCancelledError

        return check
