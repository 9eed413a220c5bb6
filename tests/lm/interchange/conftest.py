"""Small random models of transformers, saved with the tokenizer of the corpus."""

from __future__ import annotations

import contextlib
import io
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch

from bytemill import Tokenizer
from bytemill._core import NAMED_PATTERNS
from bytemill.lm.training.saved_model import load_trained

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bytemill.lm import TransformerLM
    from tests.lm.conftest import Corpus

VOCABULARY = 320
"""More than the ids of the tokenizer: models pad their vocabulary."""
_LLAMA: dict[str, Any] = {
    "vocab_size": VOCABULARY, "max_position_embeddings": 96, "hidden_size": 32, "intermediate_size": 48,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "bos_token_id": None,
    "eos_token_id": None,
}  # fmt: skip
_LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}  # fmt: skip
_GPT2 = {"vocab_size": VOCABULARY, "n_positions": 96, "n_embd": 32, "n_layer": 2, "n_head": 4}
_GPT2 |= {"bos_token_id": None, "eos_token_id": None}
_WINDOW = {"use_sliding_window": True, "sliding_window": 7, "max_window_layers": 0}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("GPT2", _GPT2),
    "gpt2-untied": (
        "GPT2",
        {**_GPT2, "activation_function": "gelu", "tie_word_embeddings": False, "n_inner": 40},
    ),
    "llama2": ("Llama", {**_LLAMA, "num_key_value_heads": 4}),
    "llama3": ("Llama", {**_LLAMA, "rope_theta": 500_000.0, "rope_scaling": _LLAMA3}),
    "smollm": ("Llama", {**_LLAMA, "tie_word_embeddings": True, "num_key_value_heads": 1}),
    "llama-biases": ("Llama", {**_LLAMA, "attention_bias": True, "mlp_bias": True, "head_dim": 12}),
    "llama-linear": ("Llama", {**_LLAMA, "rope_scaling": {"rope_type": "linear", "factor": 4.0}}),
    "mistral": ("Mistral", {**_LLAMA, "sliding_window": 9}),
    "qwen2": ("Qwen2", _LLAMA),
    "qwen2-window": ("Qwen2", {**_LLAMA, **_WINDOW}),
    "qwen3": ("Qwen3", {**_LLAMA, "head_dim": 16, "tie_word_embeddings": True}),
}
"""Name -> family and configuration."""


@pytest.fixture
def save_model(transformers: Any, corpus: Corpus, tmp_path: Path) -> Callable[..., tuple[Any, Path]]:
    """Save a model of transformers with random biases and norms; return it and its folder."""

    def save(name: str, **options: Any) -> tuple[Any, Path]:
        family, values = MODELS[name]
        config = getattr(transformers, f"{family}Config")(**values)
        kind = "GPT2LMHeadModel" if family == "GPT2" else f"{family}ForCausalLM"
        model = getattr(transformers, kind)(config).eval()
        generator = torch.Generator().manual_seed(1)
        for parameter in model.parameters():
            parameter.data += 0.15 * torch.randn(parameter.shape, generator=generator)
        folder = tmp_path / name
        with contextlib.redirect_stderr(io.StringIO()):  # a progress bar
            model.save_pretrained(folder, **options)
        tokenizer = qwen_tokenizer(corpus) if family == "Qwen2" else corpus.tokenizer
        tokenizer.save(folder / "tokenizer.json")
        return model, folder

    return save


@pytest.fixture
def load_model() -> Callable[[Path], TransformerLM]:
    """Load the model of a run or of an imported model on the CPU."""
    return lambda folder: load_trained(folder, "cpu").model


def qwen_tokenizer(corpus: Corpus) -> Tokenizer:
    """The tokenizer of the corpus with the pattern and the normalizer of Qwen 2, which transformers insists on."""
    spec = corpus.tokenizer.to_spec()
    return Tokenizer.from_spec(replace(spec, pattern=NAMED_PATTERNS["qwen2"], normalizer=(("NFC",),)))


def random_ids(n_tokens: int = 80, batch: int = 2) -> torch.Tensor:
    return torch.randint(VOCABULARY, (batch, n_tokens), generator=torch.Generator().manual_seed(2))


def assert_equal_logits(expected: torch.Tensor, actual: torch.Tensor) -> None:
    """In float32: maximum difference 1e-4, KL divergence below 1e-9."""
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-4)
    p, q = expected.double().log_softmax(-1), actual.double().log_softmax(-1)
    assert float((p.exp() * (p - q)).sum(-1).max()) < 1e-9
