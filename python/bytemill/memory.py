"""Peak memory of this process, phase by phase."""

from __future__ import annotations

import sys
from pathlib import Path

_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")


def reset_peak() -> bool:
    """Starts a new measurement of the peak. False where the system cannot: the peak is that of all time."""
    try:
        _CLEAR_REFS.write_text("5")  # see proc(5): resets the high-water mark of resident memory
    except OSError:
        return False
    return True


def peak_bytes() -> int:
    """The most memory (resident set, bytes) that this process had since `reset_peak`, or ever."""
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
