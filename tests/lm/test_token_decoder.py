"""The core's decoder: the logits and cache of the model's own forward pass, for every option of the shape."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from bytemill._core import TokenDecoder
from bytemill.lm import KVCache, ModelConfig, TransformerLM
from bytemill.lm.generation import core_decoder
from bytemill.lm.generation.core_decoder import CoreDecoder
from bytemill.lm.generation.decoding import generate

SHAPES: dict[str, dict[str, Any]] = {
    "default": {},
    "gpt2": {
        "norm": "layer",
        "position": "learned",
        "feed_forward": "gelu",
        "bias": True,
        "tied_embeddings": True,
    },
    "layer norm without bias": {"norm": "layer", "norm_bias": False, "feed_forward": "gelu_exact"},
    "post-norm": {"norm_position": "post", "position": "sinusoidal", "feed_forward": "relu"},
    "grouped heads": {"attention": {"num_kv_heads": 2, "qk_norm": True, "qkv_bias": True, "head_dim": 10}},
    "one kv head": {"feed_forward": "relu2", "position": "none", "attention": {"num_kv_heads": 1}},
    "scaled rotation": {"rope": {"scaling": "llama3", "factor": 4.0, "original_context": 16}},
    "partial rotation": {
        "logit_soft_cap": 3.0,
        "bias": True,
        "attention": {"head_dim": 8},
        "rope": {"fraction": 0.5},
    },
    "window": {"attention": {"sliding_window": 5}},
    "wide window": {"attention": {"sliding_window": 24, "num_kv_heads": 2}},
}


def model_of(shape: dict[str, Any]) -> TransformerLM:
    sizes: dict[str, Any] = {"vocab_size": 61, "context_length": 24, "d_model": 40, "num_layers": 2}
    model = TransformerLM(ModelConfig(**{**sizes, "num_heads": 4, "d_ff": 70, **shape}))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():  # biases of a new model are 0, and norms 1
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    return model.eval()


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@torch.inference_mode()
def test_logits_and_cache_equal_the_forward_pass(shape: dict[str, Any]):
    model = model_of(shape)
    ids = np.random.default_rng(2).integers(0, 61, 24).tolist()
    own, other = KVCache(model.config, 1), KVCache(model.config, 1)
    for cache in (own, other):
        model(torch.tensor([ids[:3]]), cache)
    decoder = CoreDecoder(model, own)
    for position, token in enumerate(ids[3:], start=3):
        expected = model(torch.tensor([[token]]), other)[0, -1]
        logits = decoder.logits_after(token)
        assert own.n_positions == position + 1
        assert (logits - expected).abs().max() < 1e-5 * expected.abs().max()
    n_kept = own.n_positions - own.n_dropped
    for mine, its in zip(own.layers, other.layers, strict=True):
        assert torch.allclose(mine.keys[:, :, :n_kept], its.keys[:, :, :n_kept], atol=1e-5)
        assert torch.allclose(mine.values[:, :, :n_kept], its.values[:, :, :n_kept], atol=1e-5)
    with pytest.raises(ValueError, match="25 positions exceed the context length of 24"):
        decoder.logits_after(0)


@pytest.mark.parametrize("name", ["gpt2", "grouped heads", "window"])
def test_greedy_continuations_beyond_the_context_are_those_of_the_textbook(name: str):
    model = model_of(SHAPES[name])
    expected = generate(model, [1, 2, 3], 64, temperature=0)
    model.use_kernels("auto")
    assert model.kernels.core_decoding
    assert generate(model, [1, 2, 3], 64, temperature=0) == expected


def test_one_thread_computes_the_same_bits_as_several(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    model = model_of(SHAPES["grouped heads"])
    ids = list(range(1, 20))
    results: list[list[torch.Tensor]] = []
    for is_shared in (False, True):
        monkeypatch.setattr(core_decoder, "are_cores_shared", lambda is_shared=is_shared: is_shared)
        decoder = CoreDecoder(model, KVCache(model.config, 1))
        results.append([decoder.logits_after(token) for token in ids])
    assert all(map(torch.equal, *results))


def test_changed_weights_are_seen():
    model = model_of({})
    cache = KVCache(model.config, 1)
    decoder = CoreDecoder(model, cache)
    before = decoder.logits_after(1)
    with torch.no_grad():
        model.lm_head.weight.mul_(2)
    cache.reset()
    assert torch.equal(decoder.logits_after(1), 2 * before)


def test_only_one_sequence_in_float32_is_supported():
    model = model_of({})
    assert CoreDecoder.supports(model, KVCache(model.config, 1))
    assert not CoreDecoder.supports(model, KVCache(model.config, 2))
    assert not CoreDecoder.supports(model, KVCache(model.config, 1, n_padding=torch.tensor([1])))
    assert not CoreDecoder.supports(model.bfloat16(), KVCache(model.config, 1, dtype=torch.bfloat16))
    only_itself = model_of({"attention": {"sliding_window": 1}})
    assert not CoreDecoder.supports(only_itself, KVCache(only_itself.config, 1))


def test_wrong_sizes_and_ids_are_errors():
    with pytest.raises(ValueError, match="is missing"):
        TokenDecoder({}, {}, [], [], 1)
    model = model_of({})
    decoder = CoreDecoder(model, KVCache(model.config, 1))
    with pytest.raises(ValueError, match="61 is beyond a table of 61 rows"):
        decoder.logits_after(61)
    model.config = model.config.replace(vocab_size=60)
    with pytest.raises(ValueError, match="contradict each other"):
        CoreDecoder(model, KVCache(model.config, 1)).logits_after(1)
