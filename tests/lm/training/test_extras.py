"""Runs with a weight average, a batch ramp, a z-loss, skipped spikes and bad batches."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from bytemill.errors import CheckpointError, TrainingDivergedError
from bytemill.lm.batches import JoinedShards, ShardBatches, spread_starts
from bytemill.lm.evaluate import evaluate_windows
from bytemill.lm.loss import token_byte_counts
from bytemill.lm.optim import AdamW, Muon
from bytemill.lm.processes import Processes
from bytemill.lm.training import trainer
from bytemill.lm.training.config import TrainConfig, resolve
from bytemill.lm.training.data import n_sequences
from bytemill.lm.training.metrics_log import MEASURED, read_metrics
from bytemill.lm.training.run import describe_groups, make_optimizer, set_rates
from bytemill.lm.training.run_checkpoint import AVERAGE, TRAINER, WEIGHTS
from bytemill.lm.training.saved_model import load_trained
from bytemill.lm.training.trainer import train

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bytemill.lm import TransformerLM
    from bytemill.lm.training.config import Resolved
    from bytemill.lm.training.run_folder import RunFolder
    from bytemill.lm.training.saved_model import WeightsName

    from ..conftest import Corpus

    Settings = Callable[..., Resolved]


def newest(folder: RunFolder) -> Path:
    return folder.checkpoint_files()[0]


def curves(folder: RunFolder) -> list[dict[str, Any]]:
    clock = MEASURED
    return [
        {name: value for name, value in record.items() if name not in clock}
        for record in read_metrics(folder.metrics)
    ]


def test_an_average_and_a_ramp_resume_bit_for_bit(settings: Settings, tmp_path: Path) -> None:
    always = {
        "optimizer__ema_decay": 0.9,
        "optimizer__z_loss": 1e-2,
        "training__batch_ramp_start": 1,
        "training__batch_ramp_steps": 6,
        "training__accumulation": 2,
        "training__steps": 9,
        "run__log_every": 1,
        "run__checkpoint_every": 4,
        "run__validate_every": 3,
    }
    whole = train(settings(**always, run__folder=str(tmp_path / "whole")))

    def stop(record: dict[str, Any]) -> None:
        if record["kind"] == "checkpoint" and record["step"] == 4:
            raise RuntimeError("the power fails")

    parts = settings(**always, run__folder=str(tmp_path / "parts"))
    with pytest.raises(RuntimeError, match="power"):
        train(parts, on_record=stop)
    resumed = train(parts)
    assert curves(resumed) == curves(whole)
    for name in (WEIGHTS, AVERAGE):
        a, b = load_file(newest(whole) / name), load_file(newest(resumed) / name)
        assert all(torch.equal(a[key], b[key]) for key in a)


def test_validation_and_generation_use_the_average(settings: Settings, corpus: Corpus) -> None:
    folder = train(settings(training__steps=8, optimizer__ema_decay=0.95, optimizer__learning_rate=1e-2))
    path = newest(folder)
    average, trained = load_file(path / AVERAGE), load_file(path / WEIGHTS)
    assert not torch.equal(average["lm_head.weight"], trained["lm_head.weight"])
    choices: list[tuple[WeightsName, dict[str, torch.Tensor]]] = [
        ("auto", average),
        ("average", average),
        ("trained", trained),
    ]
    for weights, expected in choices:
        model = load_trained(folder.path, "cpu", weights).model
        assert torch.equal(model.lm_head.weight, expected["lm_head.weight"])
    tokens, counts = JoinedShards([corpus.folder / "validation"]), token_byte_counts(corpus.tokenizer)
    used = load_trained(folder.path, "cpu").model
    score = evaluate_windows(used, tokens, spread_starts(len(tokens), 16, 4), counts)
    assert read_metrics(folder.metrics, "validation")[-1]["loss"] == pytest.approx(score.loss)
    (path / TRAINER).unlink()
    assert load_trained(folder.path, "cpu").step == 8
    (path / AVERAGE).write_bytes(b"damaged")
    with pytest.raises(CheckpointError, match=r"average.safetensors is damaged"):
        load_trained(path, "cpu")


def test_a_missing_average_is_named(settings: Settings) -> None:
    folder = train(settings(training__steps=1))
    assert not (newest(folder) / AVERAGE).exists()
    with pytest.raises(CheckpointError, match="has no moving average") as caught:
        load_trained(folder.path, "cpu", "average")
    assert "--optimizer.ema-decay" in (caught.value.hint or "")


def test_a_ramp_counts_its_tokens(settings: Settings) -> None:
    records: list[dict[str, Any]] = []
    resolved = settings(
        training__steps=6,
        training__batch_size=3,
        training__accumulation=2,
        training__batch_ramp_start=2,
        training__batch_ramp_steps=4,
        run__log_every=1,
    )
    train(resolved, on_record=records.append)
    # 2, 2, 4, 4, 6, 6 sequences of 16 tokens
    steps = [record for record in records if record["kind"] == "step"]
    assert [record["n_tokens"] // 16 for record in steps] == [2, 4, 8, 12, 18, 24]
    start = records[0]
    assert start["total_tokens"] == steps[-1]["n_tokens"] == 16 * n_sequences(6, resolved.config.training)
    assert start["tokens_per_step"] == 6 * 16


def test_uneven_batches_of_a_step_give_the_loss_of_all_its_sequences(
    settings: Settings, tmp_path: Path
) -> None:
    # 6 sequences in batches of 6, of 2 + 2 + 2, and of 4 + 2, where the ramp has not reached 12 yet
    ramp = {"training__batch_ramp_start": 6, "training__batch_ramp_steps": 50}
    divisions: list[tuple[int, int, dict[str, int]]] = [(6, 1, {}), (2, 3, {}), (4, 3, ramp)]
    losses: list[float] = []
    for batch_size, accumulation, ramp_settings in divisions:
        folder = train(
            settings(
                training__steps=4,
                training__batch_size=batch_size,
                training__accumulation=accumulation,
                run__log_every=4,
                run__folder=str(tmp_path / str(batch_size)),
                **ramp_settings,
            )
        )
        losses.append(read_metrics(folder.metrics, "step")[0]["loss"])
    assert losses == pytest.approx([losses[0]] * 3, rel=1e-5)


def test_the_recorded_loss_excludes_the_z_loss(settings: Settings, corpus: Corpus) -> None:
    records = {}
    for z_loss in (0.0, 0.1):
        resolved = settings(training__steps=2, optimizer__z_loss=z_loss, run__log_every=1)
        records[z_loss] = read_metrics(train(resolved, overwrite=True).metrics, "step")
    assert records[0.0][0]["loss"] == records[0.1][0]["loss"]
    assert records[0.0][0]["grad_norm"] != records[0.1][0]["grad_norm"]
    assert records[0.0][1]["loss"] != records[0.1][1]["loss"]


@pytest.mark.parametrize("skip", [False, True])
def test_spikes_are_recorded_and_skipped_on_request(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, skip: bool
) -> None:
    real = trainer.accumulate_gradients
    norms: list[torch.Tensor] = []

    def spike_at_26(run: Any, compute: Any) -> tuple[Any, int, Any]:
        result = real(run, compute)
        if run.step >= 25:
            norms.append(run.model.lm_head.weight.detach().clone())
        if run.step == 25:
            for parameter in run.model.parameters():
                parameter.grad.mul_(1000)
        return result

    monkeypatch.setattr(trainer, "accumulate_gradients", spike_at_26)
    folder = train(
        settings(training__steps=28, optimizer__skip_spikes=skip, run__log_every=1, run__validate_every=0)
    )
    (record,) = read_metrics(folder.metrics, "spike")
    assert (record["step"], record["skipped"]) == (26, skip)
    assert record["grad_norm"] > 10 * record["median_grad_norm"]
    assert torch.equal(norms[0], norms[1]) == skip
    assert not torch.equal(norms[1], norms[2])


def test_the_batch_of_a_diverged_run_is_saved(
    settings: Settings, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = trainer.accumulate_gradients

    def nan_from_3(run: Any, compute: Any) -> tuple[Any, int, Any]:
        loss, n_tokens, n_bytes = real(run, compute)
        return (loss if run.step < 3 else math.nan), n_tokens, n_bytes

    monkeypatch.setattr(trainer, "accumulate_gradients", nan_from_3)
    resolved = settings(training__steps=20, training__max_bad_steps=2)
    with pytest.raises(
        TrainingDivergedError, match=r"step 5; its batch is in .*bad_batch_step_00000005\.npz"
    ):
        train(resolved)
    with np.load(f"{resolved.config.run.folder}/bad_batch_step_00000005.npz") as saved:
        assert int(saved["step"]) == 5
        assert saved["sequences"].tolist() == [16, 17, 18, 19]
        batches = ShardBatches([corpus.folder / "train"], 16, seed=resolved.config.training.seed)
        batches.position = 16
        inputs, targets = batches.take(4)
        assert np.array_equal(saved["inputs"], inputs.numpy())
        assert np.array_equal(saved["targets"], targets.numpy())
        assert saved["offsets"].tolist() == batches.starts(16, 4)


def config_of(**values: Any) -> TrainConfig:
    return resolve([("test", {name.replace("__", "."): value for name, value in values.items()})]).config


def test_groups_name_what_decays(model: TransformerLM) -> None:
    config = config_of(optimizer__name="adamw", optimizer__weight_decay=0.2)
    decay, rest = describe_groups(make_optimizer(model, config, Processes()), model)
    assert (decay["algorithm"], decay["weight_decay"], rest["weight_decay"]) == ("adamw", 0.2, 0.0)
    assert {"token_embeddings.weight", "layers.*.attn.q_proj.weight", "lm_head.weight"} <= set(decay["names"])
    assert {"layers.*.ln1.weight", "ln_final.weight"} <= set(rest["names"])
    assert decay["n_parameters"] + rest["n_parameters"] == model.n_parameters()


def test_muon_follows_its_settings(model: TransformerLM) -> None:
    config = config_of(
        optimizer__name="muon",
        optimizer__muon_method="polar_express",
        optimizer__muon_momentum_warmup=300,
        optimizer__muon_nesterov=False,
        optimizer__muon_scaling="match_adamw",
    )
    optimizer = make_optimizer(model, config, Processes())
    assert isinstance(optimizer, Muon)
    group = optimizer.param_groups[0]
    assert (group["method"], group["nesterov"], group["scaling"]) == ("polar_express", False, "match_adamw")
    for step, momentum in ((0, 0.85), (150, 0.9), (300, 0.95), (900, 0.95)):
        set_rates(optimizer, step, config)
        assert group["momentum"] == pytest.approx(momentum)


def test_wsd_decays_in_its_shape(model: TransformerLM) -> None:
    shares: list[float] = []
    for shape in ("linear", "1-sqrt"):
        config = config_of(
            schedule__name="wsd",
            schedule__decay_shape=shape,
            schedule__decay_steps=400,
            schedule__min_share=0.0,
            training__steps=1000,
        )
        optimizer = make_optimizer(model, config, Processes())
        assert isinstance(optimizer, AdamW)
        set_rates(optimizer, 699, config)
        shares.append(optimizer.param_groups[0]["lr"] / config.optimizer.learning_rate)
    assert shares == pytest.approx([0.75, 0.5])
