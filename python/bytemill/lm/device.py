"""Where a model computes: which device, in which precision, how fast it could be and what memory it takes."""

from __future__ import annotations

import contextlib
import re
import time
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import torch

from bytemill.errors import NotEnoughMemoryError, RunConfigError
from bytemill.system.memory import peak_bytes

if TYPE_CHECKING:
    from collections.abc import Generator

_ALLOCATION_FAILED = re.compile(
    r"can't allocate memory|not enough memory|out of memory|bad alloc", re.IGNORECASE
)
"""Messages of torch's allocators, which raise a plain RuntimeError on the CPU and on MPS."""


def pick_device(name: str = "auto") -> torch.device:
    """The device of that name; "auto" is CUDA where there is one, else MPS, else the CPU.

    Raises `RunConfigError` for a device that is unknown or not there.
    """
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise RunConfigError(
            f"there is no kind of device {name!r}", hint="take auto, cpu, cuda, cuda:1 or mps"
        ) from error
    there = {
        "cpu": True,
        "cuda": torch.cuda.is_available() and (device.index or 0) < torch.cuda.device_count(),
        "mps": torch.backends.mps.is_available(),
    }.get(device.type, False)
    if not there:
        raise RunConfigError(f"device {name} is not there", hint="take auto, or cpu")
    return device


def pick_precision(name: str, device: torch.device) -> torch.dtype:
    """The type of the matrix products: "auto" is bfloat16 where CUDA has it in hardware, else float32."""
    if name == "auto":
        fast = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
        return torch.bfloat16 if fast else torch.float32
    return {"float32": torch.float32, "bfloat16": torch.bfloat16}[name]


def autocast(device: torch.device, dtype: torch.dtype) -> AbstractContextManager[object]:
    """Matrix products in `dtype` inside the block; the parameters and what is added up stay in float32."""
    if dtype == torch.float32:
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype=dtype)


@contextlib.contextmanager
def memory_errors(hint: str) -> Generator[None]:
    """Turn every kind of failed allocation in the block into `NotEnoughMemoryError` with `hint`."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        text = str(error)
        if isinstance(error, NotEnoughMemoryError) or not (
            isinstance(error, (MemoryError, torch.OutOfMemoryError)) or _ALLOCATION_FAILED.search(text)
        ):
            raise
        where = "on the GPU" if isinstance(error, torch.OutOfMemoryError) else "for this model"
        raise NotEnoughMemoryError(f"there is not enough memory {where}", hint=hint) from error


def synchronise(device: torch.device) -> None:
    """Waits until the device has done all it was given, so that the clock tells its time."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def peak_memory(device: torch.device) -> int:
    """The most bytes in use so far: of the device's memory, on the CPU of the whole process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if device.type == "mps":
        return torch.mps.driver_allocated_memory()
    return peak_bytes()


def matmul_rate(device: torch.device, dtype: torch.dtype, *, seconds: float = 0.3) -> float:
    """FLOPs a second of a large square matrix product: what utilisation is measured against.

    The best of several, since on a machine with other work every disturbance makes it slower and none faster.
    """
    size = 8192 if device.type == "cuda" else 1024
    left, right = (torch.ones(size, size, device=device, dtype=dtype) for _ in range(2))
    torch.matmul(left, right)  # the first one takes longer
    best = 0.0
    ends = time.perf_counter() + seconds
    while True:
        synchronise(device)
        started = time.perf_counter()
        torch.matmul(left, right)
        synchronise(device)
        now = time.perf_counter()
        best = max(best, 2 * size**3 / (now - started))
        if now > ends:
            return best
