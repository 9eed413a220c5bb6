"""Tasks in this process, one after the other."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Self

from bytemill.data.executors.executor import Done

if TYPE_CHECKING:
    from types import TracebackType

    from bytemill.data.executors.executor import Task


class InlineExecutor:
    """Runs each task when it is waited for. Errors of tasks are those of the caller."""

    num_workers = 1
    description = "this process"

    def __init__(self) -> None:
        self._context: Any = None
        self._waiting: deque[tuple[int, Task, Any]] = deque()
        self._next_handle = 0

    def set_context(self, context: Any) -> None:
        """See `Executor`."""
        self._context = context

    def submit(self, task: Task, item: Any) -> int:
        """See `Executor`."""
        self._next_handle += 1
        self._waiting.append((self._next_handle, task, item))
        return self._next_handle

    def wait(self, seconds: float) -> list[Done]:  # noqa: ARG002
        """See `Executor`."""
        if not self._waiting:
            return []
        handle, task, item = self._waiting.popleft()
        return [Done(handle, task(self._context, item))]

    def cancel(self, handle: int) -> None:
        """See `Executor`."""
        self._waiting = deque(each for each in self._waiting if each[0] != handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._waiting.clear()
