"""A student learns the distributions of its teacher, and resumes exactly."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bytemill.errors import CheckpointError, RunConfigError
from bytemill.lm import TransformerLM
from bytemill.lm.training.config import Resolved
from bytemill.lm.training.distillation import distillation_loss, distilled_losses
from bytemill.lm.training.run_folder import RunFolder
from bytemill.lm.training.trainer import train
from bytemill.lm.tuning.tune import tune
from tests.lm.conftest import Corpus

Settings = Callable[..., Resolved]


@given(
    seed=st.integers(0, 99),
    temperature=st.sampled_from([0.5, 1.0, 3.0]),
    scale=st.sampled_from([0.1, 1.0, 50.0]),
)
def test_the_loss_is_torchs_divergence(seed: int, temperature: float, scale: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    own, theirs = (torch.randn(2, 5, 7, generator=generator, dtype=torch.float64) * scale for _ in range(2))
    own.requires_grad_()
    ours = distillation_loss(own, theirs, temperature)
    (gradient,) = torch.autograd.grad(ours, own)
    expected = temperature**2 * torch.nn.functional.kl_div(
        (own / temperature).log_softmax(-1).flatten(0, 1),
        (theirs / temperature).log_softmax(-1).flatten(0, 1),
        log_target=True,
        reduction="batchmean",
    )
    (expected_gradient,) = torch.autograd.grad(expected, own)
    torch.testing.assert_close(ours, expected)
    torch.testing.assert_close(gradient, expected_gradient)


def test_a_model_has_nothing_to_learn_from_itself(model: TransformerLM) -> None:
    ids = torch.randint(0, model.config.vocab_size, (2, 9))
    loss, nats = distilled_losses(model, model, ids[:, :-1], ids[:, 1:], weight=1.0, temperature=2.0)
    assert abs(float(loss.detach())) < 1e-6
    torch.testing.assert_close(nats, model.loss(ids[:, :-1], ids[:, 1:]).detach())
    padded = ids[:, 1:].clone()
    padded[:, 5:] = -1
    whole = distilled_losses(model, model, ids[:, :-1], padded, weight=0.5, temperature=1.0, is_padded=True)
    torch.testing.assert_close(whole[1], model.loss(ids[:, :5], ids[:, 1:6]).detach())
    torch.testing.assert_close(whole[0].detach(), 0.5 * whole[1])


@pytest.fixture
def teacher(settings: Settings, tmp_path: Path) -> Path:
    train(settings(run__folder=str(tmp_path / "teacher"), training__steps=6))
    return tmp_path / "teacher"


def student(settings: Settings, teacher: Path, folder: str, **changes: Any) -> Resolved:
    own = {"tuning__method": "distill", "tuning__teacher": str(teacher), "run__folder": folder}
    return settings(**{**own, "model__num_layers": 1, "training__steps": 6, **changes})


def test_a_distillation_resumes_exactly_and_names_a_changed_teacher(
    settings: Settings, teacher: Path, tmp_path: Path
) -> None:
    weights: list[str] = []
    constant = {"schedule__name": "constant", "schedule__warmup_steps": 0, "tuning__teacher_weight": 0.7}
    tune(student(settings, teacher, str(tmp_path / "whole"), **constant))
    tune(student(settings, teacher, str(tmp_path / "half"), training__steps=3, **constant))
    tune(student(settings, teacher, str(tmp_path / "half"), **constant))
    plain = {**constant, "tuning__method": "none"}
    train(student(settings, teacher, str(tmp_path / "plain"), **plain))
    for name in ("whole", "half", "plain"):
        found = RunFolder(tmp_path / name).load_newest()
        assert found is not None
        weights.append(found.checkpoint.weights_sha256)
    assert weights[0] == weights[1] != weights[2]
    train(settings(run__folder=str(teacher), training__steps=8))
    with pytest.raises(CheckpointError, match="weights has other content"):
        tune(student(settings, teacher, str(tmp_path / "half"), training__steps=9, **constant))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model__vocab_size": 400}, "has 300 ids|but the teacher"),
        ({"model__context_length": 4096}, "reads only"),
        ({"tuning__teacher": ""}, "tuning.teacher is not set"),
    ],
)
def test_a_teacher_that_does_not_fit_is_an_error(
    settings: Settings, teacher: Path, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(RunConfigError, match=message):
        tune(student(settings, teacher, str(tmp_path / "run"), **changes))


def test_a_teacher_with_another_tokenizer_is_an_error(
    settings: Settings, teacher: Path, corpus: Corpus, tmp_path: Path
) -> None:
    import bytemill

    other = bytemill.train_from_iterator([corpus.text[:3000]], 299, ["<|endoftext|>"])
    other.save(tmp_path / "other.json")
    bytemill.encode_corpus(other, bytemill.Corpus.from_texts([corpus.text]), tmp_path / "other")
    data = {"data__tokenizer": str(tmp_path / "other.json"), "data__train": str(tmp_path / "other")}
    with pytest.raises(RunConfigError, match="not that of the teacher"):
        tune(student(settings, teacher, str(tmp_path / "run"), data__validation=(), **data))
