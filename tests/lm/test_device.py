"""Devices: unknown ones are refused, and failed allocations become one kind of error."""

from pathlib import Path

import pytest
import torch

from bytemill.errors import NotEnoughMemoryError, RunConfigError
from bytemill.lm import device
from bytemill.lm.device import memory_errors, pick_device, total_memory


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (MemoryError("Unable to allocate 8.00 EiB for an array"), "not enough memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9"), "not enough memory"),
        (RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 9"), "not enough memory"),
        (RuntimeError("MPS backend out of memory (MPS allocated: 9 GB)"), "not enough GPU memory"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB"), "not enough GPU memory"),
    ],
)  # fmt: skip
def test_every_failed_allocation_becomes_one_error_with_the_hint(error: Exception, message: str):
    with pytest.raises(NotEnoughMemoryError, match=f"^{message}$") as caught, memory_errors("lower it"):
        raise error
    assert caught.value.hint == "lower it"


def test_the_hint_of_an_inner_block_is_kept_and_other_errors_pass():
    with pytest.raises(NotEnoughMemoryError) as caught, memory_errors("outer"), memory_errors("inner"):
        raise MemoryError
    assert caught.value.hint == "inner"
    with pytest.raises(RuntimeError, match="shapes"), memory_errors("lower it"):
        raise RuntimeError("shapes do not match")


def test_the_memory_of_the_cpu_is_limited_by_the_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(device, "_MEMORY_LIMIT", limit)
    machine = total_memory()
    if machine is None:
        pytest.skip("this system does not report its memory")
    limit.write_text("max\n")
    assert total_memory() == machine
    limit.write_text("1000000\n")
    assert total_memory() == 1_000_000


def test_unknown_and_absent_devices_are_refused():
    for name in ("nothing", "cuda:77"):
        with pytest.raises(RunConfigError, match=f"device '?{name}"):
            pick_device(name)
