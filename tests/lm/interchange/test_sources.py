"""Checkpoints of nanoGPT: names, padded vocabulary, compiled models, and files that are none."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pytest
import torch

from bytemill.errors import CheckpointError
from bytemill.lm.interchange.import_model import import_model, open_source
from tests.lm.interchange.conftest import assert_equal_logits, random_ids

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bytemill.lm import TransformerLM
    from tests.lm.conftest import Corpus


def checkpoint(*, bias: bool, prefix: str = "") -> dict[str, Any]:
    """Return a dict with the names and shapes that nanoGPT saves."""
    generator = torch.Generator().manual_seed(0)
    arguments = {"n_layer": 2, "n_head": 4, "n_embd": 32, "block_size": 96, "bias": bias, "vocab_size": 320}

    def linear(name: str, d_out: int, d_in: int) -> dict[str, torch.Tensor]:
        weights = {f"{name}.weight": 0.2 * torch.randn(d_out, d_in, generator=generator)}
        return weights | ({f"{name}.bias": torch.randn(d_out, generator=generator)} if bias else {})

    def norm(name: str) -> dict[str, torch.Tensor]:
        weights = {f"{name}.weight": 1 + 0.2 * torch.randn(32, generator=generator)}
        return weights | ({f"{name}.bias": torch.randn(32, generator=generator)} if bias else {})

    state = {"transformer.wte.weight": 0.2 * torch.randn(320, 32, generator=generator)}
    state["transformer.wpe.weight"] = 0.2 * torch.randn(96, 32, generator=generator)
    for layer in range(2):
        block = f"transformer.h.{layer}"
        state |= norm(f"{block}.ln_1") | linear(f"{block}.attn.c_attn", 96, 32)
        state |= linear(f"{block}.attn.c_proj", 32, 32) | norm(f"{block}.ln_2")
        state |= linear(f"{block}.mlp.c_fc", 128, 32) | linear(f"{block}.mlp.c_proj", 32, 128)
    state |= norm("transformer.ln_f")
    state["lm_head.weight"] = state["transformer.wte.weight"]
    return {
        "model": {prefix + name: tensor for name, tensor in state.items()},
        "optimizer": {"state": {}, "param_groups": []},
        "model_args": {**arguments, "dropout": 0.1},
        "iter_num": 10,
        "best_val_loss": torch.tensor(3.0),
        "config": {"dataset": "openwebtext", "learning_rate": 6e-4},
    }


def expected_logits(transformers: Any, document: dict[str, Any], ids: torch.Tensor) -> torch.Tensor:
    """Compute the logits with transformers' GPT-2, whose linear layers are transposed, with the exact GELU."""
    config = transformers.GPT2Config(
        vocab_size=320,
        n_positions=96,
        n_embd=32,
        n_layer=2,
        n_head=4,
        activation_function="gelu",
        bos_token_id=None,
        eos_token_id=None,
    )
    model = transformers.GPT2LMHeadModel(config).eval()
    state = {
        name: tensor.T if ".c_" in name and tensor.ndim == 2 else tensor
        for name, tensor in document["model"].items()
    }
    zeros = {name: torch.zeros_like(tensor) for name, tensor in model.state_dict().items()}
    model.load_state_dict({**zeros, **state})
    with torch.no_grad():
        return model(ids).logits


@pytest.mark.parametrize("bias", [False, True])
def test_a_checkpoint_of_nanogpt_is_imported(
    transformers: Any, load_model: Callable[[Path], TransformerLM], corpus: Corpus, tmp_path: Path, bias: bool
) -> None:
    expected = expected_logits(transformers, checkpoint(bias=bias), random_ids())
    (tmp_path / "out").mkdir()
    torch.save(checkpoint(bias=bias, prefix="_orig_mod."), tmp_path / "out/ckpt.pt")
    for number, source in enumerate((tmp_path / "out", tmp_path / "out/ckpt.pt")):
        folder = tmp_path / f"imported{number}"
        imported = import_model(source, folder, tokenizer=corpus.folder / "tokenizer.json")
        assert imported.folder.source == "GPT of nanoGPT"
        with torch.no_grad():
            assert_equal_logits(expected, load_model(folder)(random_ids()))


class Attack:
    def __reduce__(self) -> tuple[Any, ...]:
        return (print, ("executed",))


def test_other_files_are_refused_and_their_code_is_not_executed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "ckpt.pt"

    def refused(problem: str) -> None:
        with pytest.raises(CheckpointError, match=problem), open_source(file):
            pass

    refused("does not exist")
    torch.save({**checkpoint(bias=False), "config": Attack()}, file)
    refused("is not a checkpoint of nanoGPT")
    torch.save({"weights": {}}, file)
    refused("is not a checkpoint of nanoGPT, or it is damaged: 'model_args'")
    file.write_bytes(pickle.dumps({"model": 1}))
    refused("is not a checkpoint of nanoGPT")
    file.write_bytes(b"")
    refused("is not a checkpoint of nanoGPT")
    with (
        pytest.raises(CheckpointError, match=r"holds no config.json and no ckpt.pt"),
        open_source(tmp_path / ".."),
    ):
        pass
    assert "executed" not in capsys.readouterr().out
