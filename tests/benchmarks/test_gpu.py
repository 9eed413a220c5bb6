"""The benchmark of GPUs: its dry run measures everything on the CPU, and its model of torch.nn is ours."""

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import bytemill.cli
from bytemill.lm import TransformerLM, preset

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def _benchmarks_are_importable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(BENCHMARKS)
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # for tiny models, a second thread costs more than it saves
    yield
    torch.set_num_threads(before)


def module(name: str) -> Any:
    return importlib.import_module(name)


def test_the_dry_run_measures_everything_and_saves_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    place, gpu, commands = tmp_path / "gpu.json", module("gpu"), list[list[str]]()

    def run_here(command: list[str], **_: Any) -> None:
        """Train in this process, which has imported torch."""
        commands.append(command)
        assert bytemill.cli.main(command[3:]) == 0

    monkeypatch.setattr(gpu.subprocess, "run", run_here)
    monkeypatch.setattr("bytemill.lm.training.preparation.matmul_rate", lambda *_: 1e10)
    # Compiling takes seconds, and tests/lm/test_model.py tests it.
    gpu.main(["--device", "cpu", "--dry-run", "--no-compile", "--peak", "1e12", "--json", str(place)])
    assert [command[:5] for command in commands] == [[sys.executable, "-m", "bytemill", "lm", "train"]] * 6
    saved = json.loads(place.read_text(encoding="utf-8"))
    assert saved["dry_run"]
    ours = ["bytemill", "bytemill, half residual", "lm train", "lm train, half residual"]
    assert [(row["model"], row["program"]) for row in saved["training"]] == [
        *(("gpt2", program) for program in ("peer", *ours)),
        *(("llama-1b", program) for program in ours),
        *(("nanochat-d12", program) for program in ("peer", *ours)),
    ]
    assert all(row["tokens_per_second"] > 0 and row["mfu"] > 0 for row in saved["training"])
    parts = {(row["part"], row["kernels"]): row for row in saved["parts"]}
    assert len(parts) == 3 * 4
    for (_, kernels), row in parts.items():
        assert "unavailable" in row if kernels == "triton" else row["difference"] < 0.02
    assert [(row["model"], row["n_samples"]) for row in saved["generation"]] == [("gpt2", 1), ("gpt2", 64)]
    assert all(row["tokens_per_second"] > 0 for row in saved["generation"])
    out = capsys.readouterr().out
    assert "dry run with tiny sizes: the times mean nothing" in out
    assert str(place) in out


@pytest.mark.parametrize("name", ["gpt2", "tiny"])
def test_a_peer_computes_the_same_loss_and_gradients(name: str) -> None:
    config = preset(name, vocab_size=96, **module("gpu").TINY)
    ours, peer = TransformerLM(config, seed=3), module("gpu").peer_of(name)(config)
    peer.start_as(ours)
    ids = torch.randint(0, 96, (2, 33))
    losses = [model.loss(ids[:, :-1], ids[:, 1:]) for model in (ours, peer)]
    for loss in losses:
        loss.backward()
    torch.testing.assert_close(losses[0], losses[1])
    torch.testing.assert_close(ours.token_embeddings.weight.grad, peer.tokens.weight.grad)
    first: Any = ours.layers[0]
    up = peer.blocks[0].up if name == "gpt2" else peer.blocks[0].w1
    torch.testing.assert_close(first.ffn.w1.weight.grad, up.weight.grad)
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in peer.parameters())


def test_a_batch_that_does_not_fit_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = module("gpu")

    def fail(*_: Any) -> Any:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(gpu, "measure_training", fail)
    monkeypatch.setattr(gpu, "make_data", lambda *_: None)
    options = gpu.argparse.Namespace(models=["gpt2:8", "gpt2:4096"], device=torch.device("cpu"), dry_run=True)
    assert [row["unavailable"] for row in gpu.training_rows(options)] == ["out of memory"] * 2
