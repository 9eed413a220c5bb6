"""Tuning that is killed again and again, at any moment, ends with the weights and metrics of a run that was not."""

from __future__ import annotations

import multiprocessing
import random
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest
import torch

from bytemill.lm.tuning.tune import tune

from .test_conversations import shards  # noqa: F401 - a fixture
from .test_grpo import same

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bytemill.lm.training.config import Resolved

KILLS = 13
"""Of each method; four methods make more than 50."""


def tune_alone(resolved: Resolved) -> None:
    """Run or resume in a process of its own; sums depend on the number of threads."""
    torch.set_num_threads(1)
    tune(resolved)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("sft", {"training__batch_size": 2}),
        ("sft", {"training__batch_size": 2, "tuning__loss_mean": "sequence"}),
        ("dpo", {"training__batch_size": 3, "tuning__label_smoothing": 0.1}),
        ("grpo", {"tuning__updates": 2, "tuning__kl_weight": 0.1, "run__sample_every": 5}),
    ],
    ids=["sft", "sft-sequence", "dpo", "grpo"],
)
def test_kills_change_nothing(
    shards: Path,  # noqa: F811
    settings: Callable[..., Resolved],
    tmp_path: Path,
    method: str,
    options: dict[str, Any],
) -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["bytemill.lm.tuning.tune"])  # so that a child starts in no time
    values: dict[str, Any] = {
        **options,
        "training__steps": 60,
        "run__checkpoint_every": 3,
        "run__log_every": 1,
    }
    if method != "grpo":
        values["data__train"] = [str(shards / ("pairs" if method == "dpo" else "chats"))]
    started = time.monotonic()
    whole = context.Process(
        target=tune_alone, args=(settings(method, run__folder=str(tmp_path / "whole"), **values),)
    )
    whole.start()
    whole.join()
    assert whole.exitcode == 0
    seconds = time.monotonic() - started
    chooser = random.Random(method)
    n_kills = n_runs = 0
    while n_kills < KILLS:
        folder = tmp_path / f"killed{n_runs}"
        resolved = settings(method, run__folder=str(folder), **values)
        n_runs += 1
        while True:
            process = context.Process(target=tune_alone, args=(resolved,))
            process.start()
            process.join(chooser.uniform(0, seconds / 2))
            process.kill()
            process.join()
            if process.exitcode == 0:
                break
            assert process.exitcode == -signal.SIGKILL
            n_kills += 1
            assert n_kills < 10 * KILLS, "the run makes no progress"
        assert same(tmp_path / "whole", folder)
