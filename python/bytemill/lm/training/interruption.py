"""Turn SIGINT and SIGTERM into a request that training checks after each step."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from bytemill.lm.processes import Processes

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import FrameType


class StopRequest:
    """Flag that is set when one of the processes of a run is asked to stop."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self.requested = False
        """True if this process was asked to stop."""

    def requested_anywhere(self) -> bool:
        """Return True if any process was asked to stop: the same answer in all of them."""
        return self._processes.any(self.requested)


@contextmanager
def stop_signals(processes: Processes | None = None) -> Generator[StopRequest]:
    """Inside the block, the first SIGINT or SIGTERM sets `requested`, and the second raises KeyboardInterrupt.

    With several processes, further signals are ignored: a terminal and a launcher may both pass on one request.
    Only the main thread can handle signals; in other threads nothing changes.
    """
    processes = processes or Processes()
    stop = StopRequest(processes)
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def request_stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 (required by signal.signal)
        if stop.requested and processes.count == 1:
            raise KeyboardInterrupt
        stop.requested = True

    previous = {number: signal.signal(number, request_stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            # None is a handler that was not installed by Python and cannot be restored.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
