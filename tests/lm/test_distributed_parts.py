"""Mixtures of experts, multi-token heads and value embeddings in several processes, and compiled."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bytemill.lm.strategies import STRATEGIES
from bytemill.lm.training.config import Resolved
from bytemill.lm.training.metrics_log import read_metrics
from bytemill.lm.training.run_folder import RunFolder
from bytemill.lm.training.trainer import train

from .conftest import RankServer
from .test_distributed import same_curves

Settings = Callable[..., Resolved]

EXPERTS = {"model__feed_forward": "moe", "model__moe.experts": 3, "model__moe.top_k": 2}
PARTS: dict[str, dict[str, Any]] = {
    # One process computes the terms of the loss in passes of the size that two processes have.
    "balance loss": EXPERTS,
    "balance bias": {
        **EXPERTS,
        "model__moe.balance": "bias",
        "model__moe.bias_rate": 0.05,
        "model__moe.shared": 1,
    },
    "multi-token head": {"model__multi_token_weight": 0.5, "model__tied_embeddings": True},
    "values": {"model__mixer": ["values", "full"], "optimizer__name": "muon"},
}
ALL = ["ddp", "fsdp", *STRATEGIES]
FAST = {
    ("balance bias", "fsdp"),
    ("balance bias", "fully_sharded"),
    ("balance loss", "ddp"),
    ("multi-token head", "fully_sharded"),
}
CASES = [
    pytest.param(part, strategy, marks=() if (part, strategy) in FAST else pytest.mark.slow)
    for part in PARTS
    for strategy in ALL
]


@pytest.mark.parametrize(("part", "strategy"), CASES)
def test_two_processes_train_a_part_like_one(
    settings: Settings, rank_server: RankServer, tmp_path: Path, part: str, strategy: str
) -> None:
    always = {"training__steps": 4, "run__log_every": 1, "run__validate_every": 4, **PARTS[part]}
    one = train(settings(**always, training__batch_size=4, training__accumulation=2))
    two = settings(
        **always,
        training__batch_size=8,
        training__strategy=strategy,
        run__folder=str(tmp_path / "two"),
    )
    assert rank_server(2, two) == [None, None]
    other = RunFolder(two.config.run.folder)
    assert same_curves(one, other)
    if part.startswith("balance"):
        records = read_metrics(other.metrics, "step")
        assert [record["expert_tokens"] for record in records] == [
            record["expert_tokens"] for record in read_metrics(one.metrics, "step")
        ]


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("part", PARTS)
def test_compiled_blocks_learn_what_others_do(
    settings: Settings, rank_server: RankServer, tmp_path: Path, part: str, n: int
) -> None:
    always = {"training__steps": 4, "run__log_every": 1, **PARTS[part]}
    losses: list[list[float]] = []
    for is_compiled in (False, True):
        folder = RunFolder(tmp_path / str(is_compiled))
        resolved = settings(**always, training__compile=is_compiled, run__folder=str(folder.path))
        assert rank_server(n, resolved) == [None] * n
        losses.append([record["loss"] for record in read_metrics(folder.metrics, "step")])
    assert losses[0] == pytest.approx(losses[1], abs=1e-4)
