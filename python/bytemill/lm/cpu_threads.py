"""Threads on the CPU: their number, and how they wait for work.

Training and generation on the CPU consist of thousands of short parallel regions a second. The idle threads of OpenMP
wait for the next region in a loop, which is fastest while each has a core of its own. Beside other programs, a thread
in such a loop takes the core from the thread that it waits for, and training is up to ten times slower than with
threads that sleep. So `shared_cores` watches how long the threads of this process wait for a core, and makes idle
threads sleep while they do. The numbers that are computed are the same.

Only libgomp on Linux, which torch's packages for Linux use, can be told how to wait. Elsewhere nothing is changed.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Generator

_INTERVAL_SECONDS = 0.2
_CONTENDED, _FREE = 0.2, 0.1
"""Seconds that threads wait for a core, per second: cores are shared above the first, and free below the second.
With two cores they are 0.01 to 0.04 on a quiet machine and 0.5 beside one busy process, in both ways of waiting."""
_SURE = 2
"""Intervals with contention before idle threads sleep."""
_FIRST_PATIENCE, _LONGEST_PATIENCE = 10, 300
"""Intervals without contention before idle threads spin again; doubles each time that this was too early."""
_TASKS = Path("/proc/self/task")


def use_threads(n: int | None) -> None:
    """Compute on `n` threads in this process and in those that it starts; with None, change nothing."""
    if n is None:
        return
    for library in ("OMP", "MKL"):
        os.environ[f"{library}_NUM_THREADS"] = str(n)
    torch.set_num_threads(n)


@contextmanager
def shared_cores(device: torch.device) -> Generator[None]:
    """Let idle threads sleep while other programs use the cores and the block computes on the CPU.

    Blocks may be nested, and run in several threads.
    """
    if device.type != "cpu" or torch.get_num_threads() == 1:
        yield
        return
    _monitor.enter()
    try:
        yield
    finally:
        _monitor.leave()


def are_cores_shared() -> bool:
    """Return True in a block of `shared_cores` if threads of this process wait for cores."""
    return _monitor.is_active and _monitor.is_contended


class Contention:
    """Decides from the delays of each interval whether the cores are shared with other programs."""

    def __init__(self) -> None:
        self.is_contended = False
        self._patience = _FIRST_PATIENCE
        self._n_contended = self._n_free = 0  # intervals with contention, or without, in a row
        self._n_spun = _LONGEST_PATIENCE  # intervals since the threads spin again

    def add(self, delay: float) -> None:
        """Take note of an interval.

        Args:
            delay: Seconds that threads waited for a core, per second of the interval.
        """
        if not self.is_contended:
            self._n_spun += 1
            self._n_contended = self._n_contended + 1 if delay > _CONTENDED else 0
            if self._n_contended >= _SURE:
                too_early = self._n_spun < 2 * self._patience
                self._patience = min(2 * self._patience, _LONGEST_PATIENCE) if too_early else _FIRST_PATIENCE
                self.is_contended, self._n_free = True, 0
            return
        self._n_free = self._n_free + 1 if delay < _FREE else 0
        if self._n_free >= self._patience:
            self.is_contended, self._n_spun, self._n_contended = False, 0, 0


class _Monitor:
    """A thread that watches the delays while there are blocks, and makes idle threads sleep or spin."""

    def __init__(self) -> None:
        self._forget()
        self._library = _libgomp()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._n_blocks = 0
        self._end = threading.Event()
        self._thread: threading.Thread | None = None
        self._team: _ExtraTeam | None = None
        self._contention = Contention()

    @property
    def is_active(self) -> bool:
        return self._n_blocks > 0

    @property
    def is_contended(self) -> bool:
        return self._contention.is_contended

    def enter(self) -> None:
        with self._lock:
            self._n_blocks += 1
            if self._n_blocks == 1:
                self._end = threading.Event()
                thread = threading.Thread(
                    target=self._watch, args=(self._end,), name="bytemill-cores", daemon=True
                )
                with suppress(RuntimeError):  # no more threads: then nobody watches
                    thread.start()
                    self._thread = thread

    def leave(self) -> None:
        with self._lock:
            self._n_blocks = max(0, self._n_blocks - 1)  # a forked child forgets the blocks around it
            if self._n_blocks == 0 and self._thread is not None:
                self._end.set()
                self._thread.join()
                self._thread = None

    def _watch(self, end: threading.Event) -> None:
        before, then = _delays(), time.monotonic()
        self._set_sleeping(self.is_contended)
        while before and not end.wait(_INTERVAL_SECONDS):
            after, now = _delays(), time.monotonic()
            waited = sum(after[task] - before[task] for task in after.keys() & before.keys())
            self._contention.add(waited / (now - then))
            self._set_sleeping(self.is_contended)
            before, then = after, now
        self._set_sleeping(False)

    def _set_sleeping(self, sleeping: bool) -> None:
        if self._team is not None and not sleeping:
            self._team.close()
            self._team = None
        elif self._team is None and sleeping and self._library is not None:
            with suppress(RuntimeError):  # no more threads
                self._team = _ExtraTeam(self._library)


class _ExtraTeam:
    """Makes idle threads of libgomp sleep almost at once, until it is closed.

    libgomp lets its threads wait in a long loop, or in a very short one if the process has more of them than it may use
    cores. This is a team, asleep, with so many threads that this is the case.
    """

    def __init__(self, library: Any) -> None:
        self._end = threading.Event()
        ready = threading.Event()

        def keep_team() -> None:
            # A parallel region that calls a function without effect. Its team lasts as long as this thread.
            work = ctypes.cast(library.omp_get_num_threads, ctypes.c_void_p)
            library.GOMP_parallel(work, None, library.omp_get_num_procs() + 1, 0)
            ready.set()
            self._end.wait()

        self._thread = threading.Thread(target=keep_team, name="bytemill-team", daemon=True)
        self._thread.start()
        ready.wait()

    def close(self) -> None:
        self._end.set()
        self._thread.join()


def _delays() -> dict[str, float]:
    """Return the seconds that each thread of this process has waited for a core; empty if the system does not say."""
    delays: dict[str, float] = {}
    for task in _TASKS.iterdir() if _TASKS.exists() else ():
        with suppress(OSError, IndexError, ValueError):  # no such statistics, or the thread has just ended
            delays[task.name] = int((task / "schedstat").read_bytes().split()[1]) / 1e9
    return delays


def _libgomp() -> ctypes.CDLL | None:
    """Return the libgomp that torch has loaded; None elsewhere."""
    if sys.platform != "linux":
        return None
    try:
        found = re.search(r"/\S*libgomp\S*\.so\S*", Path("/proc/self/maps").read_text())
        library = found and ctypes.CDLL(found.group())
    except OSError:
        return None
    return library if library is not None and hasattr(library, "GOMP_parallel") else None


_monitor = _Monitor()
