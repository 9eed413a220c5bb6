"""Work that another thread does beside this one, in the order in which it is handed over."""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING, Generic, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

_T = TypeVar("_T")


class Background(Generic[_T]):
    """A thread that calls `work` with every item it is given, one after another.

    What `work` raises comes out of the next `put`, or of `finish`; nothing more is done then. As a context manager it
    ends the thread when the block is left, without what is still waiting unless `finish` was called.
    """

    def __init__(self, work: Callable[[_T], None], n_waiting: int, name: str) -> None:
        """`put` waits where `n_waiting` items are waiting already."""
        self._work = work
        self._items: queue.Queue[_T | None] = queue.Queue(n_waiting)
        self._error: BaseException | None = None
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, item: _T) -> None:
        """Hand over an item. Waits while too many are waiting; Ctrl-C ends the waiting."""
        self._items.put(item)
        self._raise()

    def finish(self) -> None:
        """Wait until all is done."""
        self._items.put(None)
        self._thread.join()
        self._raise()

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        # Goes on taking items after an error, so that nobody waits for room for ever.
        while (item := self._items.get()) is not None:
            if self._error is None and not self._stopped:
                try:
                    self._work(item)
                except BaseException as error:
                    self._error = error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stopped = True
        if self._thread.is_alive():
            self._items.put(None)
            self._thread.join()
