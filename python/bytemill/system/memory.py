"""Peak memory of this process, phase by phase."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")
_lock = threading.Lock()


class PeakWatch:
    """The peak since `restart`, whoever else measures at the same time.

    The system keeps one high-water mark for the whole process. So whoever resets it first tells the others what it
    was; what is allocated between these two steps may go unseen by them.
    """

    def __init__(self) -> None:
        self._before = 0
        with _lock:
            _watches.append(self)

    def restart(self) -> bool:
        """Starts a new measurement. False where the system cannot: the peak is that of all time."""
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
        """The most memory (resident set, bytes) that this process had since `restart`, or ever."""
        return max(self._before, _high_water_mark())

    def close(self) -> None:
        """Ends the measurement."""
        with _lock:
            _watches.remove(self)


_watches: list[PeakWatch] = []
_of_all = PeakWatch()


def reset_peak() -> bool:
    """Starts a new measurement of the peak. False where the system cannot: the peak is that of all time."""
    return _of_all.restart()


def peak_bytes() -> int:
    """The most memory (resident set, bytes) that this process had since `reset_peak`, or ever."""
    return _of_all.peak_bytes()


def _high_water_mark() -> int:
    try:
        status = _STATUS.read_text()
    except OSError:
        status = ""
    for line in status.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    # No Linux, or one that shows less, as sandboxes do. (Windows has no module `resource`.)
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
