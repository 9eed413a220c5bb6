"""An imported model computes what transformers computes; what cannot be expressed is refused by name."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import safetensors.torch
import torch

import bytemill
from bytemill.errors import CheckpointError, ModelConfigError, OutputError, TokenizerError
from bytemill.lm.generation import generate
from bytemill.lm.interchange.export_model import export_model
from bytemill.lm.interchange.import_model import import_model
from bytemill.lm.training.saved_model import load_trained
from bytemill.system.locks import lock_output
from tests.lm.interchange.conftest import MODELS, assert_equal_logits, random_ids

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bytemill.lm import TransformerLM
    from tests.lm.conftest import Corpus

N_NEW = 32


@pytest.mark.parametrize("name", MODELS)
def test_a_model_computes_what_it_does_in_transformers_and_is_exported_as_it_was(
    save_model: Callable[..., tuple[Any, Path]],
    load_model: Callable[[Path], TransformerLM],
    tmp_path: Path,
    name: str,
) -> None:
    other, folder = save_model(name)
    imported = import_model(folder, tmp_path / "imported")
    assert imported.notes == []
    model = load_model(tmp_path / "imported")
    assert imported.n_parameters == model.n_parameters() == sum(p.numel() for p in other.parameters())
    with torch.no_grad():
        assert_equal_logits(other(random_ids()).logits, model(random_ids()))
        prompt = random_ids(16, 1)
        options = {"max_new_tokens": N_NEW, "do_sample": False, "pad_token_id": 0}
        expected = other.generate(prompt, attention_mask=torch.ones_like(prompt), **options)
    (actual,) = generate(model, prompt[0].tolist(), N_NEW, temperature=0)
    assert actual == expected[0, 16:].tolist()

    exported = export_model(tmp_path / "imported", tmp_path / "exported")
    assert exported.architecture == type(other).__name__
    original = safetensors.torch.load_file(folder / "model.safetensors")
    returned = safetensors.torch.load_file(tmp_path / "exported/model.safetensors")
    assert original.keys() == returned.keys()
    for key, tensor in original.items():
        assert torch.equal(tensor, returned[key]), key
    assert import_model(tmp_path / "exported", tmp_path / "again").notes == []
    first, again = (
        json.loads((tmp_path / each / "model.json").read_text()) for each in ("imported", "again")
    )
    assert again == first


@pytest.mark.parametrize("name", ["llama2", "llama3", "llama-linear", "smollm"])
def test_logits_are_bit_for_bit_those_of_transformers(
    save_model: Callable[..., tuple[Any, Path]],
    load_model: Callable[[Path], TransformerLM],
    tmp_path: Path,
    name: str,
) -> None:
    other, folder = save_model(name)
    import_model(folder, tmp_path / "imported")
    with torch.no_grad():
        assert torch.equal(load_model(tmp_path / "imported")(random_ids()), other(random_ids()).logits)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_and_shards_become_float32(
    save_model: Callable[..., tuple[Any, Path]],
    load_model: Callable[[Path], TransformerLM],
    tmp_path: Path,
    dtype: torch.dtype,
) -> None:
    other, folder = save_model("llama3")
    whole = safetensors.torch.load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    weight_map: dict[str, str] = {}
    for number, name in enumerate(whole):
        file = f"model-{number % 3}.safetensors"
        weight_map[name] = file
    for file in set(weight_map.values()):
        own = {name: whole[name].to(dtype) for name in whole if weight_map[name] == file}
        safetensors.torch.save_file(own, folder / file)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    import_model(folder, tmp_path / "imported")
    model = load_model(tmp_path / "imported")
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.copy_(parameter.to(dtype))
        assert_equal_logits(other(random_ids()).logits, model(random_ids()))
    (folder / "model-1.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"model-1\.safetensors, a file that .* names, is missing"):
        import_model(folder, tmp_path / "again")


def test_names_of_base_models_and_old_buffers_are_accepted(
    save_model: Callable[..., tuple[Any, Path]], load_model: Callable[[Path], TransformerLM], tmp_path: Path
) -> None:
    """The published GPT-2 has names without "transformer." and the causal masks."""
    other, folder = save_model("gpt2")
    file = folder / "model.safetensors"
    state = safetensors.torch.load_file(file)
    old = {name.removeprefix("transformer."): tensor for name, tensor in state.items()}
    old["h.0.attn.bias"] = torch.ones(1, 1, 96, 96)
    safetensors.torch.save_file(old, file)
    import_model(folder, tmp_path / "imported")
    with torch.no_grad():
        assert_equal_logits(other(random_ids()).logits, load_model(tmp_path / "imported")(random_ids()))


@pytest.mark.parametrize(
    ("name", "change", "problem"),
    [
        ("llama2", {"model_type": "bert"}, "model_type is 'bert', an architecture"),
        ("llama2", {"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ("smollm", {"rope_interleaved": True}, "rope_interleaved is True"),
        ("llama2", {"attention_bias": True}, "attention_bias is true and mlp_bias false"),
        ("llama2", {"mlp_bias": True}, "mlp_bias is true and attention_bias false"),
        ("llama2", {"quantization_config": {"bits": 4}}, "quantization_config is"),
        ("llama2", {"rope_parameters": {"rope_type": "su"}}, "rope_parameters.rope_type is 'su'"),
        ("llama2", {"rope_parameters": {"rope_type": "linear"}}, "of type 'linear' lacks 'factor'"),
        ("llama2", {"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5"),
        ("llama2", {"hidden_size": "wide"}, "a size is not a positive number"),
        ("qwen3", {"attention_bias": True}, "attention_bias is True"),
        (
            "qwen2",
            {"layer_types": ["full_attention", "sliding_attention"]},
            "layer_types is .*: only some layers have a sliding window",
        ),
        (
            "qwen2",
            {"layer_types": None, "use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1},
            "max_window_layers is 1: only some layers",
        ),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx is True"),
        ("gpt2", {"activation_function": "silu"}, "activation_function is 'silu'"),
    ],
)
def test_an_option_that_cannot_be_expressed_is_named(
    tmp_path: Path, name: str, change: dict[str, Any], problem: str
) -> None:
    family, values = MODELS[name]
    (tmp_path / "config.json").write_text(json.dumps({"model_type": family.lower(), **values, **change}))
    with pytest.raises(ModelConfigError, match=problem):
        import_model(tmp_path, tmp_path / "imported")


def test_wrong_tensors_are_refused_before_anything_is_written(
    save_model: Callable[..., tuple[Any, Path]], tmp_path: Path
) -> None:
    _, folder = save_model("llama2")
    file, output = folder / "model.safetensors", tmp_path / "imported"
    state = safetensors.torch.load_file(file)
    name = "model.layers.1.mlp.up_proj.weight"

    def check(changed: dict[str, torch.Tensor], problem: str) -> None:
        safetensors.torch.save_file(changed, file)
        with pytest.raises(CheckpointError, match=problem):
            import_model(folder, output)
        assert not output.exists()

    check(
        {**state, name: state[name][:-1].clone()},
        r"up_proj.weight has the shape \(47, 32\), but .* \(48, 32\)",
    )
    check(
        {own: tensor for own, tensor in state.items() if own != name},
        r"has no tensor layers\.1\.mlp\.up_proj",
    )
    check(
        {**state, "model.layers.0.moe.gate": torch.ones(1)}, r"no place for the tensor layers\.0\.moe\.gate"
    )
    file.write_bytes(file.read_bytes()[:-10])
    with pytest.raises(
        CheckpointError, match=r"model\.safetensors is not a safetensors file, or it is damaged"
    ):
        import_model(folder, output)
    file.rename(folder / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"model\.safetensors is missing") as caught:
        import_model(folder, output)
    assert "save_pretrained" in (caught.value.hint or "")


def test_a_model_without_byte_level_tokenizer_is_imported_without_one(
    save_model: Callable[..., tuple[Any, Path]], corpus: Corpus, tmp_path: Path
) -> None:
    _, folder = save_model("llama2")
    (folder / "tokenizer.json").write_text('{"model": {"type": "Unigram", "vocab": 5}}')
    (note,) = import_model(folder, tmp_path / "imported").notes
    assert note.startswith("the tokenizer was left out: ")
    with pytest.raises(CheckpointError, match="imported has no tokenizer") as caught:
        load_trained(tmp_path / "imported", "cpu")
    assert "--tokenizer" in (caught.value.hint or "")
    explicit = import_model(folder, tmp_path / "explicit", tokenizer=corpus.folder / "tokenizer.json")
    assert explicit.tokenizer is not None
    assert load_trained(tmp_path / "explicit", "cpu").tokenizer.fingerprint == corpus.tokenizer.fingerprint


def test_a_tokenizer_with_more_ids_than_the_model_is_refused(corpus: Corpus, tmp_path: Path) -> None:
    values = {**MODELS["llama2"][1], "vocab_size": 299, "model_type": "llama"}
    source = tmp_path / "source"
    source.mkdir()
    (source / "config.json").write_text(json.dumps(values))
    safetensors.torch.save_file({}, source / "model.safetensors")
    with pytest.raises(TokenizerError, match="the tokenizer has 300 ids, but the model has only 299"):
        import_model(source, tmp_path / "out", tokenizer=corpus.folder / "tokenizer.json")


def add_tokens(folder: Path, **fields: Any) -> None:
    """Add special tokens up to <320>, the first one that the models have no embedding for."""
    document = json.loads((folder / "tokenizer.json").read_text())
    (first,) = document["added_tokens"]
    document["added_tokens"] += [{**first, "id": i, "content": f"<{i}>"} for i in range(300, 321)]
    (folder / "tokenizer.json").write_text(json.dumps(document | fields))


def test_special_tokens_that_the_model_lacks_are_left_out(
    save_model: Callable[..., tuple[Any, Path]], tmp_path: Path
) -> None:
    _, folder = save_model("gpt2")
    add_tokens(folder)
    config = {"pad_token": "<320>", "eos_token": "<319>", "extra_special_tokens": ["<320>", "<300>"]}
    decoder = {str(i): {"content": f"<{i}>"} for i in (319, 320)}
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "added_tokens_decoder": decoder}))
    imported = import_model(folder, tmp_path / "imported")
    assert imported.notes == [
        "the model has only 320 ids: the tokenizer was imported without <320> (320), which the model cannot read"
    ]
    tokenizer = load_trained(tmp_path / "imported", "cpu").tokenizer
    assert tokenizer.n_vocab == 320
    assert tokenizer.encode("<319><320>") == [319, *tokenizer.encode("<320>")]
    assert tokenizer.decode(tokenizer.encode("<320>")) == "<320>"
    assert tokenizer.metadata is not None
    assert tokenizer.metadata.config == {
        "eos_token": "<319>",
        "extra_special_tokens": ["<300>"],
        "added_tokens_decoder": {"319": {"content": "<319>"}},
    }


def test_a_tokenizer_that_cannot_do_without_a_token_is_left_out(
    save_model: Callable[..., tuple[Any, Path]], tmp_path: Path
) -> None:
    _, folder = save_model("gpt2")
    add_tokens(
        folder, post_processor={"type": "BertProcessing", "sep": ["<320>", 320], "cls": ["<320>", 320]}
    )
    (note,) = import_model(folder, tmp_path / "added").notes
    assert note.startswith("the tokenizer was left out: the post-processor adds '<320>'")
    spec = bytemill.Tokenizer.load(folder).to_spec()
    ordinary = replace(spec, vocab={**spec.vocab, 321: b"not merged"}, metadata=None)
    bytemill.Tokenizer.from_spec(ordinary).save(folder / "tokenizer.json")
    (note,) = import_model(folder, tmp_path / "ordinary").notes
    assert note.startswith(
        "the tokenizer was left out: it has 322 ids, but the model has only 320; add --tok"
    )


def test_an_output_folder_in_use_is_refused(
    save_model: Callable[..., tuple[Any, Path]], tmp_path: Path
) -> None:
    _, folder = save_model("llama2")
    with pytest.raises(OutputError, match="is an input"):
        import_model(folder, folder, overwrite=True)
    import_model(folder, tmp_path / "imported")
    with pytest.raises(OutputError, match="imported is not empty"):
        import_model(folder, tmp_path / "imported")
    import_model(folder, tmp_path / "imported", overwrite=True)
    with lock_output(tmp_path / "imported"), pytest.raises(OutputError, match="another process is writing"):
        import_model(folder, tmp_path / "imported", overwrite=True)
