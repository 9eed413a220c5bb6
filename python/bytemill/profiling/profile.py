"""Measure the phases and threads of running work."""

from __future__ import annotations

import threading
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bytemill.profiling.advice import advice
from bytemill.profiling.result import PhaseUse, ProfileResult
from bytemill.profiling.system import System
from bytemill.profiling.totals import PhaseTotals, ThreadGroups

if TYPE_CHECKING:
    from collections.abc import Generator
    from contextlib import AbstractContextManager
    from types import TracebackType
    from typing import Self

    from bytemill.profiling.threads import ThreadKey, ThreadReading

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
        self._phases: dict[str, PhaseTotals] = {}
        self._own = _Own()
        self._threads = ThreadGroups()
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
            totals = self._phases.setdefault(name, PhaseTotals(None))
            totals.n_bytes += n_bytes
            totals.n_tokens += n_tokens

    def sample(self) -> None:
        """Sample the threads and the memory now."""
        with self._lock:
            self._take_sample()

    def _enter(self, name: str) -> _Entry:
        """Start a phase in the calling thread."""
        stack = self._own.stack
        with self._lock:
            self._sample_at_change()
            totals = self._phases.setdefault(name, PhaseTotals(stack[-1].name if stack else None))
            now = self._system.wall()
            if totals.n_inside == 0:
                totals.started, totals.started_cpu = now, self._system.cpu()
                totals.window_started = now
            if self._n_inside == 0:
                self._outside_seconds += now - self._outside_since
            self._n_inside += 1
            totals.n_inside += 1
            totals.n_entries += 1
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
            totals = self._phases[entry.name]
            now = self._system.wall()
            totals.n_inside -= 1
            self._n_inside -= 1
            if self._n_inside == 0:
                self._outside_since = now
            if totals.n_inside == 0:
                totals.seconds += now - totals.started
                totals.cpu_seconds += self._system.cpu() - totals.started_cpu
                totals.in_window += now - totals.window_started
            totals.thread_seconds += now - entry.started
            if is_same_thread:
                totals.own_seconds += now - entry.started
                totals.own_cpu_seconds += own_cpu - entry.started_cpu
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
        shares: list[tuple[PhaseTotals, float]] = []
        peak = self._system.take_peak()
        self._peak = max(self._peak, peak)
        for totals in self._phases.values():
            if totals.n_inside:
                totals.in_window += now - totals.window_started
                totals.window_started = now
            if totals.in_window > 0 or totals.n_inside:
                totals.peak = max(totals.peak, peak)
                shares.append((totals, min(1.0, totals.in_window / window) if window > 0 else 0.0))
                totals.in_window = 0.0
        readings = self._system.threads() or {}
        for key, reading in readings.items():
            if reading.name != _SAMPLER:
                before = self._seen.get(key)
                self._threads.add(key, reading, before, 1.0)
                for totals, share in shares:
                    if share > 0:
                        totals.threads.add(key, reading, before, share)
        self._seen = readings

    def _summarize(self) -> ProfileResult:
        wall, cpu = self._system.wall(), self._system.cpu()
        seconds, cpu_seconds = wall - self._started, cpu - self._started_cpu
        phases: list[PhaseUse] = []
        for name, totals in self._phases.items():
            if totals.n_inside:  # still active: count the time up to now
                totals.seconds += wall - totals.started
                totals.cpu_seconds += cpu - totals.started_cpu
            phases.append(totals.result(name))
        outside = self._outside_seconds + (0.0 if self._n_inside else wall - self._outside_since)
        threads = self._threads.result(seconds)
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
