"""What runs tasks: one small interface, implemented by local processes and by Ray."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    Task: TypeAlias = Callable[[Any, Any], Any]
    """Called as `task(context, item)`. A function of a module, so that other processes find it by name; what it takes
    and returns is pickled."""


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
