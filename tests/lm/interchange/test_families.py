"""Families of models: each computes what transformers computes, and is exported as it was."""

from __future__ import annotations

import contextlib
import io
from typing import TYPE_CHECKING, Any

import pytest
import safetensors.torch
import torch

from bytemill.errors import ModelConfigError
from bytemill.lm import ModelConfig
from bytemill.lm.generation import generate
from bytemill.lm.interchange.architectures import check_supported
from bytemill.lm.interchange.export_model import export_model
from bytemill.lm.interchange.families.registry import FAMILIES
from bytemill.lm.interchange.huggingface import read_config
from bytemill.lm.interchange.import_model import import_model
from tests.lm.conftest import sizes
from tests.lm.interchange.conftest import VOCABULARY, assert_equal_logits, random_ids

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bytemill.lm import TransformerLM
    from tests.lm.conftest import Corpus

N_NEW = 64
_SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY, "max_position_embeddings": 96, "hidden_size": 32, "intermediate_size": 48,
    "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "bos_token_id": None,
    "eos_token_id": None, "pad_token_id": None,
}  # fmt: skip
_NEOX = {key: value for key, value in _SIZES.items() if key != "num_key_value_heads"}
_YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
_LONG = {
    "rope_type": "longrope", "short_factor": [1.0, 1.1, 1.3, 1.7], "long_factor": [1.0, 2.0, 4.0, 8.0],
    "original_max_position_embeddings": 96,
}  # fmt: skip
_EXPERTS = {"num_local_experts": 5, "num_experts_per_tok": 2}
_OSS = {**_SIZES, **_EXPERTS, "head_dim": 8, "sliding_window": 9}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "gemma2": ("Gemma2", {**_SIZES, "head_dim": 10, "query_pre_attn_scalar": 12, "sliding_window": 9}),
    "gemma3": (
        "Gemma3Text",
        {**_SIZES, "head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 9, "layer_types":
         ["sliding_attention", "sliding_attention", "full_attention"],
         "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
    ),
    "phi3": ("Phi3", {**_SIZES, "sliding_window": 9}),
    "phi4-mini": ("Phi3", {**_SIZES, "partial_rotary_factor": 0.5, "tie_word_embeddings": True}),
    "phi3-longrope": (
        "Phi3",
        {**_SIZES, "rope_scaling": _LONG, "max_position_embeddings": 400, "original_max_position_embeddings": 96},
    ),
    "olmo2": ("Olmo2", _SIZES),
    "olmo3": (
        "Olmo3",
        {**_SIZES, "num_hidden_layers": 5, "sliding_window": 9, "rope_scaling": _YARN, "rope_theta": 5e5},
    ),
    "pythia": ("GPTNeoX", {**_NEOX, "rotary_pct": 0.25}),
    "gpt-neox-sequential": (
        "GPTNeoX",
        {**_NEOX, "rotary_pct": 1.0, "use_parallel_residual": False, "hidden_act": "gelu_new"},
    ),
    "smollm3": ("SmolLM3", {**_SIZES, "num_hidden_layers": 5}),
    "mixtral": ("Mixtral", {**_SIZES, **_EXPERTS}),
    "qwen3-moe": (
        "Qwen3Moe",
        {**_SIZES, "num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "head_dim": 16,
         "norm_topk_prob": True},
    ),
    "gpt-oss": ("GptOss", {**_OSS, "num_hidden_layers": 4, "rope_scaling": {**_YARN, "truncate": False}}),
    "llama-yarn": ("Llama", {**_SIZES, "rope_scaling": {**_YARN, "beta_fast": 16.0, "attention_factor": 1.5}}),
    "llama-dynamic": ("Llama", {**_SIZES, "rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}),
}  # fmt: skip
"""Name -> family and configuration."""
FAST = ("gemma2", "pythia", "gpt-oss")


@pytest.fixture
def save_random(transformers: Any, corpus: Corpus, tmp_path: Path) -> Callable[[str], tuple[Any, Path]]:
    """Save a model of transformers with random weights that bfloat16 holds; return it and its folder."""

    def save(name: str) -> tuple[Any, Path]:
        family, values = CASES[name]
        config = getattr(transformers, f"{family}Config")(**values)
        model = getattr(transformers, f"{family.removesuffix('Text')}ForCausalLM")(config).eval()
        generator = torch.Generator().manual_seed(1)
        for parameter in model.parameters():
            parameter.data += 0.15 * torch.randn(parameter.shape, generator=generator)
            parameter.data = parameter.data.bfloat16().float()
        folder = tmp_path / name
        with contextlib.redirect_stderr(io.StringIO()):  # a progress bar
            model.save_pretrained(folder)
        corpus.tokenizer.save(folder / "tokenizer.json")
        return model, folder

    return save


@pytest.mark.parametrize(
    "name", [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in CASES]
)
def test_a_family_computes_what_it_does_in_transformers_and_is_exported_as_it_was(
    transformers: Any,
    save_random: Callable[[str], tuple[Any, Path]],
    load_model: Callable[[Path], TransformerLM],
    tmp_path: Path,
    name: str,
    record_property: Callable[[str, object], None],
) -> None:
    other, folder = save_random(name)
    imported = import_model(folder, tmp_path / "imported")
    model = load_model(tmp_path / "imported")
    assert imported.n_parameters == model.n_parameters() == sum(p.numel() for p in other.parameters())
    with torch.no_grad():
        expected = other(random_ids()).logits
        assert_equal_logits(expected, model(random_ids()))
        difference = (expected - model(random_ids())).abs().max().item()
        record_property("largest difference", f"{name} {difference:.1e}")
        prompt = random_ids(16, 1)
        options = {"max_new_tokens": N_NEW, "do_sample": False, "pad_token_id": 0}
        tokens = other.generate(prompt, attention_mask=torch.ones_like(prompt), **options)
    (actual,) = generate(model, prompt[0].tolist(), N_NEW, temperature=0)
    assert actual == tokens[0, 16:].tolist()
    exported = export_model(tmp_path / "imported", tmp_path / "exported")
    assert exported.architecture == type(other).__name__
    before, after = (
        safetensors.torch.load_file(path / "model.safetensors") for path in (folder, tmp_path / "exported")
    )
    assert before.keys() == after.keys()
    for tensor in before:
        torch.testing.assert_close(after[tensor], before[tensor], rtol=0, atol=0)
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "exported").eval()
    with torch.no_grad():
        torch.testing.assert_close(again(random_ids()).logits, expected, rtol=0, atol=1e-6)


SHAPE = sizes(320, 96, 32, 3, 4, 48)
_OLMO = {"norm_position": "output", "attention": {"qk_norm": True, "qk_norm_over": "all"}}
_NEOX_OPTIONS: dict[str, Any] = {"norm": "layer", "bias": True, "feed_forward": "gelu_exact"}
_OSS_OPTIONS: dict[str, Any] = {
    "bias": True, "attention": {"sinks": True}, "feed_forward": "moe", "moe": {"expert": "clamped_swiglu"},
    "mixer": ["window:9", "full"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("options", "architecture"),
    [
        ({}, "llama"),
        ({"rope": {"scaling": "yarn", "factor": 4.0, "beta_fast": 16.0}}, "llama"),
        ({"rope": {"fraction": 0.5}}, "phi3"),
        ({"mixer": ["full", "full:nope"]}, "smollm3"),
        ({"feed_forward": "moe"}, "mixtral"),
        ({"feed_forward": "moe", "moe": {"normalized": False}, "attention": {"qk_norm": True}}, "qwen3_moe"),
        (_OSS_OPTIONS, "gpt_oss"),
        (_OLMO, "olmo2"),
        ({**_OLMO, "mixer": ["window:9", "full"]}, "olmo3"),
        ({**_NEOX_OPTIONS, "residual": "parallel"}, "gpt_neox"),
    ],
)
def test_a_model_is_exported_as_the_first_type_that_has_its_options(
    options: dict[str, Any], architecture: str
) -> None:
    assert check_supported(ModelConfig(**SHAPE, **options)) == architecture


@pytest.mark.parametrize(
    ("options", "lacking"),
    [
        (
            {**_OLMO, "mixer": ["window:9", "window:5", "full"]},
            r"olmo3, lacks mixer \('window:9', 'window:5', 'full'\)",
        ),
        ({"feed_forward": "moe", "moe": {"shared": 1}}, r"mixtral, lacks moe\.shared 1"),
        ({"feed_forward": "moe", "moe": {"balance": "bias"}}, r"mixtral, lacks moe\.balance 'bias'"),
        ({"attention": {"sinks": True}}, r"llama, lacks attention\.sinks True"),
        (
            {"rope": {"scaling": "dynamic", "factor": 2.0, "original_context": 32}},
            r"llama, lacks rope\.scaling 'dynamic' with context_length above rope\.original_context",
        ),
    ],
)
def test_what_no_type_has_is_named(options: dict[str, Any], lacking: str) -> None:
    with pytest.raises(ModelConfigError, match=lacking):
        check_supported(ModelConfig(**SHAPE, **options))
    with pytest.raises(ModelConfigError, match=r"no architecture of llama\.cpp has the options"):
        check_supported(ModelConfig(**SHAPE, **options), gguf=True)


@pytest.mark.parametrize(
    ("model_type", "change", "problem"),
    [
        (
            "gemma2",
            {"hidden_activation": "gelu"},
            r"hidden_activation is 'gelu', which bytemill does not have",
        ),
        ("gemma3_text", {"use_bidirectional_attention": True}, r"use_bidirectional_attention is True"),
        ("qwen3_moe", {"mlp_only_layers": [0]}, r"mlp_only_layers is \[0\]"),
        ("gpt_oss", {"swiglu_limit": 5.0}, r"swiglu_limit is 5\.0"),
        ("olmo3", {"layer_types": ["linear_attention"]}, r"layer_types is \['linear_attention'\]"),
        (
            "olmo2",
            {"rope_scaling": {"rope_type": "yarn", "factor": 2.0, "mscale": 2.0}},
            r"rope_scaling\.mscale is 2\.0",
        ),
        (
            "phi3",
            {"rope_scaling": {"rope_type": "longrope"}},
            r"rope_scaling of type 'longrope' lacks 'short_factor'",
        ),
        ("smollm3", {"use_sliding_window": True}, r"use_sliding_window is True"),
        ("mixtral", {"hidden_size": None}, r"hidden_size is missing"),
    ],
)
def test_what_cannot_be_imported_is_named(model_type: str, change: dict[str, Any], problem: str) -> None:
    with pytest.raises(ModelConfigError, match=f"here: {problem}"):
        read_config({"model_type": model_type, **change}, "here")


@pytest.mark.parametrize("model_type", FAMILIES)
def test_the_defaults_of_a_type_are_those_of_transformers(transformers: Any, model_type: str) -> None:
    family = FAMILIES[model_type]
    name = family.architecture.removesuffix("ForCausalLM")
    kind = getattr(transformers, f"{name}TextConfig" if name == "Gemma3" else f"{name}Config")
    theirs = {key: value for key, value in kind().to_dict().items() if key != "pad_token_id"}
    if model_type == "gpt_oss":  # which has a scaling of its own where the file has none
        theirs["rope_parameters"] = {"rope_type": "default", "rope_theta": 150_000.0}
    own = read_config({"model_type": model_type}, "here")[1].to_dict()
    assert own == read_config({**theirs, "model_type": model_type}, "here")[1].to_dict()
