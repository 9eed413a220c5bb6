"""A tiny study, finished once, and executors of its cells in this process."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest
import torch

from bytemill.errors import BytemillError
from bytemill.experiment import run_study
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
hellaswag = "items.txt"
tasks = ["arc=arc.jsonl", "gsm8k=sums.jsonl"]
prompts = ["The dog"]

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


@pytest.fixture(autouse=True, scope="package")
def _quick_training() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    """For tiny models, a second thread costs more than it saves, and so does the measurement of the device."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bytemill.lm.training.preparation.matmul_rate", lambda *_: 1e10)
        yield
    torch.set_num_threads(before)


class InThisProcess:
    """Performs jobs one after another, and keeps their names. Those with a result in `known` are copied from there."""

    def __init__(self, known: Path | None = None) -> None:
        self.performed: list[str] = []
        self.failing = ""
        self._known = known

    def __call__(self, jobs: Iterator[Job]) -> Iterator[Event]:
        for job in jobs:
            yield Event("cell", job.name)
            if job.name == self.failing:
                yield Event("failed", job.name, "the loss is not finite")
                continue
            if self._known is not None:
                shutil.copytree(self._known / "cells" / job.name, job.folder, dirs_exist_ok=True)
            try:
                result = job.result() or perform(job)
            except BytemillError as error:
                yield Event("failed", job.name, str(error))
                continue
            self.performed.append(job.name)
            yield Event("finished", job.name, record=result)


@pytest.fixture
def executor() -> InThisProcess:
    """Executor of `run_study`."""
    return InThisProcess()


def write_inputs(folder: Path) -> Path:
    """Write the file of a tiny study, beside its text; return the file."""
    (folder / "train.txt").write_text(sentences(1, 600))
    (folder / "valid.txt").write_text(sentences(2, 30))
    (folder / "code.txt").write_text("def f(x):\n    return x + 1\n<|endoftext|>" * 15)
    lines = [line for n in range(3) for line in (f"The cat {n}", str(n % 4), "saw", "ate", "the bird", "x")]
    (folder / "items.txt").write_text("\n".join(lines) + "\n")
    choices = {"text": ["hot", "cold"], "label": ["A", "B"]}
    arc = [{"question": f"Is {n} hot?", "choices": choices, "answerKey": "AB"[n % 2]} for n in range(3)]
    sums = [{"question": f"{n} + 1?", "answer": f"#### {n + 1}"} for n in range(2)]
    for name, rows in (("arc", arc), ("sums", sums)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "study.toml").write_text(STUDY)
    return folder / "study.toml"


def edit(study_file: Path, *changes: tuple[str, str]) -> Path:
    """Replace parts of a study file."""
    text = study_file.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    study_file.write_text(text)
    return study_file


@pytest.fixture
def study_file(tmp_path: Path) -> Path:
    """The file of a tiny study, beside its text."""
    return write_inputs(tmp_path)


@pytest.fixture(scope="package")
def finished(tmp_path_factory: pytest.TempPathFactory, _quick_training: None) -> Path:
    """The folder of the finished study, which tests only read."""
    folder = tmp_path_factory.mktemp("finished")
    return run_study(write_inputs(folder), folder / "out", execute=InThisProcess()).path


@pytest.fixture
def copied(finished: Path, study_file: Path) -> Path:
    """A copy of the finished study, beside the file of the study."""
    return shutil.copytree(finished, study_file.parent / "out")
