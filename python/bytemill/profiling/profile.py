"""Measure the phases and threads of running work."""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bytemill.profiling.result import PhaseUse, ProfileResult, ThreadUse
from bytemill.profiling.threads import ThreadKey, ThreadReading, group_name, n_cores, read_threads
from bytemill.system.memory import PeakWatch

if TYPE_CHECKING:
    from collections.abc import Generator
    from contextlib import AbstractContextManager
    from types import TracebackType
    from typing import Self

_SAMPLER = "bytemill-profile"
_SECONDS_BETWEEN_SAMPLES = 0.1
_YOUNG = 0.01
"""Seconds. A phase change takes a sample only if the last one is older, so that frequent entries stay cheap."""

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


class System:
    """The clocks and counters that a profile reads."""

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


@dataclass
class _Threads:
    """Threads that share a name, in one phase or in the whole profile."""

    active_seconds: defaultdict[ThreadKey, float] = field(default_factory=lambda: defaultdict(float))
    """Time of each thread on a core or ready to run."""
    cpu_seconds: float = 0.0
    runnable_seconds: float = 0.0
    n_samples: float = 0.0
    n_in_disk_wait: float = 0.0

    def use(self, name: str, seconds: float) -> ThreadUse:
        return ThreadUse(
            name=name,
            n_threads=len(self.active_seconds),
            cpu_seconds=self.cpu_seconds,
            runnable_seconds=self.runnable_seconds,
            busy=self.cpu_seconds / seconds if seconds else 0.0,
            busiest=min(1.0, max(self.active_seconds.values(), default=0.0) / seconds) if seconds else 0.0,
            disk_wait=self.n_in_disk_wait / self.n_samples if self.n_samples else 0.0,
        )


@dataclass
class _Phase:
    """Measurements of a phase so far."""

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
    own_cpu_seconds: float = 0.0
    """CPU time of entries that began and ended in the same thread; `own_seconds` is their wall-clock time."""
    in_window: float = 0.0
    """Seconds in the phase since the last sample, up to `window_started`."""
    window_started: float = 0.0
    peak: int = 0
    n_bytes: int = 0
    n_tokens: int = 0
    threads: defaultdict[str, _Threads] = field(default_factory=lambda: defaultdict(_Threads))


class Profile:
    """Measure the phases and threads of a block. Only one profile can be active.

    Threads are sampled ten times a second. All other numbers are exact.

    Args:
        interval: Seconds between samples. None samples only at phase changes and in `sample`.
        system: Clocks and counters, replaced in tests.

    >>> with Profile() as profile:
    ...     with phase("add"):
    ...         total = sum(range(1000))
    >>> [phase.name for phase in profile.result.phases]
    ['add']
    """

    def __init__(
        self, *, interval: float | None = _SECONDS_BETWEEN_SAMPLES, system: System | None = None
    ) -> None:
        self._interval = interval
        self._system = System() if system is None else system
        self._lock = threading.Lock()
        self._phases: dict[str, _Phase] = {}
        self._own = _Own()
        self._threads: defaultdict[str, _Threads] = defaultdict(_Threads)
        self._seen: dict[ThreadKey, ThreadReading] = {}
        self._peak = 0
        self._n_inside = 0
        self._outside_seconds = 0.0
        self._stop = threading.Event()
        self._sampler: threading.Thread | None = None
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
        self._started = self._sampled = self._outside_since = self._system.wall()
        self._started_cpu, self._children_cpu = self._system.cpu(), self._system.children_cpu()
        self._system.take_peak()
        readings = self._system.threads()
        self._has_threads = readings is not None
        self._seen = readings or {}
        if self._interval is not None:
            self._sampler = threading.Thread(
                target=self._sample_often, args=(self._interval,), name=_SAMPLER, daemon=True
            )
            self._sampler.start()
        _active = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        global _active  # noqa: PLW0603 (as above)
        _active = None
        self._stop.set()
        if self._sampler is not None:
            self._sampler.join()
        with self._lock:
            self._take_sample()
            self._result = self._summarize()
        self._system.close()

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
            known = self._phases.setdefault(name, _Phase(None))
            known.n_bytes += n_bytes
            known.n_tokens += n_tokens

    def sample(self) -> None:
        """Sample the threads and the memory now."""
        with self._lock:
            self._take_sample()

    def _enter(self, name: str) -> _Entry:
        """Start a phase in the calling thread."""
        stack = self._own.stack
        with self._lock:
            self._sample_at_change()
            known = self._phases.setdefault(name, _Phase(stack[-1].name if stack else None))
            now = self._system.wall()
            if known.n_inside == 0:
                known.started, known.started_cpu = now, self._system.cpu()
                known.window_started = now
            if self._n_inside == 0:
                self._outside_seconds += now - self._outside_since
            self._n_inside += 1
            known.n_inside += 1
            known.n_entries += 1
        entry = _Entry(name, threading.get_ident(), now, self._system.thread_cpu())
        stack.append(entry)
        return entry

    def _leave(self, entry: _Entry) -> None:
        """End a phase that `_enter` started."""
        own_cpu = self._system.thread_cpu()
        is_same_thread = threading.get_ident() == entry.thread
        if is_same_thread:
            # Not always the last entry: generators may end out of order.
            self._own.stack.remove(entry)
        with self._lock:
            known = self._phases[entry.name]
            now = self._system.wall()
            known.n_inside -= 1
            self._n_inside -= 1
            if self._n_inside == 0:
                self._outside_since = now
            if known.n_inside == 0:
                known.seconds += now - known.started
                known.cpu_seconds += self._system.cpu() - known.started_cpu
                known.in_window += now - known.window_started
            known.thread_seconds += now - entry.started
            if is_same_thread:
                known.own_seconds += now - entry.started
                known.own_cpu_seconds += own_cpu - entry.started_cpu
            self._sample_at_change()

    def _sample_often(self, interval: float) -> None:
        while not self._stop.wait(interval):
            self.sample()

    def _sample_at_change(self) -> None:
        if self._system.wall() - self._sampled > _YOUNG:
            self._take_sample()

    def _take_sample(self) -> None:
        """Add the time since the last sample to the phases that were active, in proportion to their active time."""
        now = self._system.wall()
        window, self._sampled = now - self._sampled, now
        shares: list[tuple[_Phase, float]] = []
        peak = self._system.take_peak()
        self._peak = max(self._peak, peak)
        for known in self._phases.values():
            if known.n_inside:
                known.in_window += now - known.window_started
                known.window_started = now
            if known.in_window > 0 or known.n_inside:
                known.peak = max(known.peak, peak)
                shares.append((known, min(1.0, known.in_window / window) if window > 0 else 0.0))
                known.in_window = 0.0
        readings = self._system.threads() or {}
        for key, reading in readings.items():
            if reading.name != _SAMPLER:
                before = self._seen.get(key)
                self._give(key, reading, before, [(self._threads, 1.0), *((p.threads, s) for p, s in shares)])
        self._seen = readings

    @staticmethod
    def _give(
        key: ThreadKey,
        now: ThreadReading,
        before: ThreadReading | None,
        to: list[tuple[defaultdict[str, _Threads], float]],
    ) -> None:
        cpu = now.cpu_seconds - (before.cpu_seconds if before else 0.0)
        runnable = now.runnable_seconds - (before.runnable_seconds if before else 0.0)
        name = group_name(now.name)
        for threads, share in to:
            if share > 0:
                one = threads[name]
                one.active_seconds[key] += share * (cpu + runnable)
                one.cpu_seconds += share * cpu
                one.runnable_seconds += share * runnable
                one.n_samples += share
                one.n_in_disk_wait += share if now.state == "D" else 0.0

    def _summarize(self) -> ProfileResult:
        from bytemill.profiling.advice import advice

        wall, cpu = self._system.wall(), self._system.cpu()
        seconds, cpu_seconds = wall - self._started, cpu - self._started_cpu
        phases: list[PhaseUse] = []
        for name, known in self._phases.items():
            if known.n_inside:  # still active: count the time up to now
                known.seconds += wall - known.started
                known.cpu_seconds += cpu - known.started_cpu
            phases.append(_phase_use(name, known))
        outside = self._outside_seconds + (0.0 if self._n_inside else wall - self._outside_since)
        threads = _thread_uses(self._threads, seconds)
        seen = sum(thread.cpu_seconds for thread in threads)
        result = ProfileResult(
            seconds=seconds,
            cpu_seconds=cpu_seconds,
            children_cpu_seconds=self._system.children_cpu() - self._children_cpu,
            n_cores=self._system.n_cores,
            peak_memory_bytes=self._peak,
            phases=phases,
            outside_seconds=outside,
            threads=threads,
            unseen_cpu_seconds=max(0.0, cpu_seconds - seen) if self._has_threads else 0.0,
            has_threads=self._has_threads,
            advice=[],
        )
        result.advice.extend(advice(result))
        return result


def _phase_use(name: str, known: _Phase) -> PhaseUse:
    seconds = known.seconds
    return PhaseUse(
        name=name,
        parent=known.parent,
        n_entries=known.n_entries,
        seconds=seconds,
        n_threads=known.thread_seconds / seconds if seconds else 0.0,
        own_busy=min(1.0, known.own_cpu_seconds / known.own_seconds) if known.own_seconds else 0.0,
        cores=known.cpu_seconds / seconds if seconds else 0.0,
        peak_memory_bytes=known.peak,
        n_bytes=known.n_bytes,
        n_tokens=known.n_tokens,
        threads=_thread_uses(known.threads, seconds),
    )


def _thread_uses(threads: dict[str, _Threads], seconds: float) -> list[ThreadUse]:
    uses = [one.use(name, seconds) for name, one in threads.items()]
    return sorted(uses, key=lambda use: -use.cpu_seconds)


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
