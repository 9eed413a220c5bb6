"""Models of each mixer: states in the cache, padding, documents, generation, counts."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from bytemill.errors import ModelConfigError, RunConfigError
from bytemill.lm import KVCache, ModelConfig, TransformerLM
from bytemill.lm.batches import DocumentMask
from bytemill.lm.generation.decoding import generate, sample_continuations
from bytemill.lm.generation.sampling import SamplingParameters
from bytemill.lm.inspection import trace
from bytemill.lm.interchange.architectures import check_supported
from bytemill.lm.mixers.state import StateCache
from bytemill.lm.planning import forward_flops, n_parameters, parameters_by_part, training_memory
from bytemill.lm.training.metrics_log import read_metrics
from bytemill.lm.training.trainer import train
from tests.lm.mixers.conftest import SHAPES, SMALL, model_of
from tests.lm.test_document_mask import losses_of_documents
from tests.lm.test_planning import kept_bytes

WITH_DOCUMENTS = [name for name in SHAPES if name != "hyena"]


@pytest.mark.parametrize("name", SHAPES)
@given(
    st.integers(0, 2**31),
    st.lists(st.integers(1, 15), min_size=1, max_size=6),
    st.integers(0, 3),
    st.booleans(),
)
@settings(max_examples=10)
@torch.no_grad()
def test_pieces_with_a_cache_give_what_the_whole_gives(
    name: str, seed: int, pieces: list[int], n_padding: int, kernels: bool
):
    model = model_of(name).use_kernels("auto" if kernels else "scratch")
    n_tokens = min(40, max(n_padding + 1, sum(pieces)))
    ids = torch.randint(50, (2, n_tokens), generator=torch.Generator().manual_seed(seed))
    padding = torch.tensor([0, n_padding]) if n_padding else None
    cache = KVCache(model.config, 2, n_padding=padding)
    whole = model(ids)
    alone = model(ids[1:, n_padding:])
    for _ in range(2):
        # The first piece has the padding, as that of a prompt does.
        bounds = [n_padding, *(n_padding + np.cumsum(pieces)).tolist()]
        parts = [
            model(ids[:, start:end], cache)
            for start, end in zip([0, *bounds[1:]], [*bounds[1:], n_tokens], strict=True)
            if start < min(end, n_tokens)
        ]
        ours = torch.cat(parts, 1)
        torch.testing.assert_close(ours[0], whole[0], rtol=1e-4, atol=2e-5)
        torch.testing.assert_close(ours[1:, n_padding:], alone, rtol=1e-4, atol=2e-5)
        cache.reset(padding)


@pytest.mark.parametrize("name", SHAPES)
def test_greedy_with_the_cache_is_greedy_without_even_beyond_the_context(name: str):
    model = model_of(name)
    with torch.no_grad():
        model.lm_head.weight.mul_(5)
    for kernels in ("scratch", "auto"):
        model.use_kernels(kernels)
        whole = generate(model, [1, 2, 3], 60, temperature=0, use_cache=False)
        assert generate(model, [1, 2, 3], 60, temperature=0) == whole


@pytest.mark.parametrize("name", SHAPES)
def test_prompts_of_unlike_length_are_continued_as_alone(name: str):
    model = model_of(name)
    generator = np.random.default_rng(0)
    prompts = [generator.integers(0, 50, length).tolist() for length in (1, 9, 3, 4, 9, 2)]
    options: dict[str, Any] = {
        "parameters": SamplingParameters(),
        "stop_ids": set(range(0, 50, 6)),  # rows end at different times, and are left out
    }
    together = sample_continuations(model, prompts, 20, seeds=range(6), **options)
    alone = [
        sample_continuations(model, [prompt], 20, seeds=[seed], **options)[0]
        for seed, prompt in enumerate(prompts)
    ]
    assert together == alone


def windows() -> torch.Tensor:
    ids = torch.randint(1, 50, (2, 40), generator=torch.Generator().manual_seed(1))
    ids[0, [3, 4, 21]] = 0
    ids[1, [0, 13, 39]] = 0
    return ids


@pytest.mark.parametrize("name", WITH_DOCUMENTS)
def test_each_document_has_the_losses_and_gradients_that_it_has_alone(name: str):
    model, ids = model_of(name), windows()
    targets = ids.roll(-1, 1)
    ours = model.losses(ids, targets, documents=DocumentMask(0, reset_positions=True))[0]
    alone = losses_of_documents(model, ids, targets)
    torch.testing.assert_close(ours, alone)
    parameters = tuple(model.parameters())
    for a, b in zip(*(torch.autograd.grad(loss, parameters) for loss in (ours, alone)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)
    assert not torch.allclose(ours, model.loss(ids, targets))
    for checkpointing in ("full", "selective"):
        model.train().checkpoint_activations(checkpointing)
        again = model.losses(ids, targets, documents=DocumentMask(0, reset_positions=True))[0]
        torch.testing.assert_close(again, ours)


def test_hyena_refuses_documents_by_name(settings: Any):
    with pytest.raises(ModelConfigError, match="mixer 'hyena' cannot keep documents apart"):
        model_of("hyena").losses(windows(), windows(), documents=DocumentMask(0))
    with pytest.raises(RunConfigError, match="mixer 'hyena' cannot keep documents apart"):
        settings(model__mixer=["full", "hyena"], training__document_mask=True)


@pytest.mark.parametrize("name", SHAPES)
def test_gradients_with_kernels_and_of_one_sequence_are_those_of_the_textbook(name: str):
    model, ids = model_of(name), windows()
    parameters = tuple(model.parameters())
    expected = torch.autograd.grad(model.loss(ids, ids), parameters)
    assert all(bool(gradient.abs().sum() > 0) for gradient in expected)
    ours = torch.autograd.grad(model.use_kernels("auto").loss(ids, ids), parameters)
    for a, b in zip(ours, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(model(ids[0]), model(ids)[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(model(ids[None]), model(ids)[None])


@pytest.mark.parametrize("name", SHAPES)
def test_counts_are_those_of_the_module_and_of_torch(name: str):
    config = ModelConfig(**SMALL, **SHAPES[name])
    model = TransformerLM(config)
    in_mixers = sum(p.numel() for own, p in model.named_parameters() if ".attn." in own)
    assert parameters_by_part(config)["attention"] == in_mixers
    assert n_parameters(config) == model.n_parameters()
    inner = {id(p) for own, p in model.named_parameters() if ".attn." in own}
    matrices = [p for p in model.block_matrices() if id(p) in inner]
    assert sum(p.numel() for p in matrices) == sum(own.part.matrices(own.config) for own in config.layers)
    for n_tokens in (40, 23):
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            model(torch.zeros(1, n_tokens, dtype=torch.long))
        assert counter.get_total_flops() == sum(forward_flops(config, 1, n_tokens).values())


@pytest.mark.parametrize("name", SHAPES)
def test_planned_activations_are_nearly_those_that_autograd_saves(name: str):
    # Of eight blocks, since with checkpointing one is computed again at a time.
    config = ModelConfig(**{**SMALL, "num_layers": 8}, **SHAPES[name])
    kept = kept_bytes(TransformerLM(config).use_kernels("auto"), windows()[:1])
    planned = training_memory(config).activations(1)
    assert planned == pytest.approx(kept, rel=0.1)
    assert training_memory(config, checkpointing="selective").activations(1) < planned
    assert training_memory(config, optimizer="muon").optimizer > 0


@pytest.mark.parametrize("name", SHAPES)
def test_other_programs_and_views_refuse_it_by_name(name: str):
    model = model_of(name)
    for gguf in (False, True):
        with pytest.raises(ModelConfigError, match=r"lacks .*mixer"):
            check_supported(model.config, gguf=gguf)
    if name == "values":  # which is attention
        return
    with pytest.raises(RunConfigError, match="has no attention weights"):
        trace(model, [1, 2])


def test_a_state_cannot_go_back():
    cache = KVCache(ModelConfig(**SMALL, mixer=("linear",)), 1)
    cache.advance_to(5)
    with pytest.raises(ValueError, match="cannot go back from 5 to 4"):
        cache.advance_to(4)
    cache.reset()
    assert cache.n_positions == 0


def test_a_state_has_the_same_size_at_every_length():
    for name in ("linear", "delta", "mamba"):
        model = model_of(name)
        cache = KVCache(model.config, 1)
        layer = cache.layers[0]
        assert isinstance(layer, StateCache)
        before = layer.n_bytes()
        with torch.no_grad():
            model(torch.zeros(1, 40, dtype=torch.long), cache)
        assert layer.n_bytes() == before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mixer": "mla", "mla": {"rope_dim": 3}}, r"mla\.rope_dim is 3"),
        ({"mixer": "mla", "rope": {"scaling": "linear", "factor": 2.0}}, r"no rope\.scaling 'linear'"),
        ({"mixer": "mamba", "mamba": {"head_dim": 9}}, r"not a multiple of mamba\.head_dim 9"),
        ({"mixer": "delta", "delta": {"value_heads": 6}}, r"value_heads 6 is not a multiple"),
        ({"mixer": "hyena", "hyena": {"filter_features": 4}}, r"hyena\.filter_features is 4"),
        ({"hyena": {"order": 1}}, r"hyena\.order is 1"),
    ],
    ids=str,
)
def test_sizes_that_do_not_fit_are_one_line(changes: dict[str, Any], message: str):
    with pytest.raises(ModelConfigError, match=message):
        ModelConfig(**SMALL, **changes)


@pytest.mark.parametrize("name", ["mla", "linear", "delta", "mamba", "hyena"])
def test_a_run_learns_and_is_loaded_again(name: str, settings: Any):
    changes: dict[str, Any] = {"schedule__name": "constant", "optimizer__learning_rate": 1e-2}
    folder = train(settings(**changes, model__mixer=[name, "full"], training__steps=20))
    first, *_, last = read_metrics(folder.metrics, "step")
    assert last["loss"] < first["loss"]


@pytest.mark.parametrize("name", SHAPES)
def test_half_precision_stays_near_single(name: str):
    model, ids = model_of(name), windows()
    expected = model.loss(ids, ids)
    with torch.autocast("cpu", torch.bfloat16):
        ours = model.loss(ids, ids)
        ours.backward()
    assert abs(ours.item() - expected.item()) < 0.05
