"""Running totals of phases and threads, and their conversion to results."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bytemill.profiling.result import PhaseUse, ThreadUse
from bytemill.profiling.threads import group_name

if TYPE_CHECKING:
    from bytemill.profiling.threads import ThreadKey, ThreadReading


@dataclass
class ThreadTotals:
    """Totals of the threads that share a name."""

    active_seconds: defaultdict[ThreadKey, float] = field(default_factory=lambda: defaultdict(float))
    """Time of each thread on a core or ready to run."""
    cpu_seconds: float = 0.0
    runnable_seconds: float = 0.0
    n_samples: float = 0.0
    n_in_disk_wait: float = 0.0


class ThreadGroups:
    """Totals of threads by name, in one phase or in the whole profile."""

    def __init__(self) -> None:
        self._totals: defaultdict[str, ThreadTotals] = defaultdict(ThreadTotals)

    def add(self, key: ThreadKey, now: ThreadReading, before: ThreadReading | None, share: float) -> None:
        """Add a share of what a thread did between two readings."""
        cpu = now.cpu_seconds - (before.cpu_seconds if before else 0.0)
        runnable = now.runnable_seconds - (before.runnable_seconds if before else 0.0)
        totals = self._totals[group_name(now.name)]
        totals.active_seconds[key] += share * (cpu + runnable)
        totals.cpu_seconds += share * cpu
        totals.runnable_seconds += share * runnable
        totals.n_samples += share
        totals.n_in_disk_wait += share if now.state == "D" else 0.0

    def result(self, seconds: float) -> list[ThreadUse]:
        """Convert the totals of a period of `seconds`, most CPU time first."""
        uses = [
            ThreadUse(
                name=name,
                n_threads=len(totals.active_seconds),
                cpu_seconds=totals.cpu_seconds,
                runnable_seconds=totals.runnable_seconds,
                busy=_ratio(totals.cpu_seconds, seconds),
                busiest=min(1.0, _ratio(max(totals.active_seconds.values(), default=0.0), seconds)),
                disk_wait=_ratio(totals.n_in_disk_wait, totals.n_samples),
            )
            for name, totals in self._totals.items()
        ]
        return sorted(uses, key=lambda use: -use.cpu_seconds)


@dataclass
class PhaseTotals:
    """Totals of a phase."""

    parent: str | None
    n_entries: int = 0
    n_inside: int = 0
    started: float = 0.0
    started_cpu: float = 0.0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    thread_seconds: float = 0.0
    """Wall-clock time in the phase, summed over threads."""
    own_seconds: float = 0.0
    """Wall-clock time of entries that began and ended in the same thread."""
    own_cpu_seconds: float = 0.0
    """CPU time of the same entries."""
    in_window: float = 0.0
    """Seconds in the phase since the last sample, up to `window_started`."""
    window_started: float = 0.0
    peak: int = 0
    n_bytes: int = 0
    n_tokens: int = 0
    threads: ThreadGroups = field(default_factory=ThreadGroups)

    def result(self, name: str) -> PhaseUse:
        """Convert the totals."""
        return PhaseUse(
            name=name,
            parent=self.parent,
            n_entries=self.n_entries,
            seconds=self.seconds,
            n_threads=_ratio(self.thread_seconds, self.seconds),
            own_busy=min(1.0, _ratio(self.own_cpu_seconds, self.own_seconds)),
            cores=_ratio(self.cpu_seconds, self.seconds),
            peak_memory_bytes=self.peak,
            n_bytes=self.n_bytes,
            n_tokens=self.n_tokens,
            threads=self.threads.result(self.seconds),
        )


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
