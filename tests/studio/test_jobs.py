"""Jobs: their limits, and their end when the client goes away."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest
from fastapi import HTTPException

from bytemill.errors import RunConfigError
from bytemill.studio import jobs as module
from bytemill.studio.jobs import NAME_HEADER, JobCancelledError, Jobs

T = TypeVar("T")
Check = Callable[[], None]
Events = Iterator[tuple[str, dict[str, Any]]]


class Client:
    """A request whose client may go away."""

    is_gone = False

    def __init__(self, name: str = "") -> None:
        self.headers = {NAME_HEADER: name}

    async def is_disconnected(self) -> bool:
        return self.is_gone


def run_alone(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a thread, since this one may have the loop of a browser."""
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(asyncio.run, work).result()


def run(jobs: Jobs, work: Callable[..., Any], client: Any = None) -> Any:
    request: Any = client or Client()
    return run_alone(jobs.run(request, work))


def fails(jobs: Jobs, work: Callable[..., Any], client: Client | None = None) -> HTTPException:
    with pytest.raises(HTTPException) as caught:
        run(jobs, work, client)
    return caught.value


def is_idle(jobs: Jobs) -> bool:
    return not jobs._waiting and jobs._n_running == 0  # pyright: ignore[reportPrivateUsage]


async def settle(check: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not check():
        assert time.monotonic() < end
        await asyncio.sleep(0.005)


async def parts(jobs: Jobs, work: Callable[..., Any]) -> list[str]:
    return [str(part) async for part in jobs.stream(work).body_iterator]


def test_the_result_and_errors_are_passed_on():
    jobs = Jobs()
    assert run(jobs, lambda check: check() or 5) == 5
    with pytest.raises(RunConfigError):
        run(jobs, lambda _: (_ for _ in ()).throw(RunConfigError("wrong")))
    run_alone(settle(lambda: is_idle(jobs)))


@pytest.mark.parametrize("is_gone", [True, False])
def test_work_ends_when_the_client_is_gone_or_at_the_time_limit(
    is_gone: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "SECONDS", 20 if is_gone else 0.05)
    monkeypatch.setattr(module, "_POLL_SECONDS", 0.02)
    client, ended = Client(), threading.Event()

    def work(check: Check) -> None:
        client.is_gone = is_gone
        try:
            while True:
                check()
                time.sleep(0.005)
        finally:
            ended.set()

    assert fails(Jobs(), work, client).status_code == 504
    assert ended.is_set()


def test_too_many_a_second_and_jobs_after_the_end_are_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "RATE", 1e-9)
    monkeypatch.setattr(module, "BURST", 3.0)
    jobs = Jobs()
    for _ in range(3):
        run(jobs, lambda _: None)
    error = fails(jobs, lambda _: None)
    assert (error.status_code, error.headers) == (429, {"Retry-After": "1"})
    jobs = Jobs()
    jobs.stop()
    assert fails(jobs, lambda _: None).status_code == 503


class TestStream:
    def test_it_ends_its_work_when_it_is_closed(self):
        jobs, ended = Jobs(), threading.Event()

        def work(check: Check) -> Events:
            try:
                for i in range(10**9):
                    yield "token", {"i": i}
                    check()
                    time.sleep(0.002)
            finally:
                ended.set()

        async def main() -> str:
            jobs.stream(lambda _: iter(()))  # nobody reads it
            body = jobs.stream(work).body_iterator
            first = await anext(aiter(body))
            await body.aclose()  # type: ignore[attr-defined]
            await settle(lambda: ended.is_set() and is_idle(jobs))
            return str(first)

        assert run_alone(main()) == 'event: token\ndata: {"i": 0}\n\n'

    @pytest.mark.parametrize(
        ("error", "message"),
        [
            (RunConfigError("too long", hint="cut it"), "too long"),
            (JobCancelledError(), "the work was cancelled or took too long"),
        ],
    )
    def test_an_error_is_its_last_event(self, error: Exception, message: str):
        def work(_: Check) -> Events:
            yield "token", {}
            raise error

        first, last = run_alone(parts(Jobs(), work))
        assert first.startswith("event: token")
        assert last.startswith("event: failed")
        assert message in last

    def test_it_just_ends_when_the_studio_stops(self):
        jobs = Jobs()

        def work(check: Check) -> Events:
            yield "token", {}
            while True:
                check()
                time.sleep(0.005)

        async def main() -> list[str]:
            body = jobs.stream(work).body_iterator
            first = await anext(aiter(body))
            jobs.stop()
            return [str(first), *[str(part) async for part in body]]

        assert run_alone(main()) == ["event: token\ndata: {}\n\n"]

    def test_with_a_free_worker_it_is_not_queued(self):
        assert run_alone(parts(Jobs(), lambda _: iter(()))) == ["event: done\ndata: {}\n\n"]

    def test_a_reader_that_reads_nothing_holds_no_worker(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(module, "N_THREADS", 2)
        jobs = Jobs()

        def work(_: Check) -> Events:
            for i in range(500):
                yield "token", {"i": i}

        async def main() -> tuple[int, int]:
            streams = [jobs.stream(work) for _ in range(4)]
            client: Any = Client()
            answer = await jobs.run(client, lambda _: 7)
            await settle(lambda: is_idle(jobs))
            return answer, len([1 async for part in streams[-1].body_iterator if "event: token" in str(part)])

        assert run_alone(main()) == (7, 500)


class Queue:
    """One worker that is held, and two jobs that may wait for it."""

    def __init__(self) -> None:
        self.jobs = Jobs()
        self.release = threading.Event()
        self.began: list[str] = []

    def start(self, name: str, client: Client | None = None) -> "asyncio.Task[str]":
        def work(_: Check) -> str:
            self.began.append(name)
            assert self.release.wait(20)
            return name

        request: Any = client or Client(name)
        return asyncio.ensure_future(self.jobs.run(request, work))


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Queue:
    monkeypatch.setattr(module, "N_THREADS", 1)
    monkeypatch.setattr(module, "MAX_WAITING", 3)
    monkeypatch.setattr(module, "_POLL_SECONDS", 0.02)
    return Queue()


class TestQueue:
    def test_a_job_that_waits_knows_how_many_are_before_it_and_none_is_lost(self, queue: Queue):
        async def main() -> None:
            tasks = [queue.start(name) for name in "abcd"]
            await settle(lambda: queue.began == ["a"])
            assert [queue.jobs.before(name) for name in "abcdx"] == [None, 0, 1, 2, None]
            with pytest.raises(HTTPException) as caught:
                await queue.start("e")
            assert caught.value.status_code == 503
            queue.release.set()
            assert await asyncio.gather(*tasks) == list("abcd")
            assert [queue.jobs.before(name) for name in "abcd"] == [None] * 4

        run_alone(main())
        assert queue.began == list("abcd")
        run_alone(settle(lambda: is_idle(queue.jobs)))

    def test_a_job_that_is_not_wanted_any_more_leaves_without_running(self, queue: Queue):
        async def main() -> None:
            second = Client("b")
            first = queue.start("a")
            await settle(lambda: queue.began == ["a"])
            gone, last = queue.start("b", second), queue.start("c")
            await settle(lambda: queue.jobs.before("c") == 1)
            second.is_gone = True
            await settle(lambda: queue.jobs.before("c") == 0)
            with pytest.raises(HTTPException) as caught:
                await gone
            assert caught.value.status_code == 504
            queue.release.set()
            assert await asyncio.gather(first, last) == ["a", "c"]

        run_alone(main())
        assert queue.began == ["a", "c"]

    def test_a_stream_is_told_how_many_are_before_it(self, queue: Queue):
        async def main() -> list[str]:
            tasks = [queue.start("a")]
            await settle(lambda: queue.began == ["a"])
            tasks += [queue.start(name) for name in "bc"]
            await settle(lambda: queue.jobs.before("c") == 1)
            body = queue.jobs.stream(lambda _: iter([("token", {})])).body_iterator
            first = await anext(aiter(body))
            queue.release.set()
            rest = [str(part) async for part in body]
            await asyncio.gather(*tasks)
            return [str(first), *rest]

        events = [f'event: queued\ndata: {{"before": {before}}}\n\n' for before in (2, 1, 0, "null")]
        assert run_alone(main()) == [*events, "event: token\ndata: {}\n\n", "event: done\ndata: {}\n\n"]

    def test_a_stream_ends_when_the_studio_stops(self, queue: Queue):
        async def main() -> list[str]:
            first = queue.start("a")
            await settle(lambda: queue.began == ["a"])
            body = queue.jobs.stream(lambda _: iter([("token", {})])).body_iterator
            queue.jobs.stop()
            found = [str(part) async for part in body]
            queue.release.set()
            await first
            return found

        assert run_alone(main()) == ['event: queued\ndata: {"before": 0}\n\n']
