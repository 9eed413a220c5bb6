"""transformers loads an exported model and computes the same logits; other models are refused by option."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import safetensors.torch
import torch

import bytemill
from bytemill._core import NAMED_PATTERNS
from bytemill.errors import ModelConfigError, NotFiniteError, OutputError, TokenizerError
from bytemill.formats.gguf_metadata import read_metadata
from bytemill.formats.spec import TokenizerMetadata
from bytemill.lm import ModelConfig, TransformerLM
from bytemill.lm.interchange.architectures import (
    Ends,
    check_supported,
    keeps_ids,
    read_model,
    write_tokenizer,
)
from bytemill.lm.interchange.export_model import export_model
from bytemill.lm.interchange.huggingface import FAMILIES
from bytemill.lm.interchange.import_model import import_model
from bytemill.lm.training.config import resolve
from bytemill.lm.training.saved_model import write_model_folder
from bytemill.lm.training.trainer import train
from bytemill.system.locks import lock_output
from tests.lm.conftest import TINY, sizes
from tests.lm.interchange.conftest import assert_equal_logits, qwen_tokenizer, random_ids

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.lm.conftest import Corpus

SMALL: dict[str, Any] = sizes(320, 96, 32, 2, 4, 40)
GPT2: dict[str, Any] = {**SMALL, "norm": "layer", "position": "learned", "feed_forward": "gelu"}


def save(folder: Path, tokenizer: bytemill.Tokenizer | None, config: dict[str, Any]) -> TransformerLM:
    model = TransformerLM(ModelConfig(**config), seed=4).eval()
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        parameter.data += 0.15 * torch.randn(parameter.shape, generator=generator)
    weights = dict(model.named_parameters())
    write_model_folder(folder, model.config, weights, tokenizer, source="the test")
    return model


@pytest.mark.parametrize(
    ("architecture", "config"),
    [
        # What the models of `test_import_model` do not have.
        ("GPT2LMHeadModel", {**GPT2, "norm_bias": False, "feed_forward": "relu2"}),
        ("GPT2LMHeadModel", {**GPT2, "norm_eps": 1e-3, "attention": {"qkv_bias": True}}),
        ("LlamaForCausalLM", {**SMALL, "attention": {"qkv_bias": True, "num_kv_heads": 2}}),
        ("MistralForCausalLM", {**SMALL, "attention": {"sliding_window": 5}, "rope": {"theta": 500.0}}),
    ],
)
def test_transformers_loads_the_exported_model(
    transformers: Any, corpus: Corpus, tmp_path: Path, architecture: str, config: dict[str, Any]
) -> None:
    model = save(tmp_path / "model", corpus.tokenizer, config)
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


TEXT = "It's 12345 naïve e\u0301 birds' I'LL \n\n  see\tthe 犬 they’d 3.14 — snake_case <|endoftext|> x"
PATTERNS = {
    **NAMED_PATTERNS,
    "digits": r"\p{N}|\p{L}+|[^\p{L}\p{N}\s]+|\s+",
    "custom": r"[a-z]+|[^a-z]+",
    "none": None,
}


@pytest.mark.filterwarnings("ignore::bytemill.errors.PreTokenizerWarning")  # of what an export refuses
@pytest.mark.parametrize("model_type", FAMILIES)
def test_transformers_gives_the_ids_of_the_exported_tokenizer(
    transformers: Any, corpus: Corpus, tmp_path: Path, model_type: str
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    specs = [replace(corpus.tokenizer.to_spec(), pattern=pattern) for pattern in PATTERNS.values()]
    specs += [qwen_tokenizer(corpus).to_spec(), replace(specs[0], normalizer=(("NFC",),))]
    # As in folders of other programs, with the class of another pattern.
    config = {"tokenizer_class": "GPT2Tokenizer", "eos_token": "<|endoftext|>"}
    specs.append(replace(specs[0], metadata=TokenizerMetadata(config=config)))
    n_kept = n_equal = 0
    for spec in specs:
        tokenizer = bytemill.Tokenizer.from_spec(spec)
        write_tokenizer(tokenizer, Ends(eos="<|endoftext|>"), tmp_path, model_type)
        theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
        is_equal = theirs(TEXT).input_ids == tokenizer.encode(TEXT)
        assert is_equal or not keeps_ids(model_type, spec), spec.pattern
        assert theirs.eos_token == "<|endoftext|>"
        n_kept, n_equal = n_kept + keeps_ids(model_type, spec), n_equal + is_equal
    if model_type == "qwen2":
        assert n_kept == 1
        assert n_equal < len(specs)
    else:
        assert n_kept == len(specs)


def test_qwen_2_needs_its_own_tokenizer(transformers: Any, corpus: Corpus, tmp_path: Path) -> None:
    config = {**SMALL, "attention": {"qkv_bias": True, "sliding_window": 5}}
    model = save(tmp_path / "model", qwen_tokenizer(corpus), config)
    assert export_model(tmp_path / "model", tmp_path / "exported").architecture == "Qwen2ForCausalLM"
    other = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "exported").eval()
    with torch.no_grad():
        assert_equal_logits(model(random_ids()), other(random_ids()).logits)
    save(tmp_path / "model", corpus.tokenizer, config)
    with pytest.raises(
        ModelConfigError, match=r"only the architecture qwen2 .* pattern and the norm"
    ) as caught:
        export_model(tmp_path / "model", tmp_path / "refused")
    assert "--no-tokenizer" in (caught.value.hint or "")
    assert not (tmp_path / "refused").exists()
    exported = export_model(tmp_path / "model", tmp_path / "alone", with_tokenizer=False)
    assert (exported.architecture, exported.has_tokenizer) == ("Qwen2ForCausalLM", False)
    assert not (tmp_path / "alone/tokenizer.json").exists()


@pytest.fixture(scope="module")
def custom_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on documents with the separator <END>."""
    folder = tmp_path_factory.mktemp("custom")
    texts = ["the cat sat on the mat. " * 9, "the dog ate the rat. " * 9]
    tokenizer = bytemill.train_from_iterator(texts, 270, ["<START>", "<END>"])
    tokenizer.save(folder / "tokenizer.json")
    documents = bytemill.Corpus.from_texts(texts)
    bytemill.encode_corpus(tokenizer, documents, folder / "shards", documents="<END>")
    values = {
        **TINY,
        "training.steps": 1,
        "data.tokenizer": str(folder / "tokenizer.json"),
        "data.train": str(folder / "shards"),
        "run.folder": str(folder / "run"),
    }
    return train(resolve([("the test", values)], n_vocab=tokenizer.n_vocab)).path


def test_the_separator_of_the_training_data_ends_a_text(
    custom_run: Path, transformers: Any, tmp_path: Path
) -> None:
    shutil.rmtree(custom_run.parent / "shards", ignore_errors=True)  # a model may be exported elsewhere
    assert export_model(custom_run, tmp_path / "hf").eos_token == "<END>"
    tokenizer = bytemill.Tokenizer.load(custom_run / "tokenizer.json")
    end = tokenizer.special_tokens["<END>"]
    for name in ("config.json", "generation_config.json"):
        assert json.loads((tmp_path / "hf" / name).read_text())["eos_token_id"] == end
    assert transformers.AutoTokenizer.from_pretrained(tmp_path / "hf").eos_token_id == end
    export_model(custom_run, tmp_path / "model.gguf")
    with (tmp_path / "model.gguf").open("rb") as file:
        size = (tmp_path / "model.gguf").stat().st_size
        values = read_metadata(file, size, "model.gguf", frozenset({"tokenizer.ggml.eos_token_id"}))
    assert values == {"tokenizer.ggml.eos_token_id": end}
    explicit = export_model(custom_run, tmp_path / "explicit", eos_token="<START>")
    assert explicit.eos_token == "<START>"
    with pytest.raises(TokenizerError, match="'<end>' is not a special token") as caught:
        export_model(custom_run, tmp_path / "wrong", eos_token="<end>")
    assert caught.value.hint == "name one of <START>, <END>"


def test_an_imported_model_ends_with_the_token_of_its_files(
    save_model: Callable[..., tuple[Any, Path]], corpus: Corpus, tmp_path: Path
) -> None:
    _, folder = save_model("llama2")
    tokenizer = bytemill.Tokenizer(
        corpus.tokenizer.vocab, corpus.tokenizer.merges, ["<|endoftext|>", "<stop>"], pattern="gpt2"
    )
    tokenizer.save(folder)
    config = {"tokenizer_class": "LlamaTokenizer", "eos_token": {"content": "<stop>"}, "chat_template": "x"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    import_model(folder, tmp_path / "imported")
    assert export_model(tmp_path / "imported", tmp_path / "exported").eos_token == "<stop>"
    written = json.loads((tmp_path / "exported/tokenizer_config.json").read_text())
    assert written == {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<stop>",
        "chat_template": "x",
    }


def test_two_exports_do_not_write_to_one_folder(corpus: Corpus, tmp_path: Path) -> None:
    save(tmp_path / "model", corpus.tokenizer, SMALL)
    (tmp_path / "out").mkdir()
    for output in (tmp_path / "out", tmp_path / "out.gguf"):
        with (
            lock_output(output),
            pytest.raises(OutputError, match=f"another process is writing .*{output.name}"),
        ):
            export_model(tmp_path / "model", output, overwrite=True)
        export_model(tmp_path / "model", output)
    assert not list(tmp_path.rglob("*.lock"))


def test_what_another_process_has_written_meanwhile_is_kept(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path / "model", corpus.tokenizer, SMALL)

    def read_slowly(*arguments: Any) -> Any:
        (tmp_path / "out").mkdir()
        (tmp_path / "out/config.json").write_text("of the other process")
        return read_model(*arguments)

    monkeypatch.setattr("bytemill.lm.interchange.export_model.read_model", read_slowly)
    with pytest.raises(OutputError, match="out is not empty"):
        export_model(tmp_path / "model", tmp_path / "out")
    assert (tmp_path / "out/config.json").read_text() == "of the other process"


@pytest.mark.parametrize("name", ["out", "out.gguf"])
def test_progress_ends_with_all_bytes_of_the_weights(corpus: Corpus, tmp_path: Path, name: str) -> None:
    save(tmp_path / "model", corpus.tokenizer, SMALL)
    calls: list[tuple[int, int]] = []
    exported = export_model(tmp_path / "model", tmp_path / name, progress=lambda *call: calls.append(call))
    assert calls == sorted(calls)
    done, total = calls[-1]
    assert done == total <= exported.files[0].stat().st_size
    assert len(calls) > 10


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
        ({"rope": {"fraction": 0.5}, "attention": {"qk_norm": True}}, "qwen3, lacks rope.fraction 0.5"),
        ({"attention": {"qkv_bias": True, "qk_norm": True}}, "lacks attention.(qk_norm True|qkv_bias True)"),
        ({"feed_forward": "relu2"}, "llama, lacks feed_forward 'relu2'"),
        ({**GPT2, "attention": {"num_kv_heads": 2}}, "gpt2, lacks attention.num_kv_heads 2 with num_heads 4"),
        ({**GPT2, "attention": {"head_dim": 16}}, "gpt2, lacks attention.head_dim 16"),
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
    save(tmp_path / "model", corpus.tokenizer, SMALL)
    with pytest.raises(OutputError, match="model is an input"):
        export_model(tmp_path / "model", tmp_path / "model", overwrite=True)
    export_model(tmp_path / "model", tmp_path / "out", max_shard_bytes=20_000)
    with pytest.raises(OutputError, match="out is not empty"):
        export_model(tmp_path / "model", tmp_path / "out")
    export_model(tmp_path / "model", tmp_path / "out", overwrite=True)
    assert [path.name for path in (tmp_path / "out").glob("model*")] == ["model.safetensors"]
