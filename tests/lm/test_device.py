"""Devices, and idle threads that sleep while other programs use the cores."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from bytemill.errors import NotEnoughMemoryError, RunConfigError
from bytemill.lm import ModelConfig, TransformerLM, device
from bytemill.lm.device import (
    Contention,
    are_cores_shared,
    memory_errors,
    pick_device,
    shared_cores,
    total_memory,
    use_threads,
)
from bytemill.lm.evaluate import evaluate_text, evaluate_windows
from bytemill.lm.generation.decoding import generate
from bytemill.lm.loss import TokenBytes

if TYPE_CHECKING:
    from collections.abc import Callable


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


CPU = torch.device("cpu")


def states(delays: list[float]) -> list[bool]:
    contention = Contention()
    states: list[bool] = []
    for delay in delays:
        contention.add(delay)
        states.append(contention.is_contended)
    return states


def test_two_intervals_of_waiting_make_threads_sleep_and_ten_without_let_them_spin():
    assert states([0.5, 0.1, 0.5, 0.5, *[0.0] * 10]) == [False, False, False, *[True] * 10, False]


def test_a_little_waiting_among_the_free_intervals_starts_the_count_anew():
    assert states([1.0, 1.0, *[0.0] * 9, 0.15, *[0.0] * 10])[-2:] == [True, False]


def test_patience_doubles_when_spinning_was_too_early_and_is_reset_after_a_quiet_time():
    contention = Contention()
    needed: list[int] = []
    for n_quiet in (1, 1, 1, 1000, 1):
        contention.add(1.0)
        contention.add(1.0)
        n = 0
        while contention.is_contended:
            contention.add(0.0)
            n += 1
        needed.append(n)
        for _ in range(n_quiet):
            contention.add(0.0)
    assert needed == [10, 20, 40, 80, 10]


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


class Watched:
    """Stands in for the delays of the system: contended from the first interval on."""

    def __init__(self) -> None:
        self.waited = 0.0

    def __call__(self) -> dict[str, float]:
        self.waited += 100.0
        return {"1": self.waited}


@pytest.fixture
def contended(monkeypatch: pytest.MonkeyPatch) -> None:
    monitor = device._Monitor()
    monkeypatch.setattr(device, "_monitor", monitor)
    monkeypatch.setattr(device, "_delays", Watched())
    monkeypatch.setattr(device, "_INTERVAL_SECONDS", 0.001)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)


@pytest.mark.skipif(device._libgomp() is None, reason="platform: torch does not use libgomp")
def test_a_sleeping_team_exceeds_the_cores_while_they_are_shared(contended: None):
    def n_threads() -> int:
        return len(list(Path("/proc/self/task").iterdir()))

    torch.ones(100_000).exp()
    before = n_threads()
    n_cores = len(os.sched_getaffinity(0))
    with shared_cores(CPU):
        wait_until(lambda: n_threads() > before + n_cores)
        assert are_cores_shared()
        with shared_cores(CPU):
            assert torch.equal(torch.ones(100_000) * 2, torch.full((100_000,), 2.0))
        assert n_threads() > before + n_cores
    wait_until(lambda: n_threads() < before + n_cores)


def test_the_state_outlives_a_block(contended: None):
    with shared_cores(CPU):
        wait_until(are_cores_shared)
    with shared_cores(CPU):
        assert are_cores_shared()


def test_a_system_without_more_threads_costs_time_only(contended: None, monkeypatch: pytest.MonkeyPatch):
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with shared_cores(CPU):
        assert not are_cores_shared()


def test_one_thread_and_other_devices_are_not_watched(contended: None, monkeypatch: pytest.MonkeyPatch):
    with shared_cores(torch.device("cuda")):
        assert device._monitor._thread is None
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    with shared_cores(CPU):
        assert device._monitor._thread is None


def test_the_number_of_threads_holds_for_this_process_and_its_children(monkeypatch: pytest.MonkeyPatch):
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.setenv(name, "7")
    before = torch.get_num_threads()
    try:
        use_threads(None)
        assert (torch.get_num_threads(), os.environ["OMP_NUM_THREADS"]) == (before, "7")
        use_threads(1)
        assert (torch.get_num_threads(), os.environ["OMP_NUM_THREADS"], os.environ["MKL_NUM_THREADS"]) == (
            1,
            "1",
            "1",
        )
    finally:
        torch.set_num_threads(before)


def test_evaluation_and_generation_watch_the_cores(monkeypatch: pytest.MonkeyPatch):
    blocks: list[str] = []
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(device._monitor, "enter", lambda: blocks.append("in"))
    monkeypatch.setattr(device._monitor, "leave", lambda: blocks.append("out"))
    model = TransformerLM(
        ModelConfig(vocab_size=16, context_length=8, d_model=8, num_layers=1, num_heads=1, d_ff=8)
    )
    tokens, counts = np.arange(16, dtype=np.uint16), TokenBytes(torch.ones(16, dtype=torch.int64))
    for work in (
        lambda: generate(model, [1], 2, seed=0),
        lambda: evaluate_text(model, tokens, counts),
        lambda: evaluate_windows(model, tokens, [0], counts),
    ):
        work()
        assert blocks == ["in", "out"]
        blocks.clear()
