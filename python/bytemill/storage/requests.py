"""Requests to a store at the same time."""

from __future__ import annotations

import queue
import threading
from collections import deque
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class RequestPool(Generic[_Item, _Result]):
    """Threads that call a function. Unlike those of `ThreadPoolExecutor` they never keep a program from ending.

    Args:
        function: The function.
        n_threads: Number of threads.
    """

    def __init__(self, function: Callable[[_Item], _Result], n_threads: int) -> None:
        self._function = function
        self._n_threads = n_threads
        self._items: queue.SimpleQueue[tuple[_Item, Future[_Result]] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []

    def submit(self, item: _Item) -> Future[_Result]:
        """Call the function with an item, when a thread is free."""
        if len(self._threads) < self._n_threads:
            thread = threading.Thread(target=self._work, name="requests to a store", daemon=True)
            self._threads.append(thread)
            thread.start()
        future: Future[_Result] = Future()
        self._items.put((item, future))
        return future

    def in_order(self, items: Iterable[_Item], n_ahead: int) -> Iterator[_Result]:
        """Yield the results for items in their order, with at most `n_ahead` calls waiting or running."""
        waiting: deque[Future[Any]] = deque()
        for item in items:
            waiting.append(self.submit(item))
            if len(waiting) > n_ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    def close(self) -> None:
        """Start no more calls; those that run go on in the background."""
        while True:
            try:
                entry = self._items.get_nowait()
            except queue.Empty:
                break
            if entry is not None:
                entry[1].cancel()
        for _ in self._threads:
            self._items.put(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _work(self) -> None:
        while (entry := self._items.get()) is not None:
            item, future = entry
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(self._function(item))
            except BaseException as error:
                future.set_exception(error)
