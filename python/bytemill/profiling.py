"""Profile long-running work: time, busy cores and peak memory by phase.

Code marks its phases (`with phase("count"): …`). Without an active profile a mark costs almost nothing. Threads and
functions are not measured: py-spy and perf show them without changes to the program.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from bytemill.system.memory import PeakWatch
from bytemill.system.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Generator
    from contextlib import AbstractContextManager
    from types import TracebackType
    from typing import Self

_SECONDS_BETWEEN_PEAKS = 0.01
"""A phase change reads the peak of memory only if the last reading is older, so that frequent entries stay cheap."""

_NOTHING = nullcontext()
_active: Profile | None = None


def phase(name: str) -> AbstractContextManager[None]:
    """Mark a block as a phase of the active profile. Phases may nest, and several threads may be in one.

    Args:
        name: Name of the phase. Entries of the same name are summed.
    """
    return _NOTHING if _active is None else _active.phase(name)


def add(name: str, *, n_bytes: int = 0, n_tokens: int = 0) -> None:
    """Add to the amount of work done in a phase, from which rates are computed.

    Args:
        name: Name of the phase.
        n_bytes: Bytes processed.
        n_tokens: Tokens processed.
    """
    if _active is not None:
        _active.add(name, n_bytes=n_bytes, n_tokens=n_tokens)


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


@dataclass(frozen=True)
class ProfileResult:
    """Time and memory of the profiled work."""

    seconds: float
    cpu_seconds: float
    """CPU time of all threads of this process."""
    children_cpu_seconds: float
    """CPU time of child processes that ended."""
    n_cores: int
    """Cores that this process may use."""
    peak_memory_bytes: int
    phases: list[PhaseUse]
    """In the order of their first entry."""
    outside_seconds: float
    """Wall-clock time with no thread in any phase."""

    @property
    def cores(self) -> float:
        """Average number of busy cores."""
        return _ratio(self.cpu_seconds, self.seconds)

    @property
    def advice(self) -> list[str]:
        """Sentences on the bottleneck and the memory peak."""
        return _advice(self)

    def to_dict(self) -> dict[str, Any]:
        """Convert to JSON types."""
        return asdict(self) | {"cores": self.cores, "advice": self.advice}


class Clocks:
    """The clocks and counters that a profile reads. Tests replace them."""

    def __init__(self) -> None:
        on_linux = sys.platform == "linux"
        self.n_cores = len(os.sched_getaffinity(0)) if on_linux else os.cpu_count() or 1
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

    def take_peak(self) -> int:
        """Return the peak memory since the last call."""
        peak = self._watch.peak_bytes()
        self._watch.restart()
        return peak

    def close(self) -> None:
        """End the measurement."""
        self._watch.close()


class Profile:
    """Measure the phases of a block. Only one profile can be active.

    Args:
        clocks: Clocks and counters, replaced in tests.

    >>> with Profile() as profile:
    ...     with phase("add"):
    ...         total = sum(range(1000))
    >>> [phase.name for phase in profile.result.phases]
    ['add']
    """

    def __init__(self, *, clocks: Clocks | None = None) -> None:
        self._clocks = Clocks() if clocks is None else clocks
        self._lock = threading.Lock()
        self._phases: dict[str, _Totals] = {}
        self._own = _Own()
        self._recent: set[str] = set()
        """Phases that were active since the peak of memory was last read."""
        self._peak = 0
        self._n_inside = 0
        self._outside_seconds = 0.0
        self._result: ProfileResult | None = None

    @property
    def result(self) -> ProfileResult:
        """The result. Raises RuntimeError before the block has ended."""
        if self._result is None:
            raise RuntimeError("the profile has not ended")
        return self._result

    def __enter__(self) -> Self:
        global _active  # noqa: PLW0603 (measured code does not know the profile)
        if _active is not None:
            raise RuntimeError("another profile is active")
        self._started = self._outside_since = self._peak_read = self._clocks.wall()
        self._started_cpu, self._children_cpu = self._clocks.cpu(), self._clocks.children_cpu()
        self._clocks.take_peak()
        _active = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        global _active  # noqa: PLW0603 (as above)
        _active = None
        with self._lock:
            now, cpu = self._clocks.wall(), self._clocks.cpu()
            self._read_peak(now)
            for totals in self._phases.values():
                if totals.n_inside:  # still active: count the time up to now
                    totals.seconds += now - totals.started
                    totals.cpu_seconds += cpu - totals.started_cpu
            self._result = ProfileResult(
                seconds=now - self._started,
                cpu_seconds=cpu - self._started_cpu,
                children_cpu_seconds=self._clocks.children_cpu() - self._children_cpu,
                n_cores=self._clocks.n_cores,
                peak_memory_bytes=self._peak,
                phases=[totals.result(name) for name, totals in self._phases.items()],
                outside_seconds=self._outside_seconds
                + (0.0 if self._n_inside else now - self._outside_since),
            )
        self._clocks.close()

    @contextmanager
    def phase(self, name: str) -> Generator[None]:
        """See `bytemill.profiling.phase`."""
        entry = self._enter(name)
        try:
            yield
        finally:
            self._leave(entry)

    def add(self, name: str, *, n_bytes: int = 0, n_tokens: int = 0) -> None:
        """See `bytemill.profiling.add`."""
        with self._lock:
            totals = self._phases.setdefault(name, _Totals(None))
            totals.n_bytes += n_bytes
            totals.n_tokens += n_tokens

    def _enter(self, name: str) -> _Entry:
        stack = self._own.stack
        with self._lock:
            now = self._clocks.wall()
            self._read_old_peak(now)
            totals = self._phases.setdefault(name, _Totals(stack[-1].name if stack else None))
            if totals.n_inside == 0:
                totals.started, totals.started_cpu = now, self._clocks.cpu()
            if self._n_inside == 0:
                self._outside_seconds += now - self._outside_since
            self._n_inside += 1
            totals.n_inside += 1
            totals.n_entries += 1
            self._recent.add(name)
        entry = _Entry(name, threading.get_ident(), now, self._clocks.thread_cpu())
        stack.append(entry)
        return entry

    def _leave(self, entry: _Entry) -> None:
        own_cpu = self._clocks.thread_cpu()
        is_same_thread = threading.get_ident() == entry.thread
        if is_same_thread:
            # Not always the last entry: generators may end out of order.
            self._own.stack.remove(entry)
        with self._lock:
            now = self._clocks.wall()
            totals = self._phases[entry.name]
            totals.n_inside -= 1
            self._n_inside -= 1
            if self._n_inside == 0:
                self._outside_since = now
            if totals.n_inside == 0:
                totals.seconds += now - totals.started
                totals.cpu_seconds += self._clocks.cpu() - totals.started_cpu
            totals.thread_seconds += now - entry.started
            if is_same_thread:
                totals.own_seconds += now - entry.started
                totals.own_cpu_seconds += own_cpu - entry.started_cpu
            self._read_old_peak(now)

    def _read_old_peak(self, now: float) -> None:
        """Read the peak of memory if the last reading is old."""
        if now - self._peak_read > _SECONDS_BETWEEN_PEAKS:
            self._read_peak(now)

    def _read_peak(self, now: float) -> None:
        """Note the peak of memory since the last reading in the phases that were active since then."""
        peak = self._clocks.take_peak()
        self._peak_read = now
        self._peak = max(self._peak, peak)
        for name in self._recent:
            self._phases[name].peak = max(self._phases[name].peak, peak)
        self._recent = {name for name in self._recent if self._phases[name].n_inside}


@dataclass(eq=False)
class _Entry:
    """A thread in a phase."""

    name: str
    thread: int
    started: float
    started_cpu: float


class _Own(threading.local):
    """State of each thread."""

    def __init__(self) -> None:
        self.stack: list[_Entry] = []
        """Active phases of the thread, innermost last."""


@dataclass
class _Totals:
    """Running totals of a phase."""

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
    peak: int = 0
    n_bytes: int = 0
    n_tokens: int = 0

    def result(self, name: str) -> PhaseUse:
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
        )


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


# Advice, derived from the numbers.

_BUSY = 0.85
"""Share of time computing from which a thread counts as never waiting."""

_REMEDIES = (
    (("spill", "merge runs"), "a larger --max-memory writes less to the disk"),
    (
        ("read", "decompress", "parse", "fetch"),
        "uncompressed files are the fastest to read; of the compressed ones, zstd is faster than gzip, bzip2 and xz",
    ),
    (
        ("count",),
        "named patterns are faster than custom regular expressions; saved counts (--counts) avoid another pass",
    ),
    (
        ("merge", "learn"),
        "its time grows with the number of distinct pre-tokens; --min-frequency and a smaller --vocab-size stop early",
    ),
    (("write", "hash", "sync", "shard"), "try an output folder on a faster disk"),
    (("encode",), "repeated pre-tokens come from a cache, so text with fewer distinct ones is faster"),
)


def _advice(profile: ProfileResult) -> list[str]:
    """Describe the bottleneck and the memory peak."""
    phases = [phase for phase in profile.phases if phase.seconds > 0]
    if not phases:
        return ["this work has no phases; use a sampling profiler (py-spy, perf)"]

    def own_seconds(phase: PhaseUse) -> float:
        return phase.seconds - sum(other.seconds for other in phases if other.parent == phase.name)

    longest = max(phases, key=own_seconds)
    share = min(1.0, _ratio(longest.seconds, profile.seconds))
    sentences = [
        f"{100 * share:.0f} % of the time is spent in `{longest.name}`: {_limit(longest, phases, profile.n_cores)}"
    ]
    peak = max(phase.peak_memory_bytes for phase in phases)
    highest = [phase for phase in phases if phase.peak_memory_bytes == peak]
    # A phase and its nested phases share a peak: report the innermost. On systems that report only the peak so far,
    # later phases share it too: report the first.
    innermost = [phase for phase in highest if not any(other.parent == phase.name for other in highest)]
    return (
        [*sentences, f"memory peaked in `{innermost[0].name}`: {format_bytes(peak)}"] if peak else sentences
    )


def _limit(longest: PhaseUse, phases: list[PhaseUse], n_cores: int) -> str:
    """Describe what limits the longest phase."""
    if longest.cores >= _BUSY * n_cores:
        if n_cores == 1:
            return f"the only core is busy, so it needs less work{_remedy(longest.name)}"
        busy = f"all {n_cores} cores are busy, so it needs less work or more cores"
        return f"{busy}; `perf record` shows the functions{_remedy(longest.name)}"
    # The stages of a pipeline run at the same time. The one that never waits limits the others.
    stages = [
        phase
        for phase in phases
        if phase.own_busy >= _BUSY and phase.n_threads < 1.5 and phase.seconds >= 0.8 * longest.seconds
    ]
    if stages:
        stage = max(stages, key=lambda phase: phase.own_busy * phase.seconds)
        return (
            f"`{stage.name}` runs in one thread, which computes {100 * stage.own_busy:.0f} % of the time, while "
            f"{longest.cores:.1f} of {n_cores} cores are busy; it is the bottleneck{_remedy(stage.name)}"
        )
    if longest.cores < 0.5:
        return (
            "it is mostly idle: it waits for input or output (a pipe, the network, a disk, another process), or for "
            "cores that other programs use"
        )
    return (
        f"{longest.cores:.1f} of {n_cores} cores are busy: one thread has most of the work, or other programs take "
        f"the cores; `top -H` shows which{_remedy(longest.name)}"
    )


def _remedy(name: str) -> str:
    for words, remedy in _REMEDIES:
        if any(word in name.lower() for word in words):
            return f"; {remedy}"
    return ""
