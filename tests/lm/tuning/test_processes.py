"""Several processes tune like one: the same answers, losses and weights, and they resume exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import pytest
import torch

from bytemill.errors import RunConfigError
from bytemill.lm.strategies import StrategyName
from bytemill.lm.training.metrics_log import MEASURED, read_metrics
from bytemill.lm.tuning.tune import tune

from .test_conversations import shards  # noqa: F401 - a fixture
from .test_grpo import same, weights

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bytemill.lm.training.config import Resolved

    from ..conftest import RankServer

    Make = Callable[..., Resolved]

SHORT = {"training__steps": 3, "run__log_every": 1, "run__sample_every": 1, "optimizer__learning_rate": 1e-3}
METHODS: dict[str, dict[str, Any]] = {
    "sft": {"training__batch_size": 4, "training__accumulation": 2},
    "sft-sequence": {"tuning__loss_mean": "sequence", "training__batch_size": 4, "training__accumulation": 2},
    "dpo": {"training__batch_size": 2, "training__accumulation": 2, "tuning__label_smoothing": 0.1},
    "grpo": {"tuning__sampling_batch": 16, "training__batch_size": 8},
    "grpo-token": {
        "tuning__updates": 2,
        "tuning__aggregation": "token",
        "tuning__kl_weight": 0.1,
        "tuning__sampling_batch": 20,
        "training__batch_size": 6,
    },
    "grpo-constant": {"tuning__algorithm": "dr-grpo", "tuning__group_size": 4, "tuning__updates": 4},
}


def made(settings: Make, shards: Path, name: str, folder: Path, **options: Any) -> Resolved:  # noqa: F811
    method = name.partition("-")[0]
    data = (
        {} if method == "grpo" else {"data__train": [str(shards / ("pairs" if method == "dpo" else "chats"))]}
    )
    return settings(method, **{**SHORT, **METHODS[name], **data, **options, "run__folder": str(folder)})


def check_like_one(one: Path, other: Path, tolerance: float = 1e-6) -> None:
    """Compare all records, with the ids of answers, and the weights."""
    ours, theirs = (read_metrics(folder / "metrics.jsonl") for folder in (one, other))
    assert [record["kind"] for record in ours] == [record["kind"] for record in theirs]
    for a, b in zip(ours, theirs, strict=True):
        check_values({name: value for name, value in a.items() if name not in MEASURED}, b, tolerance)
    first, second = weights(one), weights(other)
    for name, tensor in first.items():
        assert float((tensor - second[name]).abs().max()) < 1e-5, name


def check_values(ours: Any, theirs: Any, tolerance: float) -> None:
    if isinstance(ours, dict):
        for name, value in ours.items():
            check_values(value, theirs[name], tolerance)
    elif isinstance(ours, list):
        assert len(ours) == len(theirs)
        for a, b in zip(ours, theirs, strict=True):
            check_values(a, b, tolerance)
    elif isinstance(ours, float):
        assert ours == pytest.approx(theirs, rel=5 * tolerance, abs=tolerance)
    else:
        assert ours == theirs


FEW = [("sft-sequence", "bucketed"), ("dpo", "ddp"), ("grpo-token", "fully_sharded")]
ALL = [(name, strategy) for name in METHODS for strategy in get_args(StrategyName)]


@pytest.mark.parametrize(
    ("name", "strategy"),
    [*FEW, *(pytest.param(*each, marks=pytest.mark.slow) for each in ALL if each not in FEW)],
)
def test_two_processes_tune_like_one(
    shards: Path,  # noqa: F811
    settings: Make,
    rank_server: RankServer,
    tmp_path: Path,
    name: str,
    strategy: str,
) -> None:
    tune(made(settings, shards, name, tmp_path / "one"))
    two = made(settings, shards, name, tmp_path / "two", training__strategy=strategy)
    assert rank_server(2, two) == [None, None]
    check_like_one(tmp_path / "one", tmp_path / "two")


@pytest.mark.slow
@pytest.mark.parametrize("strategy", get_args(StrategyName))
@pytest.mark.parametrize("name", ["sft-sequence", "dpo", "grpo-token"])
def test_two_processes_resume_exactly(
    shards: Path,  # noqa: F811
    settings: Make,
    rank_server: RankServer,
    tmp_path: Path,
    name: str,
    strategy: str,
) -> None:
    own = {"training__strategy": strategy, "schedule__name": "constant"}
    assert rank_server(2, made(settings, shards, name, tmp_path / "whole", **own)) == [None, None]
    for n_steps in (2, 3):
        part = made(settings, shards, name, tmp_path / "parts", training__steps=n_steps, **own)
        assert rank_server(2, part) == [None, None]
    assert same(tmp_path / "whole", tmp_path / "parts")


def test_steps_without_signal_change_what_they_change_in_one_process(
    shards: Path,  # noqa: F811
    settings: Make,
    rank_server: RankServer,
    tmp_path: Path,
) -> None:
    """Answers to the first prompt of a step alone have rewards that differ, in every second step."""
    (tmp_path / "mine.py").write_text(
        "def some(prompt, answer, row): return float(len(answer)) if row['answer'] == '4' else 0.0\n"
    )
    options = {
        "training__steps": 5,
        "tuning__reward": f"{tmp_path / 'mine.py'}:some",
        "tuning__prompts_per_step": 2,
        "tuning__sampling_batch": 8,
    }
    tune(made(settings, shards, "grpo", tmp_path / "one", **options))
    found = read_metrics(tmp_path / "one" / "metrics.jsonl", "rollout")
    assert {record["no_signal"] for record in found} == {False, True}
    for strategy in ("fsdp", "fully_sharded", "sharded_optimizer"):
        folder = tmp_path / strategy
        assert rank_server(
            2, made(settings, shards, "grpo", folder, **options, training__strategy=strategy)
        ) == [
            None,
            None,
        ]
        check_like_one(tmp_path / "one", folder)


def test_prompts_that_processes_cannot_divide_are_an_error(
    shards: Path,  # noqa: F811
    settings: Make,
    tmp_path: Path,
) -> None:
    torch.set_num_threads(1)
    resolved = made(settings, shards, "grpo", tmp_path / "run", tuning__prompts_per_step=3)
    with pytest.raises(RunConfigError, match="the 3 prompts of an update cannot be divided evenly among 2"):
        tune(resolved, 2)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sft", "dpo", "grpo"])
def test_launched_processes_tune_like_one(
    shards: Path,  # noqa: F811
    settings: Make,
    tmp_path: Path,
    name: str,
) -> None:
    kinds: list[str] = []
    tune(made(settings, shards, name, tmp_path / "one"))
    tune(
        made(settings, shards, name, tmp_path / "two"),
        2,
        on_record=lambda record: kinds.append(record["kind"]),
    )
    check_like_one(tmp_path / "one", tmp_path / "two")
    assert (kinds[0], kinds[-1]) == ("start", "end")
