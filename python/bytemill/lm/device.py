"""Devices: selection, precision, memory, peak speed, and the threads of the CPU."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import sys
import threading
import time
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from bytemill.errors import NotEnoughMemoryError, RunConfigError
from bytemill.lm.kernels.layers import prefers_onednn, product
from bytemill.system.memory import peak_bytes

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from torch import Tensor


_ALLOCATION_FAILED = re.compile(
    r"can't allocate memory|not enough memory|out of memory|bad alloc", re.IGNORECASE
)
"""Messages of torch's allocators, which raise a plain RuntimeError on the CPU and on MPS."""
_MEMORY_LIMIT = Path("/sys/fs/cgroup/memory.max")
"""Memory limit of a container (cgroup v2): bytes, or "max"."""


def pick_device(name: str = "auto") -> torch.device:
    """Return the device of that name; "auto" is CUDA if available, else MPS, else the CPU.

    Raises:
        RunConfigError: The device is unknown or not available.
    """
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise RunConfigError(
            f"unknown device {name!r}", hint="choose one of auto, cpu, cuda, cuda:N, mps"
        ) from error
    is_available = {
        "cpu": True,
        "cuda": torch.cuda.is_available() and (device.index or 0) < torch.cuda.device_count(),
        "mps": torch.backends.mps.is_available(),
    }.get(device.type, False)
    if not is_available:
        raise RunConfigError(f"device {name} is not available", hint="choose auto or cpu")
    return device


def pick_precision(name: str, device: torch.device) -> torch.dtype:
    """Return the type of matrix products; "auto" is bfloat16 on CUDA devices with hardware support, else float32.

    "tf32" is float32, and makes products on CUDA round their inputs to 10 bits; every other name makes them exact.

    Raises:
        RunConfigError: The device has no TF32 products.
    """
    if name == "tf32" and not (device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)):
        raise RunConfigError(
            f"precision tf32 needs a CUDA device of compute capability 8.0 or more, and the device is {device}",
            hint="choose --training.precision float32 or bfloat16",
        )
    if device.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
    if name == "auto":
        has_bfloat16 = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
        return torch.bfloat16 if has_bfloat16 else torch.float32
    return {"bfloat16": torch.bfloat16, "float16": torch.float16}.get(name, torch.float32)


def autocast(device: torch.device, dtype: torch.dtype) -> AbstractContextManager[object]:
    """Compute matrix products in `dtype` inside the block; parameters and sums stay float32."""
    if dtype == torch.float32:
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype=dtype)


@contextlib.contextmanager
def memory_errors(hint: str) -> Generator[None]:
    """Turn every kind of failed allocation in the block into NotEnoughMemoryError.

    Args:
        hint: What to lower, in the imperative.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        text = str(error)
        if isinstance(error, NotEnoughMemoryError) or not (
            isinstance(error, (MemoryError, torch.OutOfMemoryError)) or _ALLOCATION_FAILED.search(text)
        ):
            raise
        is_gpu = isinstance(error, torch.OutOfMemoryError) or "MPS" in text
        raise NotEnoughMemoryError(f"not enough {'GPU ' if is_gpu else ''}memory", hint=hint) from error


def total_memory() -> int | None:
    """Return the bytes of memory of this machine or its container; None if unknown."""
    try:
        n_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf
        return None
    with contextlib.suppress(OSError, ValueError):  # no such file, or "max"
        n_bytes = min(n_bytes, int(_MEMORY_LIMIT.read_text()))
    return n_bytes


def synchronise(device: torch.device) -> None:
    """Wait until the device has finished all queued work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


class DeviceNumbers:
    """Numbers that a device still computes; they are copied when they are known, and nothing waits before `read`.

    Args:
        values: Scalars on the device.
        device: The device.
    """

    def __init__(self, values: Sequence[Tensor], device: torch.device) -> None:
        self._values, self._event = values, None
        if device.type == "cuda":
            self._host = torch.empty(len(values), dtype=torch.float64, pin_memory=True)
            self._host.copy_(torch.stack([value.double() for value in values]), non_blocking=True)
            self._event = torch.cuda.Event()
            self._event.record()

    def read(self) -> list[float]:
        """Wait for the numbers, and return them."""
        if self._event is None:
            return [float(value) for value in self._values]
        self._event.synchronize()
        return [float(number) for number in self._host]


def peak_memory(device: torch.device) -> int:
    """Return the peak bytes in use: of the device's memory, or on the CPU of the whole process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if device.type == "mps":
        return torch.mps.driver_allocated_memory()
    return peak_bytes()


def matmul_rate(device: torch.device, dtype: torch.dtype, *, seconds: float = 0.3) -> float:
    """Measure the FLOPs per second of a large square matrix product, the peak that utilization refers to.

    The best of several runs counts: other work on the machine only makes a run slower.

    Args:
        device: Device to measure.
        dtype: Type of the matrices.
        seconds: Duration of the measurement.
    """
    size = 8192 if device.type == "cuda" else 1024
    left, right = (torch.ones(size, size, device=device, dtype=dtype) for _ in range(2))
    # The faster of torch's products, as `kernels.choice` uses.
    is_onednn = device.type == "cpu" and dtype == torch.float32 and prefers_onednn()
    multiply = product if is_onednn else torch.matmul
    multiply(left, right)  # warm up
    best = 0.0
    end = time.perf_counter() + seconds
    while True:
        synchronise(device)
        started = time.perf_counter()
        multiply(left, right)
        synchronise(device)
        now = time.perf_counter()
        best = max(best, 2 * size**3 / (now - started))
        if now > end:
            return best


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
