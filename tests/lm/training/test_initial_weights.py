"""Training starts from the weights of a run or of an imported model, or refuses them with names and shapes."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
import torch

import bytemill
from bytemill.errors import CheckpointError, RunConfigError
from bytemill.lm import ModelConfig, TransformerLM
from bytemill.lm.batches import JoinedShards
from bytemill.lm.evaluate import score_shards
from bytemill.lm.training.config import Resolved, resolve
from bytemill.lm.training.preparation import initial_layers
from bytemill.lm.training.saved_model import load_trained, write_model_folder
from bytemill.lm.training.trainer import train
from tests.lm.conftest import sizes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.lm.conftest import Corpus

SHAPE: dict[str, Any] = sizes(320, 16, 16, 1, 2, 24)
RUN: dict[str, Any] = {
    "training.device": "cpu", "training.batch_size": 4, "training.steps": 1, "schedule.warmup_steps": 0,
    "run.log_every": 1,
}  # fmt: skip


@pytest.fixture
def imported(corpus: Corpus, tmp_path: Path) -> Callable[..., Path]:
    """Write a model folder with large random weights, so that its loss is far from that of a new model."""

    def write(**options: Any) -> Path:
        model = TransformerLM(ModelConfig(**{**SHAPE, **options}), seed=9)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(3)
        weights = dict(model.named_parameters())
        write_model_folder(tmp_path / "initial", model.config, weights, corpus.tokenizer, source="the test")
        return tmp_path / "initial"

    return write


@pytest.fixture
def resolved(corpus: Corpus, tmp_path: Path) -> Callable[..., Resolved]:
    """Resolve settings as the command line does; `__` in keywords stands for a dot."""

    def make(initial: Path, **changes: Any) -> Resolved:
        values = {**RUN, "data.train": corpus.data["data.train"], "training.init_from": str(initial)}
        values |= {"run.folder": str(tmp_path / "run")}
        values |= {key.replace("__", "."): value for key, value in changes.items()}
        return resolve([*initial_layers(str(initial), None), ("the test", values)])

    return make


def first_loss(run: Path) -> float:
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return next(record["loss"] for line in lines if (record := json.loads(line))["kind"] == "step")


def test_the_first_loss_is_that_of_the_initial_weights(
    imported: Callable[..., Path], resolved: Callable[..., Resolved], corpus: Corpus, tmp_path: Path
) -> None:
    shards = tmp_path / "shards"
    bytemill.encode_corpus(corpus.tokenizer, bytemill.Corpus.from_texts([corpus.text[:200]]), shards)
    # One window holds all tokens, so that the first batch and the evaluation see the same ones.
    context = len(JoinedShards([shards])) - 1
    initial = imported(context_length=context)
    train(resolved(initial, data__train=str(shards), training__batch_size=1))
    trained = load_trained(initial, "cpu")
    expected = score_shards(trained.model, trained.tokenizer, shards)
    assert expected.n_tokens == context
    assert first_loss(tmp_path / "run") == pytest.approx(expected.loss, rel=1e-6)


def test_a_run_is_continued_under_other_settings_and_resumes_without_the_initial_weights(
    imported: Callable[..., Path], resolved: Callable[..., Resolved], tmp_path: Path
) -> None:
    initial = imported()
    train(resolved(initial, optimizer__learning_rate=0.0, optimizer__weight_decay=0.0))
    before, after = (load_trained(path, "cpu").model.state_dict() for path in (initial, tmp_path / "run"))
    assert all(torch.equal(before[name], after[name]) for name in before)
    second = resolved(tmp_path / "run", run__folder=str(tmp_path / "second"), model__context_length=8)
    train(second)
    shutil.rmtree(tmp_path / "run/checkpoints")
    longer = resolve(
        [
            (
                "the run",
                {
                    f"{section}.{name}": value
                    for section, own in second.config.to_dict().items()
                    for name, value in own.items()
                },
            ),
            ("the test", {"training.steps": 2}),
        ]
    )
    train(longer)
    assert load_trained(tmp_path / "second", "cpu").step == 2


def test_learned_positions_are_cropped_but_not_invented(
    imported: Callable[..., Path], resolved: Callable[..., Resolved], tmp_path: Path
) -> None:
    initial = imported(position="learned", norm="layer")
    train(resolved(initial, model__context_length=8, optimizer__learning_rate=0.0))
    cropped = load_trained(tmp_path / "run", "cpu").model.position_embeddings.weight
    whole = load_trained(initial, "cpu").model.position_embeddings.weight
    torch.testing.assert_close(cropped, whole[:8])
    with pytest.raises(
        RunConfigError, match=r"context_length is 32, but .* learned positions for only 16 tokens"
    ):
        train(resolved(initial, model__context_length=32), overwrite=True)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            {"model__d_ff": 32},
            r"model\.d_ff is 32, but .*initial has 24 "
            r"\(layers\.0\.ffn\.w1\.weight would be \(32, 16\), there \(24, 16\)\)",
        ),
        (
            {"model__tied_embeddings": True},
            r"tied_embeddings is True, .* \(lm_head\.weight would be absent, there \(320, 16\)\)",
        ),
        ({"model__num_heads": 4}, r"model\.num_heads is 4, but .*initial has 2$"),
        ({"model__preset": "tiny"}, r"model\.vocab_size is 4096, but .*initial has 320"),
    ],
)
def test_another_shape_is_refused(
    imported: Callable[..., Path], resolved: Callable[..., Resolved], change: dict[str, Any], problem: str
) -> None:
    with pytest.raises(RunConfigError, match=problem):
        train(resolved(imported(), **change))


def test_another_tokenizer_is_refused(
    imported: Callable[..., Path], resolved: Callable[..., Resolved], corpus: Corpus, tmp_path: Path
) -> None:
    other = bytemill.train_from_iterator(["zzz yyy zzz yyy " * 20], 260, ["<|endoftext|>"])
    other.save(tmp_path / "other.json")
    with pytest.raises(
        RunConfigError, match=r"the tokenizer is not that of .*initial: id 25\d is b'.*' and was b'.*'"
    ):
        train(resolved(imported(), data__tokenizer=str(tmp_path / "other.json")))
    # Further special tokens leave the other ids unchanged.
    more = bytemill.train_from_iterator([corpus.text], 301, ["<|endoftext|>", "<|more|>"])
    assert more.encode("<|endoftext|>") == corpus.tokenizer.encode("<|endoftext|>")
    more.save(tmp_path / "more.json")
    bytemill.encode_corpus(more, bytemill.Corpus.from_texts([corpus.text]), tmp_path / "shards")
    changes = {"data__tokenizer": str(tmp_path / "more.json"), "data__train": str(tmp_path / "shards")}
    train(resolved(tmp_path / "initial", **changes))


def test_a_damaged_or_missing_source_is_refused(
    imported: Callable[..., Path], resolved: Callable[..., Resolved], tmp_path: Path
) -> None:
    initial = imported()
    settings = resolved(initial)
    data = bytearray((initial / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (initial / "model.safetensors").write_bytes(data)
    with pytest.raises(CheckpointError, match=r"model\.safetensors is damaged"):
        train(settings)
    (initial / "model.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"model\.json is damaged"):
        train(settings)
    with pytest.raises(CheckpointError, match="there is no folder"):
        resolved(tmp_path / "nothing")
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf/config.json").write_text("{}")
    with pytest.raises(CheckpointError, match="neither a run nor an imported model") as caught:
        resolved(tmp_path / "hf")
    assert "bytemill lm import" in (caught.value.hint or "")
