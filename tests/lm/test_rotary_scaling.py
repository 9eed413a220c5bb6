"""Scaled frequencies of the rotary embedding are those of transformers."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportCallIssue=false, reportOperatorIssue=false
# Attributes of torch's modules have no types.

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bytemill.errors import ModelConfigError
from bytemill.lm import KVCache, ModelConfig, TransformerLM
from bytemill.lm.generation.core_decoder import CoreDecoder
from bytemill.lm.model import RotaryEmbedding
from bytemill.lm.rotary_scaling import scaled_frequencies
from tests.lm.conftest import sizes

if TYPE_CHECKING:
    from torch import Tensor

D_HEAD = 16


def config(context_length: int = 64, **rope: Any) -> ModelConfig:
    return ModelConfig(**sizes(50, context_length, 64, 2, 4, 40), rope=rope)


def of_transformers(kind: str, n_tokens: int, positions: int, **parameters: Any) -> tuple[Tensor, float]:
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    other = LlamaConfig(
        hidden_size=64,
        num_attention_heads=4,
        max_position_embeddings=positions,
        rope_parameters={"rope_type": kind, **parameters},
    )
    return ROPE_INIT_FUNCTIONS[kind](other, torch.device("cpu"), seq_len=n_tokens)


def assert_equal(ours: tuple[Tensor, float], theirs: tuple[Tensor, float]) -> None:
    torch.testing.assert_close(ours[0].float(), theirs[0].float(), rtol=1e-5, atol=0)
    assert math.isclose(ours[1], theirs[1], rel_tol=1e-12)


@pytest.mark.usefixtures("transformers")
@pytest.mark.parametrize("theta", [10_000.0, 500_000.0, 1e6])
def test_tables_are_those_of_transformers_also_at_late_positions(theta: float) -> None:
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    parameters = {"rope_type": "default", "rope_theta": theta}
    other = LlamaRotaryEmbedding(
        LlamaConfig(hidden_size=128, num_attention_heads=2, rope_parameters=parameters)
    )
    theirs = other(torch.zeros(1), torch.arange(40_000)[None])
    tables = RotaryEmbedding(theta, 64, 40_000).rotations.unbind(-1)
    for ours, expected in zip(tables, theirs, strict=True):
        # An angle of another rounding would differ by 1e-3; sines by other instructions differ in the last bit.
        torch.testing.assert_close(ours, expected[0, :, :32], rtol=0, atol=2e-7)


FACTORS = st.floats(1, 64)
THETAS = st.floats(100, 1e7)


@pytest.mark.usefixtures("transformers")
@given(
    factor=FACTORS,
    theta=THETAS,
    original=st.integers(64, 100_000),
    truncate=st.booleans(),
    slow=st.floats(0.5, 4),
)
def test_yarn(factor: float, theta: float, original: int, truncate: bool, slow: float) -> None:
    own: dict[str, Any] = {"factor": factor, "beta_fast": 24.0, "beta_slow": slow, "truncate": truncate}
    ours = scaled_frequencies(config(scaling="yarn", theta=theta, original_context=original, **own))
    parameters = {**own, "rope_theta": theta, "original_max_position_embeddings": original}
    assert_equal(ours, of_transformers("yarn", 64, 4 * original, **parameters))


@pytest.mark.usefixtures("transformers")
@given(factor=FACTORS, theta=THETAS, n_tokens=st.integers(1, 5000), original=st.integers(16, 1000))
def test_dynamic(factor: float, theta: float, n_tokens: int, original: int) -> None:
    own = config(n_tokens, scaling="dynamic", theta=theta, factor=factor, original_context=original)
    assert_equal(
        scaled_frequencies(own),
        of_transformers("dynamic", n_tokens, original, factor=factor, rope_theta=theta),
    )


@pytest.mark.usefixtures("transformers")
@given(
    factor=FACTORS,
    divisors=st.lists(st.floats(1, 60), min_size=D_HEAD, max_size=D_HEAD),
    n_tokens=st.integers(1, 200),
    magnitude=st.sampled_from([None, 1.25]),
)
def test_longrope(factor: float, divisors: list[float], n_tokens: int, magnitude: float | None) -> None:
    short, long = divisors[: D_HEAD // 2], divisors[D_HEAD // 2 :]
    own = config(
        n_tokens,
        scaling="longrope",
        factor=factor,
        original_context=100,
        short_divisors=short,
        long_divisors=long,
        magnitude=magnitude,
    )
    parameters = {"short_factor": short, "long_factor": long, "factor": factor, "attention_factor": magnitude}
    parameters |= {"rope_theta": 10_000.0, "original_max_position_embeddings": 100}
    assert_equal(scaled_frequencies(own), of_transformers("longrope", n_tokens, 400, **parameters))


def test_the_magnitude_scales_rotated_pairs_alone() -> None:
    own = config(scaling="yarn", factor=4.0, fraction=0.5, magnitude=3.0)
    rope = TransformerLM(own).layers[0].attn.rope
    x = torch.randn(1, 20, D_HEAD)
    lengths = rope(x).norm(dim=-1) ** 2
    rotated, rest = x.split(D_HEAD // 2, -1)
    torch.testing.assert_close(lengths, 9 * rotated.norm(dim=-1) ** 2 + rest.norm(dim=-1) ** 2)


def test_the_core_computes_scaled_embeddings() -> None:
    own = config(scaling="yarn", factor=4.0, original_context=16)
    model = TransformerLM(own, seed=0).eval()
    cache = KVCache(own, 1)
    assert CoreDecoder.supports(model, cache)
    decoder, ids = CoreDecoder(model, cache), torch.randint(50, (1, 12))
    with torch.no_grad():
        expected = model(ids)[0]
    for position, token_id in enumerate(ids[0].tolist()):
        torch.testing.assert_close(decoder.logits_after(token_id), expected[position], rtol=0, atol=1e-5)


def test_blocks_with_a_window_may_have_a_base_of_their_own() -> None:
    own = ModelConfig(
        **sizes(50, 64, 64, 3, 4, 40),
        mixer=["window:4", "full"],
        rope={"theta": 1e6, "window_theta": 500.0, "scaling": "linear", "factor": 8.0},
    )
    model = TransformerLM(own)
    local, full, again = (layer.attn.rope for layer in model.layers)
    assert local is again
    assert torch.equal(local.frequencies, TransformerLM(config(theta=500.0)).layers[0].attn.rope.frequencies)
    expected = TransformerLM(config(theta=1e6, scaling="linear", factor=8.0)).layers[0].attn.rope
    assert torch.equal(full.frequencies, expected.frequencies)
    for layer, attention in zip(own.layers, (local, full, again), strict=True):
        assert layer.config.layers[0].config == layer.config
        assert attention.max_seq_len == 64


def test_divisors_must_fit_the_heads() -> None:
    with pytest.raises(
        ModelConfigError, match=r"rope\.short_divisors has 3 numbers, but a head has 8 rotated"
    ):
        config(scaling="longrope", short_divisors=(1.0, 1.0, 1.0))
