"""Read the state and the times of the threads of this process (Linux)."""

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
"""(thread id, start time), because thread ids are reused."""

_TASKS = Path("/proc/self/task")


@dataclass(frozen=True)
class ThreadReading:
    """State and times of one thread at one moment."""

    name: str
    cpu_seconds: float
    """Time on a core since the thread started."""
    runnable_seconds: float
    """Time ready to run, without a free core, since the thread started."""
    state: str
    """A letter from proc(5): R running or ready, S sleeping, D waiting for a disk."""


def read_threads() -> dict[ThreadKey, ThreadReading] | None:
    """Read all threads of this process. Returns None on systems other than Linux."""
    try:
        numbers = [int(name) for name in os.listdir(_TASKS)]  # noqa: PTH208 (called often, so no Path per entry)
    except (OSError, ValueError):
        return None
    names = {thread.native_id: thread.name for thread in threading.enumerate()}
    names[threading.main_thread().native_id] = "main"
    readings: dict[ThreadKey, ThreadReading] = {}
    for number in numbers:
        with suppress(OSError, ValueError, IndexError):  # the thread may have ended
            key, reading = _read(number, names.get(number))
            readings[key] = reading
    return readings


def _read(number: int, python_name: str | None) -> tuple[ThreadKey, ThreadReading]:
    folder = f"{_TASKS}/{number}"
    # The name is in parentheses and may contain parentheses and spaces.
    head, _, tail = _content(f"{folder}/stat").rpartition(")")
    fields = tail.split()
    state, ticks, start = fields[0], int(fields[11]) + int(fields[12]), int(fields[19])
    try:
        on_cpu, waiting = (int(field) / 1e9 for field in _content(f"{folder}/schedstat").split()[:2])
    except (OSError, ValueError):  # a kernel without schedstat: use the clock ticks
        on_cpu, waiting = ticks / os.sysconf("SC_CLK_TCK"), 0.0
    name = python_name or head.partition("(")[2]
    return (number, start), ThreadReading(name, on_cpu, waiting, state)


def _content(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123 (as above)
        return file.read()


def group_name(name: str) -> str:
    """Return the name of a thread without its trailing number, which threads of the same kind share.

    >>> [group_name(name) for name in ("bytemill-count", "worker-12", "pool_3")]
    ['bytemill-count', 'worker', 'pool']
    """
    return re.sub(r"[-_ #]*\d+$", "", name) or name


def n_cores() -> int:
    """Return the number of cores that this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
