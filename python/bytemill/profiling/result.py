"""What a profile has found."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class ThreadUse:
    """Threads of one name."""

    name: str
    n_threads: int
    """How many there have been, at the same time or one after the other."""
    cpu_seconds: float
    runnable_seconds: float
    """Ready to run, but no processor was free."""
    busy: float
    """Processors that they kept busy on average: 1.0 is one thread that never waits."""
    disk_wait: float
    """The share of the samples in which one of them waited for a disk."""


@dataclass(frozen=True)
class PhaseUse:
    """One phase, all the times that it was entered."""

    name: str
    parent: str | None
    """The phase within which the same thread entered it."""
    n_entries: int
    seconds: float
    """Wall-clock seconds during which at least one thread was in it."""
    n_threads: float
    """Threads that were in it at the same time, on average."""
    own_busy: float
    """The share of their time that these threads computed; they waited for the rest."""
    cores: float
    """Processors that the whole process kept busy meanwhile, on average."""
    peak_memory_bytes: int
    """Most resident memory of the process meanwhile."""
    n_bytes: int
    n_tokens: int
    """What was done, where somebody has said; 0 elsewhere."""
    threads: list[ThreadUse]
    """What the threads of the process did meanwhile, from samples; empty where the system does not tell."""


@dataclass(frozen=True)
class ProfileResult:
    """Where time and memory went."""

    seconds: float
    cpu_seconds: float
    """Of all threads of this process, also of those that ended between two samples."""
    children_cpu_seconds: float
    """Of processes that were started meanwhile and have ended."""
    n_cores: int
    peak_memory_bytes: int
    phases: list[PhaseUse]
    """In the order in which they were first entered."""
    outside_seconds: float
    """Wall-clock seconds during which no thread was in any phase."""
    threads: list[ThreadUse]
    unseen_cpu_seconds: float
    """Of threads that lived too short to be sampled."""
    has_threads: bool
    """Whether the system tells what threads do: only Linux does."""
    advice: list[str]
    """Where to look next."""

    @property
    def cores(self) -> float:
        """Processors that were busy on average."""
        return self.cpu_seconds / self.seconds if self.seconds else 0.0

    def to_dict(self) -> dict[str, Any]:
        """The profile for JSON."""
        return asdict(self) | {"cores": self.cores}
