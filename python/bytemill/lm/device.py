"""Devices: selection, precision, memory, and peak speed."""

from __future__ import annotations

import contextlib
import os
import re
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from bytemill.errors import NotEnoughMemoryError, RunConfigError
from bytemill.lm.kernels.linear import prefers_onednn, product
from bytemill.system.memory import peak_bytes

if TYPE_CHECKING:
    from collections.abc import Generator

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
