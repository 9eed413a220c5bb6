"""Several processes train like one: same samples, losses, validation and weights."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from bytemill.errors import RunConfigError
from bytemill.lm.batches import ShardBatches
from bytemill.lm.processes import Processes, gradients_exchanged, shard_model
from bytemill.lm.training.config import Resolved, TrainingConfig
from bytemill.lm.training.data import check_division, divide_batch, pass_sizes
from bytemill.lm.training.metrics_log import MEASURED, read_metrics
from bytemill.lm.training.preparation import prepare
from bytemill.lm.training.run_checkpoint import AVERAGE, WEIGHTS
from bytemill.lm.training.run_folder import RunFolder
from bytemill.lm.training.trainer import loss_function, train

from .conftest import Corpus, RankServer

Settings = Callable[..., Resolved]
Server = Callable[[int, Resolved], RunFolder]


@pytest.fixture
def train_in(rank_server: RankServer) -> Server:
    """Return a function that trains in some number of processes."""

    def run(n: int, resolved: Resolved) -> RunFolder:
        assert rank_server(n, resolved) == [None] * n
        return RunFolder(resolved.config.run.folder)

    return run


def same_curves(one: RunFolder, other: RunFolder, *, tolerance: float = 1e-6) -> bool:
    """Compare all records of two runs, and their weights with their averages."""
    for ours, theirs in zip(read_metrics(one.metrics), read_metrics(other.metrics), strict=True):
        assert (ours["kind"], ours.get("text")) == (theirs["kind"], theirs.get("text"))
        numbers = [name for name, value in ours.items() if isinstance(value, (int, float))]
        for name in set(numbers) - MEASURED:
            # The norm is a sum over all gradients, which are rounded in another order.
            allowed = 5 * tolerance if name == "grad_norm" else tolerance
            assert ours[name] == pytest.approx(theirs[name], rel=allowed, abs=allowed)
    newest = [folder.checkpoint_files()[0] for folder in (one, other)]
    names = [[name for name in (WEIGHTS, AVERAGE) if (path / name).exists()] for path in newest]
    assert names[0] == names[1]
    for file in names[0]:
        weights = [load_file(path / file) for path in newest]
        assert weights[0].keys() == weights[1].keys()
        assert all((weights[0][name] - weights[1][name]).abs().max() < 1e-5 for name in weights[0])
    return True


SHORT = {"training__steps": 6, "run__log_every": 1, "run__validate_every": 3}
LONG = {"training__steps": 50, "run__log_every": 1, "run__validate_every": 25}
KINDS: list[dict[str, Any]] = [
    {
        "training__accumulation": 3,
        "training__batch_ramp_start": 4,
        "training__batch_ramp_steps": 4,
        "model__tied_embeddings": True,
        "optimizer__z_loss": 1e-2,
    },
    {
        "optimizer__name": "muon",
        "optimizer__muon_method": "polar_express",
        "optimizer__muon_scaling": "match_adamw",
        "optimizer__z_loss": 1e-2,
        "optimizer__ema_decay": 0.9,
        "run__sample_every": 3,
        "model__d_ff": 45,
    },
]
# With Polar Express and "match_adamw", losses differ by 2.3e-6 after 50 steps: above the bound.
ORIGINAL_MUON = {"optimizer__muon_method": "newton_schulz", "optimizer__muon_scaling": "original"}


@pytest.mark.parametrize(
    ("strategy", "options"),
    [
        ("ddp", KINDS[0]),
        ("fsdp", KINDS[1]),
        pytest.param("fully_sharded", KINDS[0], marks=pytest.mark.slow),  # resumed below
        pytest.param("sharded_optimizer", KINDS[1], marks=pytest.mark.slow),
    ],
)
def test_two_processes_train_like_one(
    settings: Settings, train_in: Server, tmp_path: Path, strategy: str, options: dict[str, Any]
):
    one = train(settings(**SHORT, **options))
    options = {**options, "training__strategy": strategy, "run__folder": str(tmp_path / "two")}
    assert same_curves(one, train_in(2, settings(**SHORT, **options)))


def test_one_process_makes_no_process_group(settings: Settings):
    groups: list[bool] = []
    train(
        settings(training__steps=1, training__strategy="fsdp"),
        on_record=lambda _: groups.append(torch.distributed.is_initialized()),
    )
    assert groups
    assert not any(groups)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ddp", "fsdp", "bucketed", "sharded_optimizer", "fully_sharded"])
@pytest.mark.parametrize("options", [{}, KINDS[0], KINDS[1] | ORIGINAL_MUON])
def test_two_and_four_processes_have_the_loss_curve_of_one(
    settings: Settings, train_in: Server, tmp_path: Path, strategy: str, options: dict[str, Any]
):
    one = train(settings(**LONG, **options))
    for n in (2, 4):
        changes = {**options, "training__strategy": strategy, "run__folder": str(tmp_path / f"{n}")}
        assert same_curves(one, train_in(n, settings(**LONG, **changes)))


@pytest.mark.parametrize(("first", "second", "strategy"), [(2, 1, "ddp"), (1, 2, "fsdp")])
def test_a_run_resumes_in_another_number_of_processes(
    settings: Settings, train_in: Server, tmp_path: Path, first: int, second: int, strategy: str
):
    always = {
        **SHORT,
        "schedule__name": "constant",
        "optimizer__name": "muon",
        "optimizer__ema_decay": 0.9,
        "training__accumulation": 2,
        "training__batch_ramp_start": 2,
        "training__batch_ramp_steps": 5,
    }
    one = train(settings(**always))

    def train_to(n_steps: int, n_processes: int) -> RunFolder:
        changes = {"training__steps": n_steps, "run__folder": str(tmp_path / "parts")}
        resolved = settings(**{**always, **changes, "training__strategy": strategy})
        return train(resolved) if n_processes == 1 else train_in(n_processes, resolved)

    train_to(3, first)
    assert same_curves(one, train_to(6, second), tolerance=1e-5)


def test_a_run_resumes_with_another_strategy(settings: Settings, train_in: Server, tmp_path: Path):
    always = {**SHORT, "schedule__name": "constant", "optimizer__name": "muon", "optimizer__ema_decay": 0.9}
    always["run__validate_every"] = 1  # since all parts of the run end with a validation
    one = train(settings(**always))
    folder = str(tmp_path / "parts")
    for n_steps, strategy in ((2, "sharded_optimizer"), (4, "fully_sharded"), (5, "sharded_optimizer")):
        changes = {"training__steps": n_steps, "training__strategy": strategy, "run__folder": folder}
        train_in(2, settings(**{**always, **changes}))
    # In one process, only this strategy has an effect.
    changes = {"training__strategy": "offload", "run__folder": folder}
    assert same_curves(one, train(settings(**{**always, **changes})), tolerance=1e-5)


def test_a_strategy_that_cannot_train_compiled_blocks_is_refused(settings: Settings):
    resolved = settings(training__strategy="fully_sharded", training__compile=True)
    with pytest.raises(RunConfigError, match="strategy fully_sharded cannot train compiled blocks"):
        prepare(resolved, Processes(count=2), overwrite=False)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ddp", "fsdp", "sharded_optimizer", "fully_sharded"])
def test_stopped_and_resumed_in_the_same_number_of_processes_is_bit_for_bit_the_same(
    settings: Settings, train_in: Server, tmp_path: Path, strategy: str
):
    changes = {"training__strategy": strategy, "run__async_checkpoints": "always"}
    always = {**SHORT, **changes, "schedule__name": "constant", "model__dropout": 0.2}
    one = train_in(2, settings(**always))
    parts = {**always, "run__folder": str(tmp_path / "parts")}
    train_in(2, settings(**{**parts, "training__steps": 4}))
    other = train_in(2, settings(**parts))
    weights = [load_file(folder.checkpoint_files()[0] / WEIGHTS) for folder in (one, other)]
    assert all(weights[0][name].equal(weights[1][name]) for name in weights[0])


def test_the_bad_batch_is_saved_once_with_the_windows_of_all_processes(
    settings: Settings, rank_server: RankServer, corpus: Corpus
):
    resolved = settings(
        training__max_bad_steps=1,
        optimizer__learning_rate=1e38,
        optimizer__clip=0.0,
        schedule__warmup_steps=0,
        run__log_every=1,
    )
    errors = rank_server(2, resolved)
    assert all(error and error.startswith("TrainingDivergedError") for error in errors)
    (path,) = Path(resolved.config.run.folder).glob("bad_batch_step_*.npz")
    with np.load(path) as saved:
        batches = ShardBatches([corpus.folder / "train"], 16, seed=resolved.config.training.seed)
        batches.position = 4 * (int(saved["step"]) - 1)
        assert np.array_equal(saved["inputs"], batches.take(4)[0].numpy())


def test_all_processes_end_if_one_cannot_write_its_part_of_a_checkpoint(
    settings: Settings, rank_server: RankServer
):
    resolved = settings(**SHORT, training__strategy="fsdp", run__async_checkpoints="always")
    errors = rank_server(2, resolved, largest_file={1: 10_000})
    folder = RunFolder(resolved.config.run.folder)
    path = folder.checkpoint_path(3) / "optimizer" / "process_00001.safetensors"
    assert (
        errors
        == [f"OutputError: cannot write {path}: the file would grow beyond the size limit for files"] * 2
    )
    assert list(folder.checkpoints.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_a_process_killed_during_a_save_leaves_a_checkpoint_to_resume_from(
    settings: Settings, rank_server: RankServer, tmp_path: Path, rank: int
):
    changes = {"training__strategy": "fsdp", "run__checkpoint_every": 2, "run__async_checkpoints": "always"}
    always = {**SHORT, **changes, "run__keep_checkpoints": 1}
    assert rank_server(2, whole := settings(**always, run__folder=str(tmp_path / "whole"))) == [None] * 2
    for call in (1, 3, 5, 7):
        resolved = settings(**always, run__folder=str(tmp_path / f"killed_{call}"))
        killed, other = (rank, 1 - rank)
        outcomes = rank_server(2, resolved, last_call={rank: call})
        if outcomes == [None] * 2:  # there are fewer calls
            assert call > 3
            continue
        assert outcomes[killed] == "killed"
        assert (outcomes[other] or "").startswith("ProcessFailedError")
        assert RunFolder(resolved.config.run.folder).checkpoint_files()
        assert rank_server(2, resolved) == [None] * 2
        assert same_curves(
            RunFolder(resolved.config.run.folder), RunFolder(whole.config.run.folder), tolerance=0
        )


@pytest.mark.slow
def test_a_process_that_hangs_is_named_by_the_others(settings: Settings, rank_server: RankServer):
    answers = rank_server(3, settings(training__batch_size=6, training__process_timeout=2), hangs={1: 0})
    assert answers[1] is None
    for rank in (0, 2):
        assert answers[rank] == "ProcessFailedError: process 1 of 3 did not answer for 2 s"


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_gradients_are_exchanged_in_the_last_pass_only(settings: Settings, tmp_path: Path, strategy: str):
    torch.distributed.init_process_group(
        "gloo", init_method=(tmp_path / "rendezvous").as_uri(), rank=0, world_size=1
    )
    try:
        resolved = settings(training__strategy=strategy, training__accumulation=2)
        run = prepare(resolved, Processes(), overwrite=False)
        run.processes = Processes(count=2)  # as `loss_function` needs it
        if strategy == "fsdp":
            shard_model(run.model, Processes(), run.device, run.dtype)
        compute_losses: Any = loss_function(run)
        for is_last in (False, True):
            inputs, targets = run.batches.take(2, run.device)
            with gradients_exchanged(run.model, compute_losses, now=is_last):
                compute_losses(inputs, targets)[0].backward()
                if strategy == "ddp":
                    assert compute_losses.require_backward_grad_sync == is_last
            if strategy == "fsdp":  # a shard has its gradient after the exchange
                assert (run.model.lm_head.weight.grad is not None) == is_last
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
@pytest.mark.parametrize(
    ("options", "tolerance"),
    [
        ({"training__precision": "bfloat16"}, 5e-3),
        ({"training__compile": True}, 1e-4),
        ({"training__activation_checkpointing": "selective"}, 1e-6),
    ],
)
def test_in_bfloat16_or_compiled_or_checkpointed_two_processes_have_nearly_the_losses_of_one(
    settings: Settings,
    train_in: Server,
    tmp_path: Path,
    strategy: str,
    options: dict[str, Any],
    tolerance: float,
):
    always = {"training__steps": 10, "optimizer__learning_rate": 1e-2, "run__log_every": 1, **options}
    one = train(settings(**{**always, "training__compile": False}))
    two = {**always, "training__strategy": strategy, "run__folder": str(tmp_path / "two")}
    curves = [read_metrics(folder.metrics, "step") for folder in (one, train_in(2, settings(**two)))]
    losses = [[record["loss"] for record in curve] for curve in curves]
    assert losses[0] == pytest.approx(losses[1], abs=tolerance)
    assert losses[0][-1] < losses[0][0]


@pytest.mark.parametrize(
    ("batch_size", "accumulation", "n_processes", "n_passes", "n_sequences"),
    [
        (32, 1, 1, 1, 32),
        (32, 3, 1, 3, 32),
        (32, 3, 2, 2, 24),
        (32, 4, 8, 1, 16),
        (7, 2, 2, 1, 7),
        (1, 6, 3, 2, 1),
    ],
)
def test_the_batch_is_divided_into_passes_of_equal_size(
    batch_size: int, accumulation: int, n_processes: int, n_passes: int, n_sequences: int
):
    training = TrainingConfig(batch_size=batch_size, accumulation=accumulation)
    assert divide_batch(training, n_processes) == (n_passes, n_sequences)


def test_a_ramp_is_divided_among_processes_at_every_step():
    training = TrainingConfig(batch_size=4, accumulation=2, batch_ramp_start=2, batch_ramp_steps=3)
    assert [pass_sizes(training, 2, step) for step in range(4)] == [[1], [2], [2, 1], [4]]
    assert [pass_sizes(training, 1, step) for step in range(4)] == [[2], [4], [4, 2], [4, 4]]


def test_a_number_of_processes_that_does_not_divide_the_batch_is_refused():
    with pytest.raises(RunConfigError, match=r"the 6 sequences of a step .* among 4 processes") as caught:
        check_division(TrainingConfig(batch_size=3, accumulation=2), 4)
    assert caught.value.hint == "start 1, 2, 3 or 6 processes, or change --training.batch-size"
    with pytest.raises(RunConfigError) as caught:
        check_division(TrainingConfig(batch_size=1), 2)
    assert caught.value.hint == "start 1 process, or change --training.batch-size"
    ramp = TrainingConfig(batch_size=12, batch_ramp_start=6, batch_ramp_steps=5)
    with pytest.raises(RunConfigError, match=r"batch_ramp_start is 6, .* among 4 processes") as caught:
        check_division(ramp, 4)
    assert caught.value.hint == "start 1, 2, 3 or 6 processes, or change --training.batch-ramp-start"
    check_division(ramp, 3)
