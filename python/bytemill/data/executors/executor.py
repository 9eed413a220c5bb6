"""What runs tasks, and how: one small interface, and the loop that runs idempotent tasks until each has a result.

A task that raises one of bytemill's own errors fails for good: bad input stays bad. A lost worker and any other error
are tried again. When nothing is left to start, a task that takes several times as long as the others gets a second
copy, and the first result counts.
"""

from __future__ import annotations

import pickle
import statistics
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

from bytemill.errors import BytemillError, ClusterError, OutputError, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    Task: TypeAlias = Callable[[Any, Any], Any]
    """Called as `task(context, item)`. A function of a module, so that other processes find it by name; what it takes
    and returns is pickled."""

    Report: TypeAlias = "Callable[[UnitProgress], None]"
    """Called with the progress a few times a second. An exception that it raises ends the work."""


@dataclass(frozen=True)
class Done:
    """The end of a task."""

    handle: int
    value: Any = None
    """What the task returned."""
    error: BaseException | None = None
    """What it raised, or `WorkerLostError`."""


class WorkerLostError(Exception):
    """The process or the machine that ran a task died."""


class Executor(Protocol):
    """Runs tasks in other processes. An executor is a context manager that ends them."""

    @property
    def num_workers(self) -> int:
        """How many tasks run at the same time."""
        ...

    @property
    def description(self) -> str:
        """What it is, for messages."""
        ...

    def set_context(self, context: Any) -> None:
        """Set the first argument of all tasks that are submitted from now on. It is sent to a worker once."""
        ...

    def submit(self, task: Task, item: Any) -> int:
        """Start a task as soon as a worker is free, and return its handle."""
        ...

    def wait(self, seconds: float) -> list[Done]:
        """Return the tasks that have ended since the last call, waiting up to `seconds` for the first.

        Raises:
            ClusterError: No worker is left, and none can be started.
        """
        ...

    def cancel(self, handle: int) -> None:
        """Stop a task, or forget it; `wait` does not return it any more."""
        ...

    def __enter__(self) -> Executor: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...


def portable(error: BaseException) -> BaseException:
    """Return an exception that can be pickled: the same one, or a RuntimeError with its text."""
    try:
        copy = pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error if type(copy) is type(error) else RuntimeError(f"{type(error).__name__}: {error}")


MAX_LOST = 20
"""Lost workers that one task may cost. A task that kills its worker every time must end some time."""
MAX_ERRORS = 3
"""Errors other than bytemill's own that a task may raise."""
SLOW_FACTOR = 3.0
"""A task is slow if it runs this many times as long as the median of those that ended."""
SLOW_SECONDS = 10.0
"""Tasks are not slow before this time."""
_POLL_SECONDS = 0.2

_Item = TypeVar("_Item")


@dataclass(frozen=True)
class UnitProgress:
    """Progress of the tasks of one stage."""

    stage: str
    """"count", "merge", "encode" or "pack"; of a curation "hash", "curate", "check" or "write"."""
    n_units: int
    n_done: int
    n_failed: int
    n_retried: int
    """Tasks started again after an error or the loss of their worker."""
    n_bytes: int
    """Bytes of the units that are done, in the unit of `total_bytes`."""
    total_bytes: int
    n_bytes_before: int = 0
    """Bytes of the units that an earlier run had finished."""
    n_running: int = 0


@dataclass
class Work(Generic[_Item]):
    """The tasks of one stage."""

    stage: str
    task: Task
    items: Sequence[_Item]
    """Their arguments. `str` of one names it in messages."""
    sizes: Sequence[int]
    """Bytes of each item, for progress."""
    known: dict[int, Any] = field(default_factory=dict[int, Any])
    """Results of an earlier run, by index."""


def run(executor: Executor, work: Work[Any], progress: Report | None = None) -> list[Any]:
    """Run all tasks and return their results in order.

    Raises:
        BytemillError: A task failed; all others have ended. The first failure in the order of the items is raised, and
            its notes name the others.
        ClusterError: A task has cost too many workers, or no worker is left.
    """
    running = _Running(executor, work, progress)
    try:
        return running.run()
    finally:
        running.cancel_all()


class _Running:
    def __init__(self, executor: Executor, work: Work[Any], progress: Report | None) -> None:
        self._executor = executor
        self._work = work
        self._progress = progress
        self._results = dict(work.known)
        self._waiting = deque(index for index in range(len(work.items)) if index not in self._results)
        self._running: dict[int, tuple[int, float]] = {}
        """Handle -> index of the item and when it was submitted."""
        self._durations: list[float] = []
        self._n_lost: dict[int, int] = {}
        self._n_errors: dict[int, int] = {}
        self._failures: dict[int, BytemillError] = {}
        self._n_retried = 0
        # Sums once, since there may be a hundred thousand units and thousands of events a second.
        self._total_bytes = sum(work.sizes)
        self._n_bytes = self._n_bytes_before = sum(work.sizes[index] for index in work.known)

    def run(self) -> list[Any]:
        self._report()
        while self._waiting or self._running:
            while self._waiting and len(self._running) < self._executor.num_workers:
                self._submit(self._waiting.popleft())
            for done in self._executor.wait(_POLL_SECONDS):
                self._end(done)
            if not self._waiting:
                self._copy_slow()
            self._report()
        if self._failures:
            raise self._failure()
        return [self._results[index] for index in range(len(self._work.items))]

    def cancel_all(self) -> None:
        for handle in self._running:
            self._executor.cancel(handle)
        self._running.clear()

    def _submit(self, index: int) -> None:
        handle = self._executor.submit(self._work.task, self._work.items[index])
        self._running[handle] = (index, time.monotonic())

    def _end(self, done: Done) -> None:
        if done.handle not in self._running:
            return
        index, started = self._running.pop(done.handle)
        if index in self._results or index in self._failures:
            return
        if done.error is None:
            self._results[index] = done.value
            self._n_bytes += self._work.sizes[index]
            self._durations.append(time.monotonic() - started)
        elif isinstance(done.error, WorkerLostError):
            self._n_lost[index] = self._n_lost.get(index, 0) + 1
            if self._n_lost[index] > MAX_LOST:
                raise ClusterError(
                    f"{self._name(index)} has cost {self._n_lost[index]} workers: {done.error}",
                    hint="give the workers more memory, or make the units smaller (--unit-size)",
                ) from done.error
            self._retry(index)
            return
        elif isinstance(done.error, BytemillError) and not isinstance(done.error, OutputError | StorageError):
            self._failures[index] = done.error
        else:
            self._n_errors[index] = self._n_errors.get(index, 0) + 1
            if self._n_errors[index] < MAX_ERRORS:
                self._retry(index)
                return
            self._failures[index] = _as_failure(self._name(index), done.error)
        self._cancel_copies(index)

    def _retry(self, index: int) -> None:
        self._n_retried += 1
        if not any(other == index for other, _ in self._running.values()):
            self._waiting.append(index)

    def _cancel_copies(self, index: int) -> None:
        for handle in [handle for handle, (other, _) in self._running.items() if other == index]:
            del self._running[handle]
            self._executor.cancel(handle)

    def _copy_slow(self) -> None:
        """Start a second copy of the task that has run longest, if a worker is free and it is slow."""
        if not self._durations or len(self._running) >= self._executor.num_workers:
            return
        limit = max(SLOW_SECONDS, SLOW_FACTOR * statistics.median(self._durations))
        indices = [index for index, _ in self._running.values()]
        slow = [
            (started, index)
            for index, started in self._running.values()
            if time.monotonic() - started > limit and indices.count(index) == 1
        ]
        if slow:
            self._n_retried += 1
            self._submit(min(slow)[1])

    def _name(self, index: int) -> str:
        return str(self._work.items[index])

    def _failure(self) -> BytemillError:
        first, *others = sorted(self._failures)
        error = self._failures[first]
        if others:
            error.add_note(f"{len(others)} other units failed: {', '.join(map(self._name, others[:5]))}")
        return error

    def _report(self) -> None:
        if self._progress is None:
            return
        self._progress(
            UnitProgress(
                self._work.stage,
                len(self._work.items),
                len(self._results),
                len(self._failures),
                self._n_retried,
                self._n_bytes,
                self._total_bytes,
                self._n_bytes_before,
                len(self._running),
            )
        )


def _as_failure(name: str, error: BaseException) -> BytemillError:
    if isinstance(error, BytemillError):
        return error
    failure = ClusterError(f"{name} failed {MAX_ERRORS} times: {type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure
