"""Pruning keeps the largest weights, and training keeps the zeros."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.utils import prune as torch_prune

from bytemill.errors import ModelConfigError
from bytemill.lm import TransformerLM
from bytemill.lm.pruning import Sparsity, kept_weights, prune, prune_saved_model
from bytemill.lm.training.config import Resolved
from bytemill.lm.training.saved_model import find_saved_model, load_trained
from bytemill.lm.training.trainer import train

Settings = Callable[..., Resolved]


@given(rows=st.integers(1, 6), groups=st.integers(1, 5), kept=st.integers(1, 3), seed=st.integers(0, 99))
def test_in_each_group_the_largest_weights_stay(rows: int, groups: int, kept: int, seed: int) -> None:
    weight = torch.randn(rows, 4 * groups, generator=torch.Generator().manual_seed(seed))
    mask = kept_weights(weight, Sparsity.parse(f"{kept}:4"))
    for values, own in zip(weight.abs().reshape(-1, 4), mask.reshape(-1, 4), strict=True):
        assert int(own.sum()) == kept
        assert values[own].min() >= values[~own].max()


@given(share=st.floats(0.05, 0.95), seed=st.integers(0, 99))
def test_a_share_of_a_matrix_is_pruned_as_torch_does(share: float, seed: int) -> None:
    weight = torch.randn(7, 9, generator=torch.Generator().manual_seed(seed))
    layer = torch.nn.Linear(9, 7)
    layer.weight.data = weight.clone()
    torch_prune.l1_unstructured(layer, "weight", amount=round(share * 63))
    assert torch.equal(kept_weights(weight, Sparsity(share)), layer.get_buffer("weight_mask").bool())


def test_equal_weights_are_pruned_to_the_exact_share() -> None:
    mask = kept_weights(torch.ones(4, 8), Sparsity(0.25))
    assert int(mask.sum()) == 24


def test_embeddings_and_vectors_stay(model: TransformerLM) -> None:
    pruned = TransformerLM(model.config, seed=3)
    pruned.load_state_dict(model.state_dict())
    n_zeros = prune(pruned, Sparsity.parse("2:4"))
    matrices = {name for name, each in model.layers.named_parameters() if each.ndim == 2}
    assert (
        n_zeros
        == sum(each.numel() for name, each in model.layers.named_parameters() if name in matrices) // 2
    )
    for name, each in model.named_parameters():
        if name.removeprefix("layers.") not in matrices:
            assert torch.equal(each, pruned.get_parameter(name))


def test_a_pruned_run_trains_on_with_its_zeros(settings: Settings, tmp_path: Path) -> None:
    train(settings(training__steps=4))
    folder, n_zeros = prune_saved_model(tmp_path / "run", tmp_path / "sparse", Sparsity(0.5))
    assert find_saved_model(folder.path).config.model == settings().config.model
    for name, keeps in (("kept", True), ("lost", False)):
        own = {"training__init_from": str(folder.path), "run__folder": str(tmp_path / name)}
        for steps in (2, 4):  # the second resumes
            train(settings(training__steps=steps, training__keep_zeros=keeps, optimizer__name="muon", **own))
        matrices = [
            each for each in load_trained(tmp_path / name).model.layers.parameters() if each.ndim == 2
        ]
        found = sum(int((each == 0).sum()) for each in matrices)
        assert (found == n_zeros) if keeps else (found < n_zeros / 10)


@pytest.mark.parametrize("text", ["0", "1", "1.5", "4:4", "0:4", "half", "nan", ""])
def test_what_is_no_sparsity_is_an_error(text: str) -> None:
    with pytest.raises(ModelConfigError):
        Sparsity.parse(text)


def test_groups_must_divide_the_inputs() -> None:
    with pytest.raises(ModelConfigError, match="does not divide into groups of 4"):
        kept_weights(torch.ones(4, 6), Sparsity.parse("2:4"))
