"""Decoding steps by Triton equal torch's."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from bytemill.lm.generation.decoding import generate
from bytemill.lm.kernels import decoding as reference
from bytemill.lm.kernels.decoding import Heads, Norm, Projection
from bytemill.lm.kernels.triton import decoding
from bytemill.lm.model import ModelConfig, TransformerLM
from tests.support.examples import few


def randoms(device: str, dtype: torch.dtype = torch.float32) -> Any:
    random = torch.Generator().manual_seed(1)
    return lambda *shape: torch.randn(*shape, generator=random).to(device, dtype)


def close(actual: Tensor, expected: Tensor, bound: float) -> bool:
    return float((actual.float() - expected.float()).abs().max()) <= bound * max(
        1.0, float(expected.abs().max())
    )


def random_heads(
    device: str,
    dtype: torch.dtype,
    heads: tuple[int, int],
    width: int,
    n_rows: int,
    capacity: int,
    **options: Any,
) -> Heads:
    make = randoms(device)
    angles = torch.arange(capacity)[:, None] * torch.linspace(0.1, 1.0, max(1, width // 2))
    shape = (n_rows, heads[1], capacity, width)
    has_norm, has_rotation = options.get("has_norm", False), options.get("has_rotation", False)
    return Heads(
        *heads,
        width,
        options.get("window"),
        torch.stack((angles.cos(), angles.sin()), -1).to(device) if has_rotation else None,
        make(width) if has_norm else None,
        make(width) if has_norm else None,
        1e-5,
        make(*shape).to(dtype),
        make(*shape).to(dtype),
    )


@few
@given(
    groups=st.sampled_from([1, 2, 3]),
    n_kv_heads=st.sampled_from([1, 2]),
    width=st.sampled_from([2, 8, 10, 64]),
    positions=st.lists(st.integers(0, 149), min_size=1, max_size=3),
    window=st.sampled_from([None, 1, 5, 100]),
    has_norm=st.booleans(),
    has_rotation=st.booleans(),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
)
def test_attention_equals_the_reference(
    device: str,
    *,
    groups: int,
    n_kv_heads: int,
    width: int,
    positions: list[int],
    dtype: torch.dtype,
    **options: Any,
) -> None:
    shape = ((groups * n_kv_heads, n_kv_heads), width, len(positions), 150)
    ours, theirs = (random_heads(device, dtype, *shape, **options) for _ in range(2))
    qkv = randoms(device)(len(positions), (groups + 2) * n_kv_heads * width)
    places = torch.tensor(positions, device=device)
    expected = reference.attend(qkv, theirs, places)
    n_in = groups * n_kv_heads * width
    mixed = Projection(randoms(device)(4, n_in) / math.sqrt(n_in))
    got = decoding.project(decoding.attend(qkv, ours, places), mixed)
    bound = 1e-5 if dtype == torch.float32 else 0.02
    assert close(got, expected.float() @ mixed.weight.mT, bound)
    assert close(ours.keys, theirs.keys, bound)
    assert close(ours.values, theirs.values, bound)  # the interpreter truncates to bfloat16


PROJECTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "bias": {"bias": True},
    "norm": {"norm": "rms", "activation": "swiglu"},
    "layer norm": {"norm": "layer", "activation": "gelu", "bias": True},
    "exact": {"activation": "gelu_exact"},
    "relu": {"activation": "relu"},
    "relu2": {"activation": "relu2", "norm": "layer"},
    "gate": {"activation": "swiglu", "bias": True},
    "cap": {"soft_cap": 3.0},
}


@pytest.mark.parametrize("n_rows", [pytest.param(1, marks=pytest.mark.slow), 2, 20])
@pytest.mark.parametrize("options", PROJECTIONS.values(), ids=PROJECTIONS)
@pytest.mark.parametrize("sizes", [(300, 5), pytest.param((40, 61), marks=pytest.mark.slow)])
def test_projections_equal_the_reference(
    device: str, sizes: tuple[int, int], options: dict[str, Any], n_rows: int
) -> None:
    check_projection(device, sizes, options, n_rows, torch.float32, 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("n_rows", [1, 2, 70])
@pytest.mark.parametrize("options", PROJECTIONS.values(), ids=PROJECTIONS)
def test_wide_projections_equal_the_reference(device: str, options: dict[str, Any], n_rows: int) -> None:
    check_projection(device, (5000, 37), options, n_rows, torch.float32, 1e-4)
    check_projection(device, (768, 230), options, n_rows, torch.bfloat16, 0.02)


def check_projection(
    device: str,
    sizes: tuple[int, int],
    options: dict[str, Any],
    n_rows: int,
    dtype: torch.dtype,
    bound: float,
) -> None:
    make, (n_in, n_out) = randoms(device), sizes
    n_weights = n_out * (2 if options.get("activation") == "swiglu" else 1)
    is_centred = options.get("norm") == "layer"
    norm = Norm(make(n_in), make(n_in) if is_centred else None, 1e-5, is_centred)
    projection = Projection(
        (make(n_weights, n_in) / math.sqrt(n_in)).to(dtype),
        **{
            **options,
            "bias": make(n_weights) if "bias" in options else None,
            "norm": norm if "norm" in options else None,
        },
    )
    x, residual = make(n_rows, n_in), make(n_rows, n_out)
    expected = reference.project(x, projection)
    assert close(decoding.project(x, projection), expected, bound)
    got = decoding.project(x, projection, residual)
    assert got.dtype == torch.float32
    assert close(got, reference.project(x, projection, residual), bound)
    out = torch.empty(n_rows, n_out, device=device)
    assert close(decoding.project(x, projection, out=out), expected, bound)


def test_embeddings_advance_the_state(device: str) -> None:
    make = randoms(device)
    table, places = make(50, 20), make(30, 20)
    ids = torch.tensor([3, -1, 49], device=device)
    states = [torch.tensor([[0, 7, 28], [4, 5, 6]], device=device) for _ in range(2)]
    for own in (places, None):
        expected = reference.embed_next(ids, states[0], table, own)
        assert torch.equal(decoding.embed_next(ids, states[1], table, own), expected)
        assert torch.equal(*states)
        states = [state - 1 for state in states]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of the interpreter, about what is not finite
@pytest.mark.parametrize(
    ("vocab_size", "temperature"),
    [
        (1024, 1e-30),
        (1500, 1.0),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in ((5, 1.0), (3000, 0.1))),
    ],
)
def test_choices_equal_the_reference(device: str, vocab_size: int, temperature: float) -> None:
    random = torch.Generator().manual_seed(vocab_size)
    n_rows = 6
    logits = torch.randn(n_rows, vocab_size, generator=random).to(device)
    logits[1, 3] = logits[1, 1] = logits[1].max() + 1  # the first of equal ones
    uniforms = torch.rand(n_rows, 3, generator=random, dtype=torch.float64).to(device)
    indices = torch.arange(n_rows, device=device) % 3
    allowed = (torch.rand(vocab_size, generator=random) < 0.6).to(device)
    allowed[2] = True
    cut = torch.where(logits < 0, -math.inf, logits)
    cut[:, 2] = 0
    wrong = logits.clone()
    wrong[0, 0], wrong[3, vocab_size - 1], wrong[4, 2] = math.nan, math.inf, -math.inf
    for own, numbers, mask in (
        (logits, None, None),
        (logits, uniforms, allowed),
        (logits, torch.zeros_like(uniforms), None),
        (cut, None, allowed),
        (cut, uniforms, None),
        (wrong, None, allowed),
        (wrong, uniforms, None),
    ):
        results = [torch.empty(n_rows, dtype=torch.int64, device=device) for _ in range(2)]
        for module, result in zip((reference, decoding), results, strict=True):
            module.choose(own, numbers, indices, temperature, mask, is_cut=own is cut, out=result)
        assert torch.equal(*results)
    # Sums in another order round differently, but an id without weight is never chosen.
    result = torch.empty(n_rows, dtype=torch.int64, device=device)
    almost_one = torch.full_like(uniforms, 1 - 2**-53)
    decoding.choose(cut, almost_one, indices, temperature, allowed, is_cut=True, out=result)
    assert bool(torch.isfinite(cut.masked_fill(~allowed, -math.inf).gather(1, result[:, None])).all())


@pytest.mark.slow
@pytest.mark.parametrize("n_samples", [1, 6])
@pytest.mark.parametrize(
    "shape",
    [
        {
            "norm": "layer",
            "position": "learned",
            "feed_forward": "gelu",
            "bias": True,
            "tied_embeddings": True,
        },
        {"attention": {"num_kv_heads": 2, "qk_norm": True, "sliding_window": 5}, "logit_soft_cap": 8.0},
        {"norm_position": "post", "position": "sinusoidal", "feed_forward": "relu"},
    ],
)
def test_generated_ids_are_those_of_the_model(device: str, shape: dict[str, Any], n_samples: int) -> None:
    config = ModelConfig(
        **{
            "vocab_size": 50,
            "context_length": 12,
            "d_model": 32,
            "num_layers": 2,
            "num_heads": 4,
            "d_ff": 48,
            **shape,
        }
    )
    model = TransformerLM(config, seed=1).to(device)
    with torch.no_grad():
        model.lm_head.weight.mul_(5)
    for temperature, n_tokens in ((0, 14), (0.8, 9)):
        options: dict[str, Any] = {
            "temperature": temperature,
            "seed": 5,
            "n_samples": n_samples,
            "excluded_ids": {3},
        }
        model.use_kernels("scratch")
        expected = generate(model, [1, 2, 3], n_tokens, **options)
        model.use_kernels(replace(model.kernels, decoding=decoding))
        assert generate(model, [1, 2, 3], n_tokens, precision="float32", **options) == expected
