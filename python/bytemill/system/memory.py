"""Peak memory of this process, phase by phase."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")
_lock = threading.Lock()


class PeakWatch:
    """Peak memory of the process since `restart`. Several watches can measure at the same time.

    The system has one high-water mark per process. A watch that resets it first saves its value in the others; they may
    miss a peak between these two steps.
    """

    def __init__(self) -> None:
        self._before = 0
        with _lock:
            _watches.append(self)

    def restart(self) -> bool:
        """Start a new measurement. Returns False if the system cannot; the peak is then that of the whole process."""
        with _lock:
            mark = _high_water_mark()
            for watch in _watches:
                watch._before = max(watch._before, mark)
            self._before = 0
            try:
                _CLEAR_REFS.write_text("5")  # see proc(5): resets the high-water mark of resident memory
            except OSError:
                return False
            return True

    def peak_bytes(self) -> int:
        """Return the peak resident set in bytes since `restart`."""
        return max(self._before, _high_water_mark())

    def close(self) -> None:
        """End the measurement."""
        with _lock:
            _watches.remove(self)


_watches: list[PeakWatch] = []
_process_watch = PeakWatch()


def reset_peak() -> bool:
    """Start a new measurement. Returns False if the system cannot; the peak is then that of the whole process."""
    return _process_watch.restart()


def peak_bytes() -> int:
    """Return the peak resident set in bytes since `reset_peak`."""
    return _process_watch.peak_bytes()


def _high_water_mark() -> int:
    try:
        status = _STATUS.read_text()
    except OSError:
        status = ""
    for line in status.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    # Not Linux, or a sandbox with a reduced /proc. Windows has no module `resource`.
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
