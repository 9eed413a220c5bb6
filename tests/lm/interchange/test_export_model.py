"""transformers loads an exported model and computes the same logits; other models are refused by option."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import safetensors.torch
import torch

from bytemill.errors import ModelConfigError, NotFiniteError, OutputError
from bytemill.lm import ModelConfig, TransformerLM
from bytemill.lm.interchange.export_model import export_model
from bytemill.lm.interchange.expressible import check_supported
from bytemill.lm.interchange.import_model import import_model
from bytemill.lm.model_folder import write_model_folder
from tests.lm.interchange.conftest import MODELS, assert_equal_logits, random_ids

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.lm.conftest import Corpus

SMALL: dict[str, Any] = {
    "vocab_size": 320,
    "context_length": 96,
    "d_model": 32,
    "num_layers": 2,
    "num_heads": 4,
    "d_ff": 40,
}
GPT2: dict[str, Any] = {**SMALL, "norm": "layer", "position": "learned", "feed_forward": "gelu"}


def save(folder: Path, corpus: Corpus | None, config: dict[str, Any]) -> TransformerLM:
    model = TransformerLM(ModelConfig(**config), seed=4).eval()
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        parameter.data += 0.15 * torch.randn(parameter.shape, generator=generator)
    weights = dict(model.named_parameters())
    write_model_folder(folder, model.config, weights, corpus and corpus.tokenizer, source="the test")
    return model


@pytest.mark.parametrize("name", MODELS)
def test_import_and_export_return_the_same_files(
    save_model: Callable[..., tuple[Any, Path]], tmp_path: Path, name: str
) -> None:
    other, folder = save_model(name)
    import_model(folder, tmp_path / "imported")
    exported = export_model(tmp_path / "imported", tmp_path / "exported")
    assert exported.architecture == type(other).__name__
    original = safetensors.torch.load_file(folder / "model.safetensors")
    returned = safetensors.torch.load_file(tmp_path / "exported/model.safetensors")
    assert original.keys() == returned.keys()
    for key, tensor in original.items():
        assert torch.equal(tensor, returned[key]), key
    again = import_model(tmp_path / "exported", tmp_path / "again")
    first = json.loads((tmp_path / "imported/model.json").read_text())
    assert json.loads((tmp_path / "again/model.json").read_text()) == first
    assert again.notes == []


@pytest.mark.parametrize(
    ("architecture", "config"),
    [
        ("GPT2LMHeadModel", {**GPT2, "bias": True, "tied_embeddings": True}),
        ("GPT2LMHeadModel", {**GPT2, "norm_bias": False, "feed_forward": "relu2"}),
        ("GPT2LMHeadModel", {**GPT2, "qkv_bias": True, "feed_forward": "gelu_exact", "norm_eps": 1e-3}),
        ("LlamaForCausalLM", {**SMALL, "num_kv_heads": 2, "tied_embeddings": True}),
        ("LlamaForCausalLM", {**SMALL, "bias": True, "head_dim": 12, "rope_theta": 500.0}),
        (
            "LlamaForCausalLM",
            {**SMALL, "rope_scaling": "llama3", "rope_factor": 4.0, "rope_original_context": 32},
        ),
        ("MistralForCausalLM", {**SMALL, "sliding_window": 5, "rope_scaling": "linear", "rope_factor": 2.0}),
        ("Qwen2ForCausalLM", {**SMALL, "qkv_bias": True, "sliding_window": 5}),
        ("Qwen3ForCausalLM", {**SMALL, "qk_norm": True, "head_dim": 16, "num_kv_heads": 1}),
    ],
)
def test_transformers_loads_the_exported_model(
    transformers: Any, corpus: Corpus, tmp_path: Path, architecture: str, config: dict[str, Any]
) -> None:
    model = save(tmp_path / "model", corpus, config)
    export_model(tmp_path / "model", tmp_path / "exported", max_shard_bytes=20_000)
    assert len(list((tmp_path / "exported").glob("model-*-of-*.safetensors"))) > 1
    other = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "exported")
    assert type(other).__name__ == architecture
    assert other.dtype == torch.float32
    with torch.no_grad():
        assert_equal_logits(model(random_ids()), other.eval()(random_ids()).logits)
    text = "The naïve bird saw the 犬."
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "exported")
    assert tokenizer(text).input_ids == corpus.tokenizer.encode(text)
    assert other.generation_config.eos_token_id == corpus.tokenizer.encode("<|endoftext|>")[0]


def test_half_precision_is_rounded_once(transformers: Any, tmp_path: Path) -> None:
    model = save(tmp_path / "model", None, SMALL)
    exported = export_model(tmp_path / "model", tmp_path / "exported", dtype="bfloat16")
    assert not exported.has_tokenizer
    other = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "exported")
    assert other.dtype == torch.bfloat16
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.bfloat16())
        assert_equal_logits(model(random_ids()), other.float().eval()(random_ids()).logits)


@pytest.mark.parametrize(
    ("change", "lacking"),
    [
        ({"logit_soft_cap": 15.0}, "llama, lacks logit_soft_cap 15.0"),
        ({"norm_position": "post"}, "llama, lacks norm_position 'post'"),
        ({"rotary_fraction": 0.5}, "llama, lacks rotary_fraction 0.5"),
        ({"qkv_bias": True, "qk_norm": True}, "lacks (qk_norm True|qkv_bias True)"),
        ({"feed_forward": "relu2"}, "llama, lacks feed_forward 'relu2'"),
        ({**GPT2, "num_kv_heads": 2}, "gpt2, lacks num_kv_heads 2 with num_heads 4"),
        ({**GPT2, "head_dim": 16}, "gpt2, lacks head_dim 16"),
        ({"position": "sinusoidal", "norm": "layer"}, "lacks .*position 'sinusoidal'"),
    ],
)
def test_an_option_that_no_architecture_has_is_named(change: dict[str, Any], lacking: str) -> None:
    with pytest.raises(ModelConfigError, match=f"no architecture of transformers .* {lacking}"):
        check_supported(ModelConfig(**{**SMALL, **change}))


def test_weights_that_are_not_finite_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    model = save(tmp_path / "model", None, SMALL)
    weights = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    weights["layers.1.ffn.w2.weight"][0, 0] = -7e4
    write_model_folder(tmp_path / "large", model.config, weights, None, source="the test")
    with pytest.raises(NotFiniteError, match=r"layers.1.ffn.w2.weight has values up to 70000, which float16"):
        export_model(tmp_path / "large", tmp_path / "out", dtype="float16")
    export_model(tmp_path / "large", tmp_path / "bfloat16", dtype="bfloat16")
    weights["layers.1.ffn.w2.weight"][0, 0] = torch.nan
    write_model_folder(tmp_path / "nan", model.config, weights, None, source="the test")
    with pytest.raises(NotFiniteError, match=r"layers.1.ffn.w2.weight has NaN or infinite values"):
        export_model(tmp_path / "nan", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    file = tmp_path / "bfloat16" / "model.safetensors"
    tensors = safetensors.torch.load_file(file)
    tensors["model.layers.0.mlp.up_proj.weight"][1, 1] = torch.inf
    safetensors.torch.save_file(tensors, file)
    with pytest.raises(NotFiniteError, match=r"bfloat16: layers.0.mlp.up_proj.weight has NaN or infinite"):
        import_model(tmp_path / "bfloat16", tmp_path / "imported")
    assert not (tmp_path / "imported").exists()


def test_the_output_is_not_mixed_with_other_files(corpus: Corpus, tmp_path: Path) -> None:
    save(tmp_path / "model", corpus, SMALL)
    with pytest.raises(OutputError, match="is the model itself"):
        export_model(tmp_path / "model", tmp_path / "model", overwrite=True)
    export_model(tmp_path / "model", tmp_path / "out", max_shard_bytes=20_000)
    with pytest.raises(OutputError, match="out is not empty"):
        export_model(tmp_path / "model", tmp_path / "out")
    export_model(tmp_path / "model", tmp_path / "out", overwrite=True)
    assert [path.name for path in (tmp_path / "out").glob("model*")] == ["model.safetensors"]
