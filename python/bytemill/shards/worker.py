"""A background thread that processes a queue of items in order."""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING, Generic, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

_T = TypeVar("_T")


class BackgroundWorker(Generic[_T]):
    """A thread that calls a function with each item of a queue.

    An exception of the function is raised by the next `put` or by `finish`; later items are dropped. As a context
    manager it stops the thread at the end of the block and drops queued items, unless `finish` was called.

    Args:
        process: Called with each item.
        queue_size: Most items in the queue.
        name: Name of the thread.
    """

    def __init__(self, process: Callable[[_T], None], queue_size: int, name: str) -> None:
        self._process = process
        self._items: queue.Queue[_T | None] = queue.Queue(queue_size)
        self._error: BaseException | None = None
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, item: _T) -> None:
        """Add an item, waiting while the queue is full. Ctrl-C ends the wait."""
        self._items.put(item)
        self._raise()

    def finish(self) -> None:
        """Wait until all items are processed."""
        self._items.put(None)
        self._thread.join()
        self._raise()

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        # Items are taken after an error too, so that `put` never waits for ever.
        while (item := self._items.get()) is not None:
            if self._error is None and not self._is_stopped:
                try:
                    self._process(item)
                except BaseException as error:
                    self._error = error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_stopped = True
        if self._thread.is_alive():
            self._items.put(None)
            self._thread.join()
