"""Each layer equals that of torch, in values and gradients, for any shape."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, get_args

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch.nn import functional

from bytemill.lm.kernels.choice import choose_kernels
from bytemill.lm.kernels.layers import gated_silu, gelu_erf, gelu_tanh, normalized, squared_relu
from bytemill.lm.model import (
    ACTIVATIONS,
    Dropout,
    Embedding,
    FeedForward,
    LayerNorm,
    Linear,
    MultiHeadSelfAttention,
    RMSNorm,
    RotaryEmbedding,
    SwiGLU,
    gated,
    gelu,
    layer_norm,
    relu,
    relu_squared,
    rms_norm,
    silu,
    softmax,
    swiglu_width,
)
from bytemill.lm.model_config import FeedForwardKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from bytemill.lm.model_config import KernelName


# Tolerances against torch. float32 has 24 bits, and sums of a few hundred terms lose some of them. bfloat16 has 8:
# results differ by one or two units in the last place, 2⁻⁸ each, where the order of roundings differs.
TOLERANCE = {torch.float32: {"rtol": 1e-4, "atol": 1e-5}, torch.bfloat16: {"rtol": 2e-2, "atol": 2e-2}}

shapes = st.lists(st.integers(1, 4), max_size=3).flatmap(
    lambda batch: st.integers(1, 40).map(lambda d: (*batch, d))
)
dtypes = st.sampled_from(list(TOLERANCE))
seeds = st.integers(0, 2**32 - 1)


def drawn(seed: int, *shape: int, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(shape, generator=generator) * scale).to(dtype).requires_grad_()


def assert_agree(ours: Callable[..., Tensor], theirs: Callable[..., Tensor], *inputs: Tensor) -> None:
    """Assert equal shape, type, values and gradients with respect to every input."""
    a, b = ours(*inputs), theirs(*inputs)
    assert a.dtype == b.dtype
    tolerance: Any = TOLERANCE[a.dtype]
    torch.testing.assert_close(a, b, **tolerance)
    gradient = torch.randn(a.shape, generator=torch.Generator().manual_seed(5)).to(a.dtype)
    pairs = zip(
        torch.autograd.grad(a, inputs, gradient), torch.autograd.grad(b, inputs, gradient), strict=True
    )
    for d_ours, d_theirs in pairs:
        largest = max(1.0, d_theirs.abs().max().item())
        torch.testing.assert_close(d_ours / largest, d_theirs / largest, **tolerance)


@given(shapes, st.integers(1, 9), st.booleans(), dtypes, seeds)
def test_linear(shape: tuple[int, ...], d_out: int, bias: bool, dtype: torch.dtype, seed: int) -> None:
    layer = Linear(shape[-1], d_out, bias, dtype=dtype)
    assert layer.weight.shape == (d_out, shape[-1])
    parameters = tuple(layer.parameters())
    assert_agree(lambda x, *_: layer(x), functional.linear, drawn(seed, *shape, dtype=dtype), *parameters)


@given(st.lists(st.integers(0, 4), max_size=3), dtypes, seeds)
def test_embedding(shape: list[int], dtype: torch.dtype, seed: int) -> None:
    layer = Embedding(7, 5, dtype=dtype)
    ids = torch.randint(7, shape, generator=torch.Generator().manual_seed(seed))
    ours, theirs = layer(ids), functional.embedding(ids, layer.weight)
    assert torch.equal(ours, theirs)
    gradient = torch.ones_like(ours)
    a, b = (torch.autograd.grad(y, layer.weight, gradient)[0] for y in (ours, theirs))
    torch.testing.assert_close(a, b)


def test_initial_weights_are_normal_and_truncated_at_three_sigma() -> None:
    torch.manual_seed(3)
    weight = Linear(300, 500).weight
    sigma = math.sqrt(2 / 800)
    assert weight.abs().max() <= 3 * sigma
    # Truncated at ±3σ, the standard deviation is 0.9866 σ; 150,000 samples estimate it to 0.2 %.
    assert weight.std().item() == pytest.approx(0.9866 * sigma, rel=0.01)
    assert abs(weight.mean().item()) < 0.02 * sigma
    assert (weight.abs() > 2 * sigma).float().mean().item() == pytest.approx(0.0429, abs=0.004)
    assert Embedding(100, 100).weight.abs().max() <= 3


@given(shapes, dtypes, seeds, st.sampled_from([1e-3, 1.0, 1e3]))
def test_rms_norm(shape: tuple[int, ...], dtype: torch.dtype, seed: int, scale: float) -> None:
    layer = RMSNorm(shape[-1], dtype=dtype)
    x, weight = drawn(seed, *shape, dtype=dtype, scale=scale), drawn(seed + 1, shape[-1], dtype=dtype)
    layer.weight = torch.nn.Parameter(weight.detach())
    assert torch.equal(layer(x), rms_norm(x, weight, 1e-5))

    def theirs(x: Tensor, w: Tensor) -> Tensor:
        return functional.rms_norm(x.float(), w.shape, w.float(), 1e-5).to(x.dtype)

    assert_agree(lambda x, w: normalized(x, w, None, 1e-5, centred=False), theirs, x, weight)
    assert_agree(lambda x, w: rms_norm(x, w, 1e-5), theirs, x, weight)


@given(shapes, dtypes, seeds, st.sampled_from([1e-1, 1.0, 1e3]))
def test_layer_norm(shape: tuple[int, ...], dtype: torch.dtype, seed: int, scale: float) -> None:
    shape = (*shape[:-1], shape[-1] + 1)  # a single number has no variance
    x = drawn(seed, *shape, dtype=dtype, scale=scale)
    # The gradient of a row whose numbers are nearly equal is that of rounding, up to 300 times as large.
    assume(float(x.detach().float().std(-1).min()) > 0.05 * scale)
    weight, bias = drawn(seed + 1, shape[-1], dtype=dtype), drawn(seed + 2, shape[-1], dtype=dtype)
    layer = LayerNorm(shape[-1], dtype=dtype)
    layer.load_state_dict({"weight": weight, "bias": bias})
    assert torch.equal(layer(x), layer_norm(x, weight, bias, 1e-5))

    def theirs(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return functional.layer_norm(x.float(), w.shape, w.float(), b.float(), 1e-5).to(x.dtype)

    assert_agree(lambda x, w, b: normalized(x, w, b, 1e-5, centred=True), theirs, x, weight, bias)
    assert_agree(lambda x, w, b: layer_norm(x, w, b, 1e-5), theirs, x, weight, bias)
    assert LayerNorm(4, bias=False)(torch.randn(3, 4)).mean(-1).abs().max() < 1e-6


def test_rms_norm_in_bfloat16_is_that_of_float32_rounded_once() -> None:
    x = torch.full((1, 4096), 3.0e3, dtype=torch.bfloat16)  # a sum of squares in bfloat16 would stop growing
    assert torch.equal(RMSNorm(4096, dtype=torch.bfloat16)(x), torch.ones_like(x))


@given(shapes, dtypes, seeds, st.sampled_from([1.0, 30.0]))
def test_activations(shape: tuple[int, ...], dtype: torch.dtype, seed: int, scale: float) -> None:
    x, y = drawn(seed, *shape, dtype=dtype, scale=scale), drawn(seed + 1, *shape, dtype=dtype)
    assert_agree(silu, functional.silu, x)
    assert_agree(relu, functional.relu, x)
    assert_agree(gelu, functional.gelu, x)
    assert_agree(lambda x: gelu(x, "tanh"), lambda x: functional.gelu(x, approximate="tanh"), x)
    assert_agree(gelu_tanh, lambda x: functional.gelu(x, approximate="tanh"), x)
    assert_agree(gelu_erf, functional.gelu, x)
    for ours in (relu_squared, squared_relu):
        assert_agree(ours, lambda x: functional.relu(x).square(), x)
    for ours in (gated, gated_silu):
        assert_agree(ours, lambda a, b: functional.silu(a) * b, x, y)


@given(shapes, dtypes, seeds, st.integers(-4, 3), st.sampled_from([1.0, 1e4]))
def test_softmax(shape: tuple[int, ...], dtype: torch.dtype, seed: int, dim: int, scale: float) -> None:
    dim = max(-len(shape), min(dim, len(shape) - 1))
    x = drawn(seed, *shape, dtype=dtype, scale=scale)
    assert_agree(lambda x: softmax(x, dim), lambda x: torch.softmax(x, dim), x)


def test_softmax_survives_large_numbers_and_masks() -> None:
    x = torch.tensor(
        [[1e4, 1e4 - 1, -math.inf], [-math.inf] * 3, [-1e4, -math.inf, -math.inf]], requires_grad=True
    )
    y = softmax(x, -1)
    torch.testing.assert_close(y[0], torch.softmax(x[0], -1))
    assert y[1].tolist() == [0, 0, 0]
    assert y[2].tolist() == [1, 0, 0]
    y.square().sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("d_model", [64, 512])
def test_feed_forward_networks(d_model: int) -> None:
    x = torch.randn(2, 3, d_model)
    swiglu = SwiGLU(d_model)
    assert swiglu.w1.weight.shape == swiglu.w3.weight.shape == (swiglu_width(d_model), d_model)
    w1, w2, w3 = (w.weight for w in (swiglu.w1, swiglu.w2, swiglu.w3))
    torch.testing.assert_close(swiglu(x), (functional.silu(x @ w1.T) * (x @ w3.T)) @ w2.T)
    theirs: dict[Any, Callable[[Tensor], Tensor]] = {
        "gelu": lambda x: functional.gelu(x, approximate="tanh"),
        "gelu_exact": functional.gelu,
        "relu": functional.relu,
        "relu2": lambda x: functional.relu(x).square(),
    }
    assert theirs.keys() == ACTIVATIONS.keys()
    for activation, function in theirs.items():
        network = FeedForward(d_model, 32, activation, bias=True)
        inner = function(network.w1(x))
        torch.testing.assert_close(network(x), functional.linear(inner, network.w2.weight, network.w2.bias))


@pytest.mark.parametrize("kernels", ["scratch", "torch", "auto"])
def test_no_layer_widens_a_product_under_autocast(kernels: KernelName) -> None:
    # A float32 bias, or the float32 weight of a norm, would make every later product float32.
    layers = [
        Linear(8, 8, bias=True),
        SwiGLU(8, 12, bias=True),
        MultiHeadSelfAttention(8, 2, RotaryEmbedding(10.0, 4, 5), qkv_bias=True, qk_norm_eps=1e-5),
        *(FeedForward(8, 12, name, bias=True) for name in ACTIVATIONS),  # pyright: ignore[reportArgumentType]
    ]
    for layer in layers:
        for module in layer.modules():
            if hasattr(module, "kernels"):
                module.kernels = choose_kernels(kernels, torch.device("cpu"))
        with torch.autocast("cpu", torch.bfloat16):
            y = layer(torch.randn(2, 5, 8))
        assert y.dtype == torch.bfloat16, layer
        y.sum().backward()
        assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in layer.parameters())
    for norm in (RMSNorm(8), LayerNorm(8)):
        with torch.autocast("cpu", torch.bfloat16):
            assert norm(torch.randn(5, 8)).dtype == torch.float32
            assert norm(torch.randn(5, 8).bfloat16()).dtype == torch.bfloat16


def test_kernels_process_many_rows_in_blocks() -> None:
    x = drawn(1, 300, 700)  # 210,000 numbers: several blocks, the last one is shorter
    weight = drawn(2, 700)
    assert_agree(
        lambda x, w: normalized(x, w, None, 1e-5, centred=False), lambda x, w: rms_norm(x, w, 1e-5), x, weight
    )
    assert_agree(gated_silu, gated, x, drawn(3, 300, 700))


def test_dropout() -> None:
    torch.manual_seed(0)
    dropout = Dropout(0.25)
    x = torch.ones(100_000, requires_grad=True)
    y = dropout(x)
    assert y.unique().tolist() == pytest.approx([0, 1 / 0.75])
    assert y.mean().item() == pytest.approx(1, abs=0.01)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(gradient, y)
    assert dropout.eval()(x) is x


def test_the_names_of_feed_forward_networks_are_gated_ones_the_activations_and_the_mixture() -> None:
    gated = {"swiglu", "geglu", "clamped_swiglu"}
    assert set(get_args(FeedForwardKind)) == {*gated, *ACTIVATIONS, "moe"}
    with pytest.raises(KeyError):
        FeedForward(4, 8, "sigmoid")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("kernels", ["auto", "scratch"])
def test_gradients_of_embeddings_do_not_depend_on_threads(kernels: KernelName) -> None:
    embedding = Embedding(1000, 128)
    embedding.kernels = choose_kernels(kernels, torch.device("cpu"))
    ids = torch.randint(100, (8, 256), generator=torch.Generator().manual_seed(1))
    gradient = torch.randn(8, 256, 128, generator=torch.Generator().manual_seed(2))
    assert torch.equal(embedding(ids), embedding.weight[ids])
    expected = torch.zeros(1000, 128).index_add_(0, ids.view(-1), gradient.view(-1, 128))
    for _ in range(10):
        (ours,) = torch.autograd.grad(embedding(ids), embedding.weight, gradient)
        assert torch.equal(ours, expected)
