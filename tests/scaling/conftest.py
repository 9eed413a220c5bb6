"""A tiny sweep, and an executor of its chains in this process."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

import pytest
import torch

from bytemill.errors import BytemillError
from bytemill.experiment.runner import Event
from bytemill.scaling.chain_job import ChainJob, perform
from tests.lm.conftest import sentences

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SWEEP = """
title = "A tiny sweep"
depths = [1, 2, 3]
width_per_layer = 16
depths_per_budget = 3
budgets = [1e8, 2e8]
limit_flops = 1e10
seeds = 1

[text]
train = ["train.txt"]
validation = { stories = ["valid.txt"] }
documents = "<|endoftext|>"

[vocabularies]
sizes = [270, 300]
budgets = [1e8]
depths = 2

[train]
context_length = 16
batch_size = 2
warmup_steps = 2

[train.other]
training.device = "cpu"
"""


class InThisProcess:
    """Performs chains one after another, and keeps their names and lengths."""

    def __init__(self) -> None:
        self.performed: list[tuple[str, list[int]]] = []

    def __call__(self, jobs: Iterator[Any]) -> Iterator[Event]:
        for job in jobs:
            assert isinstance(job, ChainJob)
            yield Event("cell", job.name)
            records: list[dict[str, Any]] = []
            try:
                perform(job, records.append)
            except BytemillError as error:
                yield Event("failed", job.name, str(error))
                continue
            self.performed.append((job.name, [n_steps for n_steps, _ in job.lengths]))
            yield from (Event("record", job.name, record=each) for each in records)
            yield Event("finished", job.name, record=job.result() or {})


class FakeRuns:
    """Yields results of chains at once: losses that are lowest at the depth dial's learning rate."""

    def __init__(self, best_rate: Callable[[float], float]) -> None:
        self.performed: list[str] = []
        self._best_rate = best_rate

    def __call__(self, jobs: Iterator[Any]) -> Iterator[Event]:
        for job in jobs:
            self.performed.append(job.name)
            depth, seed, rate = (
                float(own) for own in re.findall(r"(?:depth|seed|rate)([0-9.e-]*[0-9])", job.name)
            )
            for n_steps, _ in job.lengths:
                bits = 3 + 0.1 * math.log(rate / self._best_rate(depth)) ** 2 + 0.001 * seed + 1 / n_steps
                values = {"loss": bits, "bits_per_byte": bits, "unigram_bits_per_byte": 9.0, "diverged": ""}
                record = {"kind": "run", "n_steps": n_steps, "seconds": 1.0, **values}
                yield Event("record", job.name, record=record)
            yield Event("finished", job.name)


@pytest.fixture(autouse=True, scope="package")
def _quick_training() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    """For tiny models, a second thread costs more than it saves, and so does the measurement of the device."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bytemill.lm.training.preparation.matmul_rate", lambda *_: 1e10)
        yield
    torch.set_num_threads(before)


@pytest.fixture
def executor() -> InThisProcess:
    """Executor of `Ledger.run`."""
    return InThisProcess()


def write_sweep(folder: Path, *changes: tuple[str, str]) -> Path:
    """Write the file of the tiny sweep, with parts replaced, beside its text; return the file."""
    (folder / "train.txt").write_text(sentences(1, 600))
    (folder / "valid.txt").write_text(sentences(2, 30))
    text = SWEEP
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / "scaling.toml").write_text(text)
    return folder / "scaling.toml"


@pytest.fixture
def sweep_file(tmp_path: Path) -> Path:
    """The file of the tiny sweep, beside its text."""
    return write_sweep(tmp_path)
