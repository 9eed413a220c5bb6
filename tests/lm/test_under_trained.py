"""Tokens that a model has hardly learned: candidates by definition, probabilities as the model gives them alone."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import bytemill
from bytemill.cli import main
from bytemill.lm.model import ModelConfig, TransformerLM
from bytemill.lm.training.saved_model import TrainedModel, load_trained, write_model_folder
from bytemill.lm.under_trained import (
    N_REPETITIONS,
    row_distances,
    under_trained,
    under_trained_finding,
    unused_ids,
)
from tests.lm.conftest import sentences

END = "<|endoftext|>"
TOK = bytemill.train_from_iterator([sentences(1, 50)], 290, [END])


@pytest.fixture(params=[0, 14], ids=["exact", "padded"])
def trained(request: pytest.FixtureRequest, tmp_path: Path) -> TrainedModel:
    """A model whose rows 260 to 262 are as those of padding, or short."""
    sizes: dict[str, Any] = {"context_length": 32, "d_model": 16, "num_layers": 2, "num_heads": 2, "d_ff": 32}
    config = ModelConfig(vocab_size=TOK.n_vocab + request.param, **sizes)
    model = TransformerLM(config, seed=0)
    with torch.no_grad():
        model.lm_head.weight[TOK.n_vocab :] = torch.linspace(-1, 1, 16)
        model.lm_head.weight[260:263] = 1e-3 * torch.linspace(-1, 1, 16)
    weights = {name: tensor.detach() for name, tensor in model.named_parameters()}
    write_model_folder(tmp_path / "model", config, weights, TOK, source="a test")
    return load_trained(tmp_path / "model")


def test_candidates_have_the_nearest_rows_and_probabilities_are_those_of_the_model(
    trained: TrainedModel,
) -> None:
    found = under_trained(trained, 3)
    assert sorted(each.id for each in found) == [260, 261, 262]
    rows = trained.model.lm_head.weight.detach()
    unused = unused_ids(TOK, len(rows))
    assert unused == list(range(TOK.n_vocab, len(rows)))
    for each in under_trained(trained, 70):
        if unused:
            mean = rows[unused].mean(dim=0)
            expected = 1 - torch.nn.functional.cosine_similarity(rows[each.id], mean, dim=0)
        else:
            expected = rows[each.id].norm()
        assert each.distance == pytest.approx(float(expected), abs=1e-5)
        prompt = [TOK.special_tokens[END], *[each.id, TOK.encode(" ")[0]] * N_REPETITIONS]
        logits = trained.model(torch.tensor([prompt]))[0, -1].detach()
        assert each.probability == pytest.approx(float(logits.softmax(dim=-1)[each.id]), rel=1e-4)
        assert each.is_verified == (each.probability < 0.01)
    assert len(under_trained(trained)) == round(0.02 * 289)


def test_distances_do_not_fail_on_rows_of_zeros() -> None:
    rows = torch.zeros(4, 3)
    assert torch.isfinite(row_distances(rows, [3])).all()
    assert row_distances(rows, []).tolist() == [0.0] * 4


def test_lint_reports_what_a_model_does_not_repeat(
    trained: TrainedModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    TOK.save(tmp_path / "tokenizer.json")
    model, file = str(tmp_path / "model"), str(tmp_path / "tokenizer.json")
    status = main(["tokenizer", "lint", file, "--model", model, "--json"])
    assert not status
    document = json.loads(capsys.readouterr().out)
    finding = under_trained_finding(trained)
    assert finding is not None
    assert [each["tokens"] for each in document["findings"] if each["rule"] == "under-trained"] == [
        finding.to_dict()["tokens"]
    ]
    other = bytemill.add_words(TOK, ["zebra"]).tokenizer
    other.save(tmp_path / "other.json")
    assert main(["tokenizer", "lint", str(tmp_path / "other.json"), "--model", model]) == 1
    assert "has another tokenizer" in capsys.readouterr().err
