"""A model folder is complete or none, and damage is noticed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import torch

from bytemill.errors import CheckpointError, OutputError
from bytemill.lm import TransformerLM
from bytemill.lm.training.saved_model import (
    check_output,
    is_model_folder,
    read_model_folder,
    write_model_folder,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.lm.conftest import Corpus


def test_weights_and_shape_return(model: TransformerLM, corpus: Corpus, tmp_path: Path) -> None:
    weights = dict(model.named_parameters())
    written = write_model_folder(tmp_path / "m", model.config, weights, corpus.tokenizer, source="a test")
    found = read_model_folder(tmp_path / "m")
    assert found == written
    assert found.fingerprint == corpus.tokenizer.fingerprint
    other = TransformerLM(found.model, seed=8)
    found.load_weights(other)
    assert all(torch.equal(own, weights[name]) for name, own in other.named_parameters())
    wrong = TransformerLM(found.model.replace(d_ff=8), seed=8)
    with pytest.raises(CheckpointError, match=r"does not hold the model that model\.json describes"):
        found.load_weights(wrong)


def test_a_folder_whose_writing_failed_is_no_model(
    model: TransformerLM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = dict(model.named_parameters())
    write_model_folder(tmp_path, model.config, weights, None, source="a test")

    def fail(*_: object, **__: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("bytemill.lm.training.saved_model.write_tensors", fail)
    with pytest.raises(OutputError):
        write_model_folder(tmp_path, model.config, weights, None, source="a test")
    assert not is_model_folder(tmp_path)


def test_another_format_is_refused(model: TransformerLM, tmp_path: Path) -> None:
    write_model_folder(tmp_path, model.config, dict(model.named_parameters()), None, source="a test")
    file = tmp_path / "model.json"
    document = json.loads(file.read_text())
    for changed, problem in (
        ({**document, "format": 2}, "has the format 2, but this version of bytemill reads format 1"),
        ({**document, "model": {"d_model": 3}}, "is damaged: .* must be set"),
        ([], "is damaged"),
    ):
        file.write_text(json.dumps(changed))
        with pytest.raises(CheckpointError, match=problem):
            read_model_folder(tmp_path)
    with pytest.raises(OutputError, match="is not empty"):
        check_output(tmp_path, overwrite=False)
    check_output(tmp_path, overwrite=True)
