"""The decoders of the core and of GPUs: logits, cache and samples of the model itself, for every shape."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from bytemill._core import TokenDecoder
from bytemill.errors import NotFiniteError
from bytemill.lm import KVCache, ModelConfig, TransformerLM
from bytemill.lm.generation import core_decoder
from bytemill.lm.generation.core_decoder import CoreDecoder
from bytemill.lm.generation.decoding import generate, next_tokens
from bytemill.lm.generation.graph_decoder import GraphDecoder
from bytemill.lm.generation.sampling import SamplingParameters
from bytemill.lm.kernels import decoding as operations

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
    "windows of some layers": {"mixer": ["window:5", "full"]},
    "unrotated layers": {"mixer": ["window:7", "full:nope"]},
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


@pytest.mark.parametrize("name", [name for name in SHAPES if name != "unrotated layers"])
@torch.inference_mode()
def test_logits_and_cache_equal_the_forward_pass(name: str):
    model = model_of(SHAPES[name])
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
    for mine, its in zip(own.layers, other.layers, strict=True):
        n_kept = own.n_positions - mine.n_dropped
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
    unrotated = model_of(SHAPES["unrotated layers"])
    assert not CoreDecoder.supports(unrotated, KVCache(unrotated.config, 1))


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


GREEDY = SamplingParameters(temperature=0)


def with_decoding(model: TransformerLM) -> TransformerLM:
    return model.use_kernels(replace(model.kernels, decoding=operations))


def generators(n: int) -> list[torch.Generator]:
    return [torch.Generator().manual_seed(i) for i in range(n)]


@pytest.mark.parametrize(
    ("shape", "n_rows"), [(SHAPES["gpt2"], 1), *((each, 3) for each in SHAPES.values())], ids=str
)
@torch.inference_mode()
def test_logits_equal_the_forward_pass(shape: dict[str, Any], n_rows: int):
    model = with_decoding(model_of(shape))
    rows = np.random.default_rng(2).integers(0, 61, (n_rows, 5)).tolist()
    decoder = GraphDecoder(model, 24, torch.float32, GREEDY, generators(n_rows))
    decoder.read(rows)
    while True:
        fetched = decoder.fetch(with_logits=True)
        expected = model(torch.tensor(rows))[:, -1]
        assert fetched.logits is not None
        assert (fetched.logits - expected).abs().max() < 1e-5 * expected.abs().max()
        assert fetched.ids() == expected.argmax(-1).tolist()
        for row, chosen in zip(rows, fetched.ids(), strict=True):
            row.append(chosen)
        if len(rows[0]) > 24:
            break
        decoder.advance()


PARAMETERS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0},
    "plain": {},
    "temperature": {"temperature": 0.7},
    "top k": {"top_k": 5},
    "top p": {"top_p": 0.8, "temperature": 1.3},
    "min p": {"min_p": 0.1},
    "all": {"top_k": 9, "top_p": 0.9, "min_p": 0.05, "temperature": 0.9},
    "nearly greedy": {"temperature": 1e-30, "top_p": 0.9},
}


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("gpt2", each) for each in PARAMETERS.values()]
    + [(name, PARAMETERS["all"]) for name in ("grouped heads", "window")],
    ids=str,
)
def test_samples_beyond_the_context_are_those_of_numpy(name: str, parameters: dict[str, Any]):
    model = model_of(SHAPES[name])
    options: dict[str, Any] = {
        "seed": 3,
        "n_samples": 3,
        "excluded_ids": {0, 7, 60},
        "stop_ids": {11},
        **parameters,
    }
    expected = generate(model, [1, 2, 3], 60, **options)
    assert generate(with_decoding(model), [1, 2, 3], 60, **options) == expected
    assert generate(model, [1, 2, 3], 60, **{**options, "n_samples": 1}) == expected[:1]


def test_tokens_have_the_probabilities_of_numpy():
    model, sampling = model_of(SHAPES["gpt2"]), SamplingParameters(temperature=0.8, top_k=4)
    expected = list(next_tokens(model, [1, 2], 30, sampling, seed=1, excluded_ids={5}))
    actual = list(next_tokens(with_decoding(model), [1, 2], 30, sampling, seed=1, excluded_ids={5}))
    assert [token.window_start for token in actual] == [token.window_start for token in expected]
    for mine, its in zip(actual, expected, strict=True):
        torch.testing.assert_close(mine.logits, its.logits)
        torch.testing.assert_close(mine.log_probabilities, its.log_probabilities)
    (token,) = next_tokens(model, [1, 2], 1, seed=1, with_logits=False)
    with pytest.raises(RuntimeError, match="with_logits"):
        _ = token.logits


def test_logits_that_are_not_finite_are_an_error():
    model = with_decoding(model_of({}))
    with torch.no_grad():
        model.token_embeddings.weight[7] = torch.inf
    with pytest.raises(NotFiniteError, match=r"token_embeddings\.weight"):
        generate(model, [1, 7], 5)


def test_penalties_of_repetition_are_left_to_numpy():
    model = with_decoding(model_of({}))
    assert GraphDecoder.supports(model, GREEDY)
    assert not GraphDecoder.supports(model, SamplingParameters(repetition_penalty=1.1))
    assert not GraphDecoder.supports(model, SamplingParameters(no_repeat_ngram=2))
    assert not GraphDecoder.supports(model_of({}), GREEDY)


def test_bfloat16_is_close_to_weights_that_are_rounded_to_it():
    model = with_decoding(model_of(SHAPES["gpt2"]))
    (narrow,) = next_tokens(model, [1, 2, 3], 1, GREEDY, precision="bfloat16")
    (wide,) = next_tokens(model, [1, 2, 3], 1, GREEDY, precision="float32")
    assert 0 < (narrow.logits - wide.logits).abs().max() < 0.05 * wide.logits.abs().max()


@pytest.mark.gpu
@pytest.mark.parametrize("n_samples", [1, 3, 6, 70])
@pytest.mark.parametrize("kernels", ["auto", "torch"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_ids_on_a_gpu_are_those_of_the_textbook(shape: dict[str, Any], kernels: Any, n_samples: int):
    model = model_of(shape).cuda()
    for parameters in PARAMETERS.values():
        options: dict[str, Any] = {
            "seed": 3,
            "n_samples": n_samples,
            "excluded_ids": {0, 7, 60},
            **parameters,
        }
        expected = generate(model.use_kernels("scratch"), [1, 2, 3], 40, precision="float32", **options)
        own = generate(model.use_kernels(kernels), [1, 2, 3], 40, precision="float32", **options)
        # Where two numbers are equal but for rounding, a sample goes another way.
        assert sum(a == b for a, b in zip(own, expected, strict=True)) >= n_samples - 1 - n_samples // 10


@pytest.mark.gpu
@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("n_samples", [1, 6, 64])
@torch.inference_mode()
def test_logits_in_bfloat16_on_a_gpu_are_close(
    n_samples: int, overlap: bool, monkeypatch: pytest.MonkeyPatch
):
    from bytemill.lm.kernels.triton import decoding

    if overlap and torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("platform: needs programmatic dependent launch")
    monkeypatch.setattr(decoding, "OVERLAP", overlap)
    sizes = {"d_model": 768, "num_heads": 12, "d_ff": 3072, "vocab_size": 5000, "context_length": 600}
    model = model_of({**SHAPES["gpt2"], **sizes}).cuda()
    for parameter in model.parameters():
        parameter.mul_(0.1 if parameter.ndim > 1 else 1).copy_(parameter.bfloat16())
    model.use_kernels("auto")
    tokens = [
        token
        for token in next_tokens(model, list(range(90)), 400, GREEDY, n_samples=n_samples)
        if token.sample == n_samples - 1
    ]
    ids = torch.tensor([[*range(90), *(token.id for token in tokens[:-1])]]).cuda()
    expected = model.use_kernels("scratch")(ids)[0, 89:].cpu()
    actual = torch.stack([token.logits for token in tokens])
    assert (actual - expected).abs().max() < 0.02 * expected.abs().max()
