"""Where the time and the memory of long work go, phase by phase.

Whoever works says so (`with phase("count"): …`); where nobody asked for a profile that costs nothing.
"""

from bytemill.profiling.profile import Profile, add, phase
from bytemill.profiling.result import PhaseUse, ProfileResult, ThreadUse

__all__ = ["PhaseUse", "Profile", "ProfileResult", "ThreadUse", "add", "phase"]
