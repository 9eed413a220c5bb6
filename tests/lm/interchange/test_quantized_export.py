"""A quantized model is written to GGUF with its codes, dequantized elsewhere, and trained nowhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from bytemill.errors import ModelConfigError, OutputError, RunConfigError
from bytemill.lm import TransformerLM
from bytemill.lm.interchange.export_model import export_model
from bytemill.lm.interchange.import_model import import_model
from bytemill.lm.interchange.quantized_folder import quantize_saved_model
from bytemill.lm.quantization import quantize
from bytemill.lm.training.config import resolve
from bytemill.lm.training.preparation import find_initial_weights, initial_layers
from bytemill.lm.training.saved_model import load_trained, read_model_folder
from tests.lm.interchange.test_export_model import GPT2, SMALL, save

if TYPE_CHECKING:
    from pathlib import Path

    from bytemill.lm.quantization import Bits
    from tests.lm.conftest import Corpus

ARCHITECTURES: dict[str, dict[str, Any]] = {
    "llama": {**SMALL, "d_ff": 64, "attention": {"num_kv_heads": 2}},
    "qwen3": {**SMALL, "d_ff": 64, "attention": {"qk_norm": True, "head_dim": 16}},
    "gpt2": {**GPT2, "d_ff": 64, "bias": True, "norm_bias": True, "tied_embeddings": True},
}


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    found = read_model_folder(folder)
    model = TransformerLM(found.model, seed=0)
    found.load_weights(model)
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_codes_reach_gguf_unchanged_and_come_back(
    corpus: Corpus, tmp_path: Path, name: str, bits: Bits
) -> None:
    gguf = pytest.importorskip("gguf")
    save(tmp_path / "model", corpus.tokenizer, ARCHITECTURES[name])
    made = quantize_saved_model(tmp_path / "model", tmp_path / "small", bits)
    assert made.bytes_after < (0.4 if bits == 8 else 0.3) * made.bytes_before
    export_model(tmp_path / "small", tmp_path / "small.gguf", dtype="q8_0" if bits == 8 else "q4_0")
    reader = gguf.GGUFReader(tmp_path / "small.gguf")
    kinds = {tensor.name: tensor.tensor_type.name for tensor in reader.tensors}
    assert kinds["token_embd.weight"] == kinds["blk.0.ffn_down.weight"] == f"Q{bits}_0"
    assert kinds["output_norm.weight"] == "F32"
    codes = read_model_folder(tmp_path / "small").codes()["layers.1.ffn.w2.weight"]
    (down,) = [tensor.data for tensor in reader.tensors if tensor.name == "blk.1.ffn_down.weight"]
    joined = [part.view(torch.uint8).view(*codes[1].shape, -1) for part in codes[::-1]]
    np.testing.assert_array_equal(down, torch.cat(joined, -1).flatten(1).numpy())
    import_model(tmp_path / "small.gguf", tmp_path / "back")
    own, back = weights_of(tmp_path / "small"), weights_of(tmp_path / "back")
    assert own.keys() == back.keys()
    assert all(torch.equal(own[key], back[key]) for key in own)


def test_a_float32_model_is_quantized_by_the_export(corpus: Corpus, tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    model = save(tmp_path / "model", corpus.tokenizer, ARCHITECTURES["llama"])
    export_model(tmp_path / "model", tmp_path / "out.gguf", dtype="q8_0")
    quantize_saved_model(tmp_path / "model", tmp_path / "small", 8)
    import_model(tmp_path / "out.gguf", tmp_path / "back")
    own, back = weights_of(tmp_path / "small"), weights_of(tmp_path / "back")
    assert all(torch.equal(own[key], back[key]) for key in own)
    weight = dict(model.named_parameters())["layers.0.ffn.w1.weight"]
    codes, scales = read_model_folder(tmp_path / "small").codes()["layers.0.ffn.w1.weight"]
    assert all(map(torch.equal, (codes, scales), quantize(weight, 8)))
    with pytest.raises(ModelConfigError, match="q4_0 is a type of GGUF files"):
        export_model(tmp_path / "model", tmp_path / "hf", dtype="q4_0")


def test_other_programs_get_the_values_in_float32(corpus: Corpus, tmp_path: Path) -> None:
    save(tmp_path / "model", corpus.tokenizer, ARCHITECTURES["llama"])
    quantize_saved_model(tmp_path / "model", tmp_path / "small", 4)
    export_model(tmp_path / "small", tmp_path / "hf")
    import_model(tmp_path / "hf", tmp_path / "back")
    own, back = weights_of(tmp_path / "small"), weights_of(tmp_path / "back")
    assert all(torch.equal(own[key], back[key]) for key in own)
    ids = torch.arange(40)[None]
    small, plain = (load_trained(tmp_path / name, "cpu").model for name in ("small", "back"))
    with torch.inference_mode():
        assert torch.allclose(small(ids), plain(ids), rtol=1e-5, atol=1e-5)


def test_it_is_neither_trained_nor_quantized_again(corpus: Corpus, tmp_path: Path) -> None:
    save(tmp_path / "model", corpus.tokenizer, ARCHITECTURES["llama"])
    quantize_saved_model(tmp_path / "model", tmp_path / "small", 8)
    initial = str(tmp_path / "small")
    values = {"training.init_from": initial, "run.folder": str(tmp_path / "run"), **corpus.data}
    config = resolve([*initial_layers(initial, None), ("the test", values)]).config
    with pytest.raises(RunConfigError, match="small is quantized to 8 bits, and training needs"):
        find_initial_weights(config, corpus.tokenizer)
    with pytest.raises(ModelConfigError, match="small is quantized to 8 bits already"):
        quantize_saved_model(tmp_path / "small", tmp_path / "again", 4)
    with pytest.raises(OutputError, match="is not empty"):
        quantize_saved_model(tmp_path / "model", tmp_path / "small", 4)
    save(tmp_path / "odd", corpus.tokenizer, SMALL)
    with pytest.raises(ModelConfigError, match=r"layers\.0\.ffn\.w2\.weight has rows of 40 weights"):
        quantize_saved_model(tmp_path / "odd", tmp_path / "none", 8)
    assert not (tmp_path / "none").exists()
