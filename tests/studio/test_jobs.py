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


def run(jobs: Jobs, client: Client, work: Callable[..., Any]) -> Any:
    return run_alone(jobs.run(client, work))  # type: ignore[arg-type]


def wait_for(check: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not check():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_the_result_and_errors_are_passed_on():
    jobs = Jobs()
    assert run(jobs, Client(), lambda check: check() or 5) == 5
    with pytest.raises(RunConfigError):
        run(jobs, Client(), lambda _: (_ for _ in ()).throw(RunConfigError("wrong")))
    wait_for(lambda: jobs.n_active == 0)


def test_work_ends_when_the_client_is_gone():
    jobs, client = Jobs(), Client()
    ended = threading.Event()

    def work(check: Callable[[], None]) -> None:
        client.is_gone = True
        try:
            while True:
                check()
                time.sleep(0.005)
        finally:
            ended.set()

    with pytest.raises(HTTPException) as caught:
        run(jobs, client, work)
    assert caught.value.status_code == 504
    assert ended.is_set()


def test_work_ends_at_the_time_limit(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "SECONDS", 0.05)

    def work(check: Callable[[], None]) -> None:
        while True:
            check()
            time.sleep(0.005)

    with pytest.raises(HTTPException) as caught:
        run(Jobs(), Client(), work)
    assert caught.value.status_code == 504


def test_too_many_jobs_are_refused_and_none_is_lost():
    jobs = Jobs(n_threads=1, max_waiting=2)
    release = threading.Event()

    async def main() -> list[Any]:
        client: Any = Client()
        waiting = [
            asyncio.ensure_future(jobs.run(client, lambda _, i=i: release.wait(20) and i)) for i in range(3)
        ]
        await asyncio.sleep(0.1)
        with pytest.raises(HTTPException) as caught:
            await jobs.run(client, lambda _: None)
        assert caught.value.status_code == 503
        release.set()
        return await asyncio.gather(*waiting)

    assert run_alone(main()) == [0, 1, 2]
    wait_for(lambda: jobs.n_active == 0)


def test_too_many_a_second_are_refused():
    jobs = Jobs(rate=1e-9, burst=3.0)
    for _ in range(3):
        run(jobs, Client(), lambda _: None)
    with pytest.raises(HTTPException) as caught:
        run(jobs, Client(), lambda _: None)
    assert caught.value.status_code == 429
    assert caught.value.headers is not None
    assert caught.value.headers["Retry-After"] == "1"


def test_a_stream_ends_its_work_when_it_is_closed():
    jobs = Jobs()
    ended = threading.Event()

    def work(check: Callable[[], None]) -> Iterator[tuple[str, dict[str, Any]]]:
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
        return str(first)

    assert run_alone(main()) == 'event: token\ndata: {"i": 0}\n\n'
    assert ended.wait(20)
    wait_for(lambda: jobs.n_active == 0)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (RunConfigError("too long", hint="cut it"), "too long"),
        (JobCancelledError(), "the work was cancelled or took too long"),
    ],
)
def test_errors_of_a_stream_are_its_last_event(error: Exception, message: str):
    def work(_: Callable[[], None]) -> Iterator[tuple[str, dict[str, Any]]]:
        yield "token", {}
        raise error

    async def main() -> list[str]:
        return [str(part) async for part in Jobs().stream(work).body_iterator]

    first, last = run_alone(main())
    assert first.startswith("event: token")
    assert last.startswith("event: failed")
    assert message in last


def test_a_stopped_studio_takes_no_jobs():
    jobs = Jobs()
    jobs.stop()
    with pytest.raises(HTTPException) as caught:
        run(jobs, Client(), lambda _: None)
    assert caught.value.status_code == 503


class Queue:
    """One worker that is held, and jobs that wait for it."""

    def __init__(self) -> None:
        self.jobs = Jobs(n_threads=1)
        self.release = threading.Event()
        self.began: list[str] = []

    def work(self, name: str) -> Callable[..., Any]:
        def work(_: Callable[[], None]) -> str:
            self.began.append(name)
            assert self.release.wait(20)
            return name

        return work

    def start(self, name: str, client: Client | None = None) -> "asyncio.Task[str]":
        request: Any = client or Client(name)
        return asyncio.ensure_future(self.jobs.run(request, self.work(name)))


async def settle(check: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not check():
        assert time.monotonic() < end
        await asyncio.sleep(0.005)


def test_a_job_that_waits_knows_how_many_are_before_it():
    queue = Queue()

    async def main() -> None:
        tasks = [queue.start(name) for name in "abcd"]
        await settle(lambda: queue.jobs.n_active == 4 and queue.began == ["a"])
        assert [queue.jobs.before(name) for name in "abcdx"] == [None, 0, 1, 2, None]
        queue.release.set()
        assert await asyncio.gather(*tasks) == list("abcd")
        assert [queue.jobs.before(name) for name in "abcd"] == [None] * 4

    run_alone(main())
    assert queue.began == list("abcd")


def test_a_job_that_is_not_wanted_any_more_leaves_the_queue_without_running():
    queue, second = Queue(), Client("b")

    async def main() -> None:
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


def test_a_stream_that_waits_is_told_how_many_are_before_it():
    queue = Queue()

    async def main() -> list[str]:
        tasks = [queue.start("a")]
        await settle(lambda: queue.began == ["a"])
        tasks += [queue.start(name) for name in "bcd"]
        await settle(lambda: queue.jobs.before("d") == 2)
        body = queue.jobs.stream(lambda _: iter([("token", {})])).body_iterator
        first = await anext(aiter(body))
        queue.release.set()
        rest = [str(part) async for part in body]
        await asyncio.gather(*tasks)
        return [str(first), *rest]

    events = [f'event: queued\ndata: {{"before": {before}}}\n\n' for before in (3, 2, 1, 0, "null")]
    assert run_alone(main()) == [*events, "event: token\ndata: {}\n\n", "event: done\ndata: {}\n\n"]


def test_a_stream_with_a_free_worker_is_not_queued():
    async def main() -> list[str]:
        return [str(part) async for part in Jobs().stream(lambda _: iter(())).body_iterator]

    assert run_alone(main()) == ["event: done\ndata: {}\n\n"]


def test_a_reader_that_reads_nothing_holds_no_worker():
    jobs = Jobs(n_threads=2)

    def work(_: Callable[[], None]) -> Iterator[tuple[str, dict[str, Any]]]:
        for i in range(5000):
            yield "token", {"i": i}

    async def main() -> tuple[int, int]:
        streams = [jobs.stream(work) for _ in range(4)]
        client: Any = Client()
        answer = await jobs.run(client, lambda _: 7)
        await settle(lambda: jobs.n_active == 0)
        return answer, len([1 async for part in streams[-1].body_iterator if "event: token" in str(part)])

    assert run_alone(main()) == (7, 5000)


def test_streams_that_wait_end_when_the_studio_stops():
    queue = Queue()

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
