"""What the threads of this process have done so far, as Linux tells it."""

from __future__ import annotations

import os
import re
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

ThreadKey: TypeAlias = tuple[int, int]
"""Number and start time: numbers are given again to later threads."""

_TASKS = Path("/proc/self/task")


@dataclass(frozen=True)
class ThreadReading:
    """One thread at one moment."""

    name: str
    cpu_seconds: float
    """On a processor since it began."""
    runnable_seconds: float
    """Ready to run since it began, but no processor was free."""
    state: str
    """A letter of proc(5): R running or ready, S asleep, D waiting for a disk."""


def read_threads() -> dict[ThreadKey, ThreadReading] | None:
    """All threads of this process; None where the system does not tell."""
    try:
        numbers = [int(name) for name in os.listdir(_TASKS)]  # noqa: PTH208 (called many times: no Path for each)
    except (OSError, ValueError):
        return None
    names = {thread.native_id: _python_name(thread) for thread in threading.enumerate()}
    readings: dict[ThreadKey, ThreadReading] = {}
    for number in numbers:
        with suppress(OSError, ValueError, IndexError):  # it may have ended since it was listed
            key, reading = _read(number, names.get(number))
            readings[key] = reading
    return readings


def _read(number: int, python_name: str | None) -> tuple[ThreadKey, ThreadReading]:
    folder = f"{_TASKS}/{number}"
    # The name stands in brackets and may hold brackets and blanks itself.
    head, _, tail = _content(f"{folder}/stat").rpartition(")")
    fields = tail.split()
    state, ticks, start = fields[0], int(fields[11]) + int(fields[12]), int(fields[19])
    try:
        on_cpu, waiting = (int(field) / 1e9 for field in _content(f"{folder}/schedstat").split()[:2])
    except (OSError, ValueError):  # a kernel built without it: hundredths of seconds from the line above
        on_cpu, waiting = ticks / os.sysconf("SC_CLK_TCK"), 0.0
    name = python_name or head.partition("(")[2]
    return (number, start), ThreadReading(name, on_cpu, waiting, state)


def _content(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123 (as above)
        return file.read()


def _python_name(thread: threading.Thread) -> str:
    return "main" if thread is threading.main_thread() else thread.name


def group_name(name: str) -> str:
    """What threads of the same kind have in common: their name without a number at its end.

    >>> [group_name(name) for name in ("bytemill-count", "worker-12", "pool_3")]
    ['bytemill-count', 'worker', 'pool']
    """
    return re.sub(r"[-_ #]*\d+$", "", name) or name


def n_cores() -> int:
    """Processors that this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
