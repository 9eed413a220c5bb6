"""Heavy work on a few threads, which ends when the client goes away."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
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
NAME_HEADER = "x-job"
"""Header of a request by whose value its client asks how many jobs are before it."""
RATE, BURST = 20.0, 60.0
"""Jobs that are accepted per second, and at once."""
_POLL_SECONDS = 0.2


class JobCancelledError(Exception):
    """The client has gone, the server stops, or the time limit is reached."""


@dataclass(eq=False)
class _Job:
    """A job that waits or runs."""

    name: str = ""
    on_move: Callable[[int | None], None] | None = None
    """Called when `before` changes."""
    before: int | None = None
    """How many jobs wait before this one; None once a thread is free for it."""
    cancelled: threading.Event = field(default_factory=threading.Event)
    future: Future[Any] = field(default_factory=Future[Any])

    def move(self, before: int | None) -> None:
        if before != self.before:
            self.before = before
            if self.on_move is not None:
                self.on_move(before)

    def cancel(self) -> None:
        """End the job: at its next check if it runs, at once if it waits."""
        self.cancelled.set()
        self.future.cancel()


class Jobs:
    """A queue of jobs, with limits of their number, rate and time."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(N_THREADS, thread_name_prefix="studio-job")
        self._credit, self._counted = BURST, time.monotonic()
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._waiting: list[_Job] = []
        self._n_running = 0

    def before(self, name: str) -> int | None:
        """Return how many jobs wait before the one of a name; None if it does not wait."""
        with self._lock:
            return next((job.before for job in self._waiting if job.name == name), None)

    async def run(self, request: Request, work: Callable[[Check], T]) -> T:
        """Run `work` on a thread and return its result.

        Raises:
            HTTPException: 503 if too many jobs wait, 429 if too many were started, 504 after the time limit.
        """
        job = _Job(request.headers.get(NAME_HEADER, ""))
        self._submit(job, work)
        future = asyncio.wrap_future(job.future)
        try:
            while not (await asyncio.wait({future}, timeout=_POLL_SECONDS))[0]:
                if await request.is_disconnected():
                    job.cancel()
            if not future.cancelled():
                return future.result()
        except JobCancelledError:
            pass
        finally:
            job.cancel()
        raise HTTPException(504, "the work was cancelled or took too long")

    def stream(self, work: Callable[[Check], Iterator[tuple[str, dict[str, Any]]]]) -> StreamingResponse:
        """Return the events (name, data) that `work` yields on a thread, as server-sent events.

        While it waits for a thread, each change of the number of jobs before it is an event "queued" with `before`,
        which is null once it starts. The last event is "done", or "failed" with `message` and `hint`.

        The thread never waits for the reader: a slow one finds all events in a queue.

        Raises:
            HTTPException: As in `run`, before the stream starts.
        """
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[tuple[str, dict[str, Any]] | None] = asyncio.Queue()
        job = _Job(on_move=lambda before: put(("queued", {"before": before})))

        def put(item: tuple[str, dict[str, Any]] | None) -> None:
            if not job.cancelled.is_set():
                with suppress(RuntimeError):  # the server has ended
                    loop.call_soon_threadsafe(queue.put_nowait, item)

        def produce(check: Check) -> None:
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

        # Started here and not by the first read, which never comes if the client has gone already.
        self._submit(job, produce)
        job.future.add_done_callback(lambda _: put(None))
        return StreamingResponse(
            self._events(queue, job),
            media_type="text/event-stream",
            headers={"Cache-Control": "no-store"},
        )

    @staticmethod
    async def _events(
        queue: asyncio.Queue[tuple[str, dict[str, Any]] | None], job: _Job
    ) -> AsyncIterator[str]:
        try:
            while (event := await queue.get()) is not None:
                yield f"event: {event[0]}\ndata: {json.dumps(event[1])}\n\n"
        finally:
            job.cancel()

    def stop(self) -> None:
        """Cancel all jobs, and accept no more."""
        self._stopped.set()
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _submit(self, job: _Job, work: Callable[[Check], Any]) -> None:
        with self._lock:
            self._admit(time.monotonic())
            self._waiting.append(job)
            job.future = self._executor.submit(self._begin, job, work)
            self._count()
        job.future.add_done_callback(partial(self._end, job))

    def _admit(self, now: float) -> None:
        self._credit = min(BURST, self._credit + (now - self._counted) * RATE)
        self._counted = now
        if self._credit < 1:
            raise HTTPException(429, "too many requests: wait a second", headers={"Retry-After": "1"})
        is_full = self._n_running + len(self._waiting) >= N_THREADS + MAX_WAITING
        if is_full or self._stopped.is_set():
            raise HTTPException(503, "the studio is busy: try again soon", headers={"Retry-After": "2"})
        self._credit -= 1

    def _begin(self, job: _Job, work: Callable[[Check], T]) -> T:
        with self._lock:
            self._waiting.remove(job)
            self._n_running += 1
            self._count()
            job.move(None)
        check = self._check_of(job.cancelled)
        check()
        return work(check)

    def _end(self, job: _Job, _: Future[Any]) -> None:
        with self._lock:
            if job in self._waiting:  # cancelled before it began
                self._waiting.remove(job)
            else:
                self._n_running -= 1
            self._count()

    def _count(self) -> None:
        """Tell each waiting job how many are before it; the first ones have a thread if some are free."""
        n_free = N_THREADS - self._n_running
        for i, job in enumerate(self._waiting):
            job.move(i - n_free if i >= n_free else None)

    def _check_of(self, cancelled: threading.Event) -> Check:
        end = time.monotonic() + SECONDS

        def check() -> None:
            if cancelled.is_set() or self._stopped.is_set() or time.monotonic() > end:
                raise JobCancelledError

        return check
