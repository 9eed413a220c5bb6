"""A tiny study, and its cells performed in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from bytemill.errors import BytemillError
from bytemill.experiment.job import Job, perform
from bytemill.experiment.runner import Event
from tests.lm.conftest import sentences

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STUDY = """
title = "Does a larger vocabulary help?"
seeds = 2
n_checkpoints = 2

[text]
train = ["train.txt"]
validation = { stories = ["valid.txt"], code = ["code.txt"] }
documents = "<|endoftext|>"

[tokenizers.bytes]
vocab_sizes = [257]

[tokenizers.own]
vocab_sizes = [270]

[models.mini]
preset = "tiny"
context_length = 32
d_model = 16
num_layers = 1
num_heads = 2
d_ff = 32

[budget]
amount = 4000

[train]
training.batch_size = 4
training.device = "cpu"
schedule.warmup_steps = 1
"""


class InThisProcess:
    """Performs jobs one after another, and counts them."""

    def __init__(self) -> None:
        self.performed: list[str] = []
        self.failing: str = ""

    def __call__(self, jobs: Iterator[Job]) -> Iterator[Event]:
        for job in jobs:
            yield Event("cell", job.name)
            try:
                result = self._perform(job)
            except BytemillError as error:
                yield Event("failed", job.name, str(error))
                continue
            self.performed.append(job.name)
            yield Event("finished", job.name, record=result)

    def _perform(self, job: Job) -> dict[str, Any]:
        if job.name == self.failing:
            raise BytemillError("the loss is not finite")
        return perform(job)


@pytest.fixture
def executor() -> InThisProcess:
    """Executor of `run_study`."""
    return InThisProcess()


@pytest.fixture
def study_file(tmp_path: Path) -> Path:
    """The file of a tiny study, beside its text."""
    (tmp_path / "train.txt").write_text(sentences(1, 600))
    (tmp_path / "valid.txt").write_text(sentences(2, 60))
    (tmp_path / "code.txt").write_text("def f(x):\n    return x + 1\n<|endoftext|>" * 30)
    (tmp_path / "study.toml").write_text(STUDY)
    return tmp_path / "study.toml"
