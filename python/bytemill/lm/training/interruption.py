"""Ctrl-C and SIGTERM while a run trains: noticed at once, followed where nothing is lost."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import FrameType


class StopRequest:
    """Whether somebody has asked to stop."""

    requested = False


@contextmanager
def stop_signals() -> Generator[StopRequest]:
    """In the block, a first SIGINT or SIGTERM sets `requested`; a second one raises KeyboardInterrupt at once.

    Outside the main thread, where Python takes no signals, nothing is changed.
    """
    stop = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def note(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 (signal calls it so)
        if stop.requested:
            raise KeyboardInterrupt
        stop.requested = True

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            # None stands for a handler that Python did not set and cannot put back.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
