"""The clocks and counters that a profile reads."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from bytemill.profiling.threads import n_cores, read_threads
from bytemill.system.memory import PeakWatch

if TYPE_CHECKING:
    from bytemill.profiling.threads import ThreadKey, ThreadReading


class System:
    """Clocks and counters of this process. Tests replace it."""

    n_cores = n_cores()

    def __init__(self) -> None:
        self._watch = PeakWatch()

    def wall(self) -> float:
        """Return wall-clock seconds."""
        return time.perf_counter()

    def cpu(self) -> float:
        """Return the CPU time of this process."""
        return time.process_time()

    def thread_cpu(self) -> float:
        """Return the CPU time of the calling thread."""
        return time.thread_time()

    def children_cpu(self) -> float:
        """Return the CPU time of child processes that ended."""
        times = os.times()
        return times.children_user + times.children_system

    def threads(self) -> dict[ThreadKey, ThreadReading] | None:
        """Read all threads. Returns None on systems other than Linux."""
        return read_threads()

    def take_peak(self) -> int:
        """Return the peak memory since the last call."""
        peak = self._watch.peak_bytes()
        self._watch.restart()
        return peak

    def close(self) -> None:
        """End the measurement."""
        self._watch.close()
