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
from bytemill.studio.jobs import JobCancelledError, Jobs

T = TypeVar("T")


class Client:
    """A request whose client may go away."""

    is_gone = False

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
