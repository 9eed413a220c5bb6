"""Profile long-running work: time and memory by phase.

Code marks its phases (`with phase("count"): …`). Without an active profile a mark costs almost nothing.
"""

from bytemill.profiling.profile import Profile, add, phase
from bytemill.profiling.result import PhaseUse, ProfileResult, ThreadUse

__all__ = ["PhaseUse", "Profile", "ProfileResult", "ThreadUse", "add", "phase"]
