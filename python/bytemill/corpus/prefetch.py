"""A generator that runs ahead in a background thread."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

Item = TypeVar("Item")

AHEAD = 2
"""Items in the queue: enough that a single slow item delays neither side."""

_POLL_SECONDS = 0.1
"""Longest time until a waiting consumer notices Ctrl-C."""


def prefetched(make: Callable[[threading.Event], Iterator[Item]], ahead: int = AHEAD) -> Generator[Item]:
    """Yield the items of `make(stop)`, drawn by a background thread at most `ahead` items ahead.

    Exceptions are raised where they would be without the thread. Closing the generator sets `stop` and waits for the
    thread, so the iterator must check `stop` wherever it may block.

    >>> list(prefetched(lambda stop: iter("abc")))
    ['a', 'b', 'c']
    """
    process = os.getpid()
    worker = _Worker(make, ahead)
    worker.start()
    try:
        while True:
            item = worker.next()
            if isinstance(item, _End):
                if item.error is not None:
                    raise item.error
                return
            yield item
            if os.getpid() != process:
                raise RuntimeError(
                    "the parent process is reading this corpus; start a new read from a Position"
                )
    finally:
        if os.getpid() == process:
            worker.end()


class _End:
    """The end of the items."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


class _Worker(Generic[Item]):
    def __init__(self, make: Callable[[threading.Event], Iterator[Item]], ahead: int) -> None:
        self._make = make
        self._items: queue.Queue[Item | _End] = queue.Queue(ahead)
        self._stop = threading.Event()
        # A daemon, so that an unclosed generator does not block the exit.
        self._thread = threading.Thread(target=self._run, name="bytemill-reader", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def next(self) -> Item | _End:
        # With a timeout: a Ctrl-C that came just before would otherwise be noticed only with the next item.
        while True:
            with contextlib.suppress(queue.Empty):
                return self._items.get(timeout=_POLL_SECONDS)

    def end(self) -> None:
        self._stop.set()
        # Make room for a producer that waits to put an item.
        while self._thread.is_alive():
            try:
                self._items.get(timeout=0.01)
            except queue.Empty:
                self._thread.join(0.01)

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            items = self._make(self._stop)
            try:
                for item in items:
                    if self._stop.is_set():
                        break
                    self._items.put(item)
            finally:
                close = getattr(items, "close", None)
                if close is not None:
                    close()
        except BaseException as raised:
            error = raised
        self._items.put(_End(error))
