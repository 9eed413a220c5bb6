"""The `gguf` package reads the exported file: metadata, tokenizer, and each tensor in llama.cpp's order of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import bytemill
from bytemill.errors import CheckpointError, ModelConfigError, OutputError
from bytemill.lm.interchange.export_model import export_model
from bytemill.lm.rotary_scaling import rotary_frequencies
from tests.lm.interchange.test_export_model import GPT2, SMALL, save

if TYPE_CHECKING:
    from pathlib import Path

    from tests.lm.conftest import Corpus

LLAMA_NAMES = {
    "attn_q": "attn.q_proj", "attn_k": "attn.k_proj", "attn_v": "attn.v_proj", "attn_q_norm": "attn.q_norm",
    "attn_k_norm": "attn.k_norm", "attn_output": "attn.output_proj", "attn_norm": "ln1", "ffn_norm": "ln2",
    "ffn_gate": "ffn.w1", "ffn_down": "ffn.w2", "ffn_up": "ffn.w3", "token_embd": "token_embeddings",
    "output_norm": "ln_final", "output": "lm_head",
}  # fmt: skip


def read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    gguf = pytest.importorskip("gguf")
    reader = gguf.GGUFReader(path)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    tensors = {
        tensor.name: gguf.quants.dequantize(tensor.data, tensor.tensor_type) for tensor in reader.tensors
    }
    return fields, tensors


def ours(name: str) -> str:
    """Return this package's name of a tensor of the architectures llama, qwen2 and qwen3."""
    *block, part, kind = name.split(".")
    prefix = f"layers.{block[1]}." if block else ""
    return f"{prefix}{LLAMA_NAMES[part]}.{kind}"


def halves(rows: np.ndarray, d_head: int) -> np.ndarray:
    """Reorder each head from neighbouring pairs (0, 1), (2, 3) … to pairs half a head apart."""
    heads = rows.reshape(-1, d_head, *rows.shape[1:])
    return np.concatenate((heads[:, 0::2], heads[:, 1::2]), axis=1).reshape(rows.shape)


@pytest.mark.parametrize(
    ("architecture", "config"),
    [
        ("llama", {**SMALL, "attention": {"num_kv_heads": 2}}),
        ("llama", {**SMALL, "bias": True, "tied_embeddings": True}),
        ("qwen2", {**SMALL, "attention": {"qkv_bias": True, "num_kv_heads": 1}}),
        ("qwen3", {**SMALL, "attention": {"qk_norm": True, "head_dim": 16}}),
    ],
)
def test_each_tensor_is_the_models(
    corpus: Corpus, tmp_path: Path, architecture: str, config: dict[str, Any]
) -> None:
    model: Any = save(tmp_path / "model", corpus.tokenizer, config)
    exported = export_model(tmp_path / "model", tmp_path / "out", format="gguf")
    assert exported.architecture == architecture
    fields, tensors = read(tmp_path / "out/model.gguf")
    state = {name: parameter.detach().numpy() for name, parameter in model.named_parameters()}
    assert {ours(name) for name in tensors} == state.keys()
    for name, tensor in tensors.items():
        expected = state[ours(name)]
        if architecture != "llama" and any(part in name for part in ("attn_q", "attn_k")):
            expected = halves(expected, model.config.d_head)
        np.testing.assert_array_equal(tensor, expected, err_msg=name)
    assert fields["general.architecture"] == architecture
    values = {key.removeprefix(f"{architecture}."): value for key, value in fields.items()}
    assert values["vocab_size"] == len(values["tokenizer.ggml.tokens"]) == 320
    assert (values["context_length"], values["block_count"], values["embedding_length"]) == (96, 2, 32)
    assert (values["attention.head_count"], values["feed_forward_length"]) == (4, 40)
    assert values["attention.head_count_kv"] == model.config.n_kv_heads
    assert values["attention.key_length"] == values["rope.dimension_count"] == model.config.d_head
    assert values["attention.layer_norm_rms_epsilon"] == pytest.approx(1e-5)
    assert values["rope.freq_base"] == 10_000.0
    tokenizer = bytemill.Tokenizer.load(tmp_path / "out/model.gguf")
    assert tokenizer.fingerprint == corpus.tokenizer.fingerprint


@pytest.mark.parametrize("bias", [False, True])
def test_gpt2_has_stacked_projections_and_all_biases(corpus: Corpus, tmp_path: Path, bias: bool) -> None:
    config = {**GPT2, "bias": bias, "norm_bias": bias, "tied_embeddings": True}
    model: Any = save(tmp_path / "model", corpus.tokenizer, config)
    export_model(tmp_path / "model", tmp_path / "gpt.gguf", format="gguf", dtype="float16")
    fields, tensors = read(tmp_path / "gpt.gguf")
    assert (fields["general.architecture"], fields["general.name"]) == ("gpt2", "gpt")
    assert fields["gpt2.attention.layer_norm_epsilon"] == pytest.approx(1e-5)
    layers: Any = model.layers
    attention = layers[1].attn
    stacked = torch.cat([getattr(attention, f"{name}_proj").weight for name in "qkv"]).detach()
    np.testing.assert_array_equal(tensors["blk.1.attn_qkv.weight"], stacked.half().float().numpy())
    positions = model.position_embeddings.weight.detach().numpy()
    np.testing.assert_array_equal(tensors["position_embd.weight"], positions)
    np.testing.assert_array_equal(
        tensors["blk.0.ffn_up.weight"], layers[0].ffn.w1.weight.detach().half().float().numpy()
    )
    expected = layers[0].ln1.bias.detach().numpy() if bias else np.zeros(32)
    np.testing.assert_array_equal(tensors["blk.0.attn_norm.bias"], expected)
    assert tensors["blk.0.attn_qkv.bias"].shape == (96,)
    assert "output.weight" not in tensors


def test_llama3_scaling_becomes_factors_of_the_frequencies(corpus: Corpus, tmp_path: Path) -> None:
    scaling = {"rope": {"scaling": "llama3", "factor": 4.0, "original_context": 32}}
    model: Any = save(tmp_path / "model", corpus.tokenizer, {**SMALL, **scaling})
    export_model(tmp_path / "model", tmp_path / "out.gguf", format="gguf", dtype="bfloat16")
    _, tensors = read(tmp_path / "out.gguf")
    layers: Any = model.layers
    divided = rotary_frequencies(10_000.0, 8).numpy() / tensors["rope_freqs.weight"]
    np.testing.assert_allclose(divided, layers[0].attn.rope.frequencies.numpy(), rtol=1e-6)


def test_what_gguf_cannot_hold_is_refused(corpus: Corpus, tmp_path: Path) -> None:
    save(tmp_path / "window", corpus.tokenizer, {**SMALL, "attention": {"sliding_window": 4}})
    with pytest.raises(ModelConfigError, match=r"llama\.cpp .* lacks attention\.sliding_window 4"):
        export_model(tmp_path / "window", tmp_path / "out", format="gguf")
    save(tmp_path / "exact", corpus.tokenizer, {**GPT2, "feed_forward": "gelu_exact"})
    with pytest.raises(ModelConfigError, match=r"llama\.cpp .* lacks feed_forward 'gelu_exact'"):
        export_model(tmp_path / "exact", tmp_path / "out", format="gguf")
    save(tmp_path / "model", None, SMALL)
    with pytest.raises(CheckpointError, match="has no tokenizer, which a GGUF file needs"):
        export_model(tmp_path / "model", tmp_path / "out", format="gguf")
    assert not (tmp_path / "out").exists()
    (tmp_path / "out.gguf").write_text("mine")
    with pytest.raises(OutputError, match=r"out\.gguf exists"):
        export_model(tmp_path / "model", tmp_path / "out.gguf", format="gguf")
