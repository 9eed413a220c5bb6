"""Results of a profile."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class ThreadUse:
    """Times of the threads that share a name."""

    name: str
    n_threads: int
    """Number of threads, at the same time or one after another."""
    cpu_seconds: float
    runnable_seconds: float
    """Time ready to run, without a free core."""
    busy: float
    """Average number of busy cores; 1.0 is one thread that never waits."""
    busiest: float
    """Share of the time in which the busiest thread computed or was ready to."""
    disk_wait: float
    """Share of the samples in which a thread waited for a disk."""


@dataclass(frozen=True)
class PhaseUse:
    """One phase, summed over all its entries."""

    name: str
    parent: str | None
    """The enclosing phase of the same thread."""
    n_entries: int
    seconds: float
    """Wall-clock time with at least one thread in the phase."""
    n_threads: float
    """Average number of threads in the phase at the same time."""
    own_busy: float
    """Share of their time that these threads computed, rather than waited."""
    cores: float
    """Average number of cores that the whole process kept busy."""
    peak_memory_bytes: int
    """Peak resident memory of the process."""
    n_bytes: int
    """Bytes processed, as reported with `add`."""
    n_tokens: int
    """Tokens processed, as reported with `add`."""
    threads: list[ThreadUse]
    """Threads of the process, from samples. Empty on systems other than Linux."""


@dataclass(frozen=True)
class ProfileResult:
    """Time and memory of the profiled work."""

    seconds: float
    cpu_seconds: float
    """CPU time of all threads of this process, including those that ended between two samples."""
    children_cpu_seconds: float
    """CPU time of child processes that ended."""
    n_cores: int
    peak_memory_bytes: int
    phases: list[PhaseUse]
    """In the order of their first entry."""
    outside_seconds: float
    """Wall-clock time with no thread in any phase."""
    threads: list[ThreadUse]
    unseen_cpu_seconds: float
    """CPU time of threads too short-lived to be sampled."""
    has_threads: bool
    """Whether threads were measured, which only Linux supports."""
    advice: list[str]
    """Sentences on the bottleneck and the memory peak."""

    @property
    def cores(self) -> float:
        """Average number of busy cores."""
        return self.cpu_seconds / self.seconds if self.seconds else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Convert to JSON types."""
        return asdict(self) | {"cores": self.cores}
