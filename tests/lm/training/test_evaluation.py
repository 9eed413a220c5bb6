"""Evaluation during training: validation sets by name, classes of tokens, HellaSwag."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
import torch

import bytemill
from bytemill.cli.lm_training import TrainingView
from bytemill.errors import CorpusError, NotFiniteError, RunConfigError
from bytemill.lm.batches import JoinedShards, spread_starts
from bytemill.lm.evaluate import (
    CLASSES,
    LossByClass,
    evaluate_hellaswag,
    evaluate_windows,
    read_items,
    token_class,
)
from bytemill.lm.loss import token_byte_counts
from bytemill.lm.training import trainer
from bytemill.lm.training.data import data_folders
from bytemill.lm.training.metrics_log import read_metrics
from bytemill.lm.training.saved_model import load_trained
from bytemill.lm.training.trainer import train

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bytemill.lm.training.config import Resolved
    from tests.lm.conftest import Corpus, RankServer

    Settings = Callable[..., Resolved]


@pytest.fixture
def items(tmp_path: Path) -> Path:
    path = tmp_path / "hellaswag.txt"
    lines = [line for n in range(7) for line in (f"She {n} said", str(n % 4), "yes", "no", "a b", "often so")]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_each_validation_set_is_recorded_by_name(settings: Settings, corpus: Corpus):
    train_, validation = corpus.folder / "train", corpus.folder / "validation"
    resolved = settings(training__steps=2, data__validation=[str(validation), f"seen={train_}"])
    assert data_folders(resolved.config.data)[1] == {"validation": [validation], "seen": [train_]}
    folder = train(resolved)
    (record,) = read_metrics(folder.metrics, "validation")
    assert list(record["sets"]) == ["validation", "seen"]
    trained = load_trained(folder.path, "cpu")
    counts = token_byte_counts(trained.tokenizer)
    for path, name in ((validation, "validation"), (train_, "seen")):
        tokens = JoinedShards([path])
        starts = spread_starts(
            len(tokens), trained.config.model.context_length, trained.config.run.validation_windows
        )
        expected = evaluate_windows(trained.model, tokens, starts, counts).to_dict()
        assert record["sets"][name] == pytest.approx(expected)
    for name in ("n_tokens", "nats", "text_nats", "n_bytes"):
        assert record[name] == pytest.approx(sum(score[name] for score in record["sets"].values()))
    for name in ("loss", "bits_per_byte"):
        assert record[name] == pytest.approx(sum(score[name] for score in record["sets"].values()) / 2)
    assert record["perplexity"] == pytest.approx(math.exp(record["loss"]))
    (alone,) = read_metrics(train(settings(training__steps=2), overwrite=True).metrics, "validation")
    assert "sets" not in alone
    assert alone["loss"] == pytest.approx(record["sets"]["validation"]["loss"])


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a=x", "a=y"], "two sets named 'a'"),
        (["=x"], "cannot name a set"),
        (["validation=x"], "cannot name"),
    ],
)
def test_names_of_validation_sets_differ(settings: Settings, corpus: Corpus, names: list[str], message: str):
    folders = [name.replace("x", str(corpus.folder / "validation")) for name in names]
    with pytest.raises(RunConfigError, match=message):
        data_folders(settings(data__validation=folders).config.data)


def test_classes_divide_the_loss(settings: Settings, corpus: Corpus):
    (record,) = read_metrics(train(settings(training__steps=2)).metrics, "validation")
    classes = record["classes"]
    assert set(classes) <= set(CLASSES)
    assert sum(row["n_tokens"] for row in classes.values()) == record["n_tokens"]
    assert sum(row["n_bytes"] for row in classes.values()) == record["n_bytes"]
    assert sum(row["loss"] * row["n_tokens"] for row in classes.values()) == pytest.approx(record["nats"])
    assert sum(row["loss_share"] for row in classes.values()) == pytest.approx(1)
    assert sum(row["token_share"] for row in classes.values()) == pytest.approx(1)


def test_sums_by_class_are_those_of_single_tokens():
    tokenizer = bytemill.train_from_iterator(["a b 12 ab, ab\n\n  ab é"] * 3, 266, ["<|end|>"])
    ids = torch.tensor([[*tokenizer.encode("ab 12, ab\n é<|end|>ab")]])
    losses = torch.rand(ids.shape, generator=torch.Generator().manual_seed(1))
    counts = token_byte_counts(tokenizer).counts
    by_class = LossByClass(tokenizer, tokenizer.n_vocab + 5)
    for part in (slice(0, 4), slice(4, None)):
        by_class.add(losses[:, part], ids[:, part], counts[ids[:, part]])
    expected: dict[str, list[float]] = {}
    for token, loss in zip(ids[0].tolist(), losses[0].tolist(), strict=True):
        name = "special" if tokenizer.is_special_token(token) else token_class(tokenizer.vocab[token])
        expected.setdefault(name, []).append(loss)
    result = by_class.to_dict()
    assert result["special"]["bits_per_byte"] is None
    assert set(result) == set(expected)
    for name, own in expected.items():
        assert result[name]["n_tokens"] == len(own)
        assert result[name]["loss"] == pytest.approx(sum(own) / len(own))
        if n_bytes := result[name]["n_bytes"]:
            assert result[name]["bits_per_byte"] == pytest.approx(sum(own) / math.log(2) / n_bytes)


def test_tenths_by_frequency_hold_the_most_frequent_ids_first():
    tokenizer = bytemill.Tokenizer({i: bytes([i]) for i in range(256)}, [], ["<|end|>"])
    by_class = LossByClass(tokenizer, 257)
    assert [row["n_tokens"] for row in by_class.by_frequency()] == [0] * 10
    text = b"a" * 35 + b"b" * 15 + b"c" * 10 + bytes(range(100, 140))
    ids = torch.tensor([*text, 256, 256])
    by_class.add(ids.double(), ids, (ids < 256).long())
    rows = by_class.by_frequency()
    # The middles of the uses: a 17.5, b 42.5, c 55, the others 60.5, 61.5, … of 100.
    assert [row["n_ids"] for row in rows] == [0, 1, 0, 0, 1, 1, 10, 10, 10, 10]
    assert [row["n_tokens"] for row in rows] == [0, 35, 0, 0, 15, 10, 10, 10, 10, 10]
    assert rows[0]["loss"] is None
    assert [row["loss"] for row in rows[4:7]] == [98, 99, pytest.approx(104.5)]
    assert sum(row["token_share"] for row in rows) == pytest.approx(100 / 102)


def test_hellaswag_is_recorded_at_its_steps_and_at_the_end(settings: Settings, items: Path):
    always: dict[str, Any] = {"run__hellaswag": str(items), "run__hellaswag_every": 2}
    folder = train(settings(**always, training__steps=3))
    records = read_metrics(folder.metrics, "hellaswag")
    assert [record["step"] for record in records] == [2, 3]
    trained = load_trained(folder.path, "cpu")
    expected = evaluate_hellaswag(trained.model, trained.tokenizer, read_items(items))
    assert records[-1]["n_items"] == 7
    assert records[-1]["acc"] == pytest.approx(expected.accuracy["sum"])
    assert records[-1]["acc_norm"] == pytest.approx(expected.accuracy["characters"])
    few = train(settings(**always, training__steps=2, run__hellaswag_items=3), overwrite=True)
    assert read_metrics(few.metrics, "hellaswag")[0]["n_items"] == 3


def test_logits_that_are_not_finite_do_not_end_a_run(
    settings: Settings, items: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def fail(*_: Any, **__: Any) -> None:
        raise NotFiniteError("the logits are not finite")

    monkeypatch.setattr(trainer, "evaluate_hellaswag", fail)
    resolved = settings(training__steps=2, run__hellaswag=str(items), run__hellaswag_every=1)
    folder = train(resolved, on_record=TrainingView(quiet=False))
    records = read_metrics(folder.metrics, "hellaswag")
    assert [(each["acc"], each["acc_norm"]) for each in records] == [(None, None)] * 2
    assert "step 2: HellaSwag: the logits are not finite" in capsys.readouterr().err


def test_a_file_without_items_is_an_error_before_training(settings: Settings, tmp_path: Path):
    (tmp_path / "empty").write_text("")
    with pytest.raises(CorpusError, match="contains no items"):
        train(settings(run__hellaswag=str(tmp_path / "empty")))


def test_processes_share_the_evaluation(
    settings: Settings, rank_server: RankServer, items: Path, corpus: Corpus, tmp_path: Path
):
    always = {
        "training__steps": 2,
        "run__hellaswag": str(items),
        "data__validation": [f"a={corpus.folder / 'validation'}", f"b={corpus.folder / 'train'}"],
    }
    one = train(settings(**always))
    resolved = settings(**always, run__folder=str(tmp_path / "two"))
    assert rank_server(2, resolved) == [None] * 2
    for kind in ("validation", "hellaswag"):
        (ours,), (expected,) = (
            read_metrics(path / "metrics.jsonl", kind) for path in (tmp_path / "two", one.path)
        )
        flat = [
            {k: v for k, v in each.items() if k not in ("kind", "sets", "classes", "frequencies")}
            for each in (ours, expected)
        ]
        assert flat[0] == pytest.approx(flat[1], rel=1e-5)
        for own in (ours, expected):
            own["frequencies"] = dict(enumerate(own.get("frequencies", [])))
        for group in ("sets", "classes", "frequencies"):
            for name, values in expected.get(group, {}).items():
                assert ours[group][name].keys() == values.keys()
                for key, value in values.items():
                    assert ours[group][name][key] == (value and pytest.approx(value, rel=1e-5))
