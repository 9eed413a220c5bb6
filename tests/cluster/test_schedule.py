"""Tasks are run until each has a result, whatever happens to workers."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from bytemill.data.executors import executor as schedule
from bytemill.data.executors.executor import Done, UnitProgress, Work, WorkerLostError, run
from bytemill.errors import ClusterError, CorpusError

if TYPE_CHECKING:
    from bytemill.data.executors.executor import Task

Outcome = Callable[[int, int], Done | None]


class Scripted:
    """An executor whose tasks end as a function of the item and the attempt says; None: never."""

    description = "a script"

    def __init__(self, outcome: Outcome, num_workers: int = 2) -> None:
        self.num_workers = num_workers
        self.submitted: list[int] = []
        self.cancelled: list[int] = []
        self._outcome = outcome
        self._running: dict[int, tuple[int, int]] = {}

    def set_context(self, context: Any) -> None:
        pass

    def submit(self, task: "Task", item: int) -> int:
        self.submitted.append(item)
        handle = len(self.submitted)
        self._running[handle] = (item, self.submitted.count(item) - 1)
        assert len(self._running) <= self.num_workers
        return handle

    def wait(self, seconds: float) -> list[Done]:
        for handle, (item, attempt) in self._running.items():
            done = self._outcome(item, attempt)
            if done is not None:
                del self._running[handle]
                return [Done(handle, done.value, done.error)]
        return []

    def cancel(self, handle: int) -> None:
        self.cancelled.append(self._running.pop(handle)[0])

    def __enter__(self) -> "Scripted":
        return self

    def __exit__(self, *error: object) -> None:
        pass


def work(n_items: int, **more: Any) -> Work[int]:
    return Work("test", lambda _, item: item, range(n_items), [10] * n_items, **more)


def ok(item: int, attempt: int) -> Done:
    return Done(0, f"{item} at {attempt}")


def test_results_are_in_order_and_known_ones_are_not_repeated() -> None:
    executor = Scripted(ok)
    seen: list[UnitProgress] = []
    assert run(executor, work(4, known={2: "known"}), seen.append) == ["0 at 0", "1 at 0", "known", "3 at 0"]
    assert executor.submitted == [0, 1, 3]
    assert (seen[0].n_done, seen[0].n_bytes, seen[0].n_bytes_before) == (1, 10, 10)
    assert (seen[-1].n_done, seen[-1].n_bytes, seen[-1].total_bytes) == (4, 40, 40)


def test_lost_workers_are_replaced_up_to_a_limit() -> None:
    def lost(item: int, attempt: int) -> Done:
        return Done(0, error=WorkerLostError("killed")) if attempt < 5 and item == 1 else ok(item, attempt)

    seen: list[UnitProgress] = []
    assert run(Scripted(lost), work(3), seen.append) == ["0 at 0", "1 at 5", "2 at 0"]
    assert seen[-1].n_retried == 5

    def always(item: int, attempt: int) -> Done:
        return Done(0, error=WorkerLostError("killed")) if item == 1 else ok(item, attempt)

    executor = Scripted(always)
    with pytest.raises(ClusterError, match="1 has cost 21 workers: killed"):
        run(executor, work(3))
    assert executor.submitted.count(1) == schedule.MAX_LOST + 1


def test_errors_of_the_system_are_tried_again_and_bad_input_is_not() -> None:
    def full(item: int, attempt: int) -> Done:
        return Done(0, error=OSError(28, "No space left")) if attempt < 2 and item == 0 else ok(item, attempt)

    assert run(Scripted(full), work(2)) == ["0 at 2", "1 at 0"]

    def always_full(item: int, attempt: int) -> Done:
        return Done(0, error=OSError(28, "No space left")) if item == 0 else ok(item, attempt)

    executor = Scripted(always_full)
    with pytest.raises(ClusterError, match=r"0 failed 3 times: OSError: \[Errno 28\] No space left"):
        run(executor, work(5))
    assert sorted(executor.submitted) == [0, 0, 0, 1, 2, 3, 4]

    def bad(item: int, attempt: int) -> Done:
        return Done(0, error=CorpusError(f"bad {item}")) if item in (1, 3) else ok(item, attempt)

    executor = Scripted(bad)
    with pytest.raises(CorpusError, match="bad 1") as caught:
        run(executor, work(6))
    assert caught.value.__notes__ == ["1 other units failed: 3"]
    assert sorted(executor.submitted) == list(range(6))


def test_a_slow_task_gets_a_second_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "SLOW_SECONDS", 0.05)

    def stalled(item: int, attempt: int) -> Done | None:
        return None if item == 1 and attempt == 0 else ok(item, attempt)

    executor = Scripted(stalled, num_workers=3)
    assert run(executor, work(4)) == ["0 at 0", "1 at 1", "2 at 0", "3 at 0"]
    assert executor.submitted.count(1) == 2
    assert executor.cancelled == [1]


def test_an_exception_of_the_callback_cancels_what_runs() -> None:
    def stop(event: UnitProgress) -> None:
        if event.n_running == 2:
            raise KeyboardInterrupt

    executor = Scripted(lambda item, attempt: None if item else ok(item, attempt))
    with pytest.raises(KeyboardInterrupt):
        run(executor, work(4), stop)
    assert executor.cancelled == [1, 2]
