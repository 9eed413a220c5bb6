"""A generator that runs ahead in a thread of its own."""

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
"""Items that wait to be fetched: one is being worked on, one is ready, so that neither side waits for a slow one."""

_ASK_SECONDS = 0.1
"""How long whoever waits for an item does not hear of Ctrl-C, at most."""


def prefetched(make: Callable[[threading.Event], Iterator[Item]], ahead: int = AHEAD) -> Generator[Item]:
    """What `make(stop)` gives, drawn by a background thread that is at most `ahead` items ahead.

    An exception comes out where it would have without the thread. Closing the generator sets `stop` and waits for the
    thread, so what `make` gives must look at `stop` wherever it may wait for long.

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
                    "this corpus is being read by the parent process; read it anew from a Position"
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
        # Daemonic, so that a generator that nobody closed holds up no exit.
        self._thread = threading.Thread(target=self._run, name="bytemill-reader", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def next(self) -> Item | _End:
        # Not for ever at a time: a Ctrl-C that came just before would be heard only when something arrives.
        while True:
            with contextlib.suppress(queue.Empty):
                return self._items.get(timeout=_ASK_SECONDS)

    def end(self) -> None:
        self._stop.set()
        # Whoever waits to put something down finds room.
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
