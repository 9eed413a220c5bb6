"""Attention and rotary embedding against torch's kernel, complex numbers, and each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from bytemill.errors import ModelConfigError
from bytemill.lm.kernels import attention as kernel
from bytemill.lm.kernels.attention import flex_attention, sdpa, windowed_attention
from bytemill.lm.model import (
    MultiHeadSelfAttention,
    RotaryEmbedding,
    causal_mask,
    scaled_dot_product_attention,
    sinusoids,
)

if TYPE_CHECKING:
    from torch import Tensor

# See test_layers.py. In bfloat16, weights and their gradients are rounded to 2⁻⁹ of themselves, in different ways, and
# up to 23 products of normal numbers are added: cancellation leaves an absolute error.
TOLERANCE: dict[torch.dtype, Any] = {
    torch.float32: {"rtol": 1e-4, "atol": 1e-5},
    torch.bfloat16: {"rtol": 3e-2, "atol": 1e-1},
    torch.float64: {"rtol": 1e-9, "atol": 1e-9},
}
sizes = st.integers(1, 9)
dtypes = st.sampled_from([torch.float32, torch.bfloat16])


def drawn(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape).to(dtype).requires_grad_()


def assert_agree(a: Tensor, b: Tensor, inputs: tuple[Tensor, ...]) -> None:
    tolerance = TOLERANCE[a.dtype]
    torch.testing.assert_close(a, b, **tolerance)
    gradient = torch.randn(a.shape).to(a.dtype)
    pairs = zip(
        torch.autograd.grad(a, inputs, gradient), torch.autograd.grad(b, inputs, gradient), strict=True
    )
    for ours, theirs in pairs:
        torch.testing.assert_close(ours, theirs, **tolerance)


@given(
    st.lists(st.integers(1, 3), max_size=2),
    sizes,
    sizes,
    sizes,
    sizes,
    dtypes,
    st.booleans(),
    st.integers(0, 99),
)
def test_equals_torchs_kernel_with_and_without_mask(
    batch: list[int],
    n_queries: int,
    n_keys: int,
    d_k: int,
    d_v: int,
    dtype: torch.dtype,
    masked: bool,
    seed: int,
) -> None:
    torch.manual_seed(seed)
    q, k, v = (drawn(*batch, n, d, dtype=dtype) for n, d in ((n_queries, d_k), (n_keys, d_k), (n_keys, d_v)))
    mask = torch.rand(*batch, n_queries, n_keys) < 0.6 if masked else None  # some rows may attend to no key
    assert_agree(
        scaled_dot_product_attention(q, k, v, mask),
        functional.scaled_dot_product_attention(q, k, v, attn_mask=mask),
        (q, k, v),
    )


def test_a_query_that_may_attend_to_nothing_gets_zeros() -> None:
    q, k, v = drawn(2, 3), drawn(4, 3), drawn(4, 3)
    y = scaled_dot_product_attention(q, k, v, torch.tensor([[False] * 4, [True] * 4]))
    assert torch.equal(y[0], torch.zeros(3))
    assert all(g.isfinite().all() for g in torch.autograd.grad(y.sum(), (q, k, v)))


@given(
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(1, 23),
    sizes,
    st.none() | st.integers(1, 25),
    st.integers(1, 9),
)
def test_blocks_of_causal_attention_equal_the_reference(
    batch: int, n_heads: int, n_tokens: int, d: int, window: int | None, block: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "_QUERIES_CPU", block)
        for dtype in (torch.float64, torch.float32, torch.bfloat16):
            q, k, v = (drawn(batch, n_heads, n_tokens, d, dtype=dtype) for _ in range(3))
            mask = causal_mask(n_tokens, n_tokens, window)
            assert_agree(
                kernel.causal_attention(q, k, v, window),
                scaled_dot_product_attention(q, k, v, mask),
                (q, k, v),
            )


def test_scores_of_1e4_do_not_overflow() -> None:
    q, k, v = (drawn(1, 2, 6, 4).mul(100).detach().requires_grad_() for _ in range(3))
    for y in (kernel.causal_attention(q, k, v), scaled_dot_product_attention(q, k, v, causal_mask(6, 6))):
        assert y.isfinite().all()
        assert all(g.isfinite().all() for g in torch.autograd.grad(y.sum(), (q, k, v)))


def repeated(k: Tensor, n_heads: int) -> Tensor:
    """The reference of shared keys: a copy for each query head."""
    return k.repeat_interleave(n_heads // k.shape[1], dim=1)


KERNELS = {"blockwise": kernel.causal_attention, "torch": windowed_attention}


@pytest.mark.parametrize("n_kv_heads", [4, 2, 1])
@pytest.mark.parametrize("window", [None, 4])
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", KERNELS)
def test_kernels_equal_the_textbook(
    name: str, dtype: torch.dtype, window: int | None, n_kv_heads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel, "_QUERIES_CPU", 5)
    torch.manual_seed(1)
    q, k, v = (drawn(2, n, 16, 8, dtype=dtype) for n in (4, n_kv_heads, n_kv_heads))
    ours = KERNELS[name](q, k, v, window)
    mask = causal_mask(16, 16, window)
    assert_agree(ours, scaled_dot_product_attention(q, repeated(k, 4), repeated(v, 4), mask), (q, k, v))


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_attention_equals_the_textbook() -> None:
    # torch has no backward pass of it on the CPU.
    q, k, v = (drawn(2, n, 16, 8).detach() for n in (2, 1, 1))
    expected = scaled_dot_product_attention(q, repeated(k, 2), repeated(v, 2), causal_mask(16, 16, 4))
    torch.testing.assert_close(flex_attention(q, k, v, 4), expected)


@pytest.mark.parametrize("n_kv_heads", [4, 2])
@pytest.mark.parametrize("n_queries", [1, 3])
def test_the_textbook_shares_keys_and_values_without_copies(n_queries: int, n_kv_heads: int) -> None:
    torch.manual_seed(1)
    layer = MultiHeadSelfAttention(32, 4, num_kv_heads=n_kv_heads)
    q, k, v = drawn(2, 4, n_queries, 8), drawn(2, n_kv_heads, 7, 8), drawn(2, n_kv_heads, 7, 8)
    mask = causal_mask(n_queries, 7, n_padding=torch.tensor([0, 2]))
    for ours in (layer._attend(q, k, v, mask), sdpa(q, k, v, mask)):
        expected = scaled_dot_product_attention(q, repeated(k, 4), repeated(v, 4), mask)
        assert_agree(ours, expected, (q, k, v))


@given(st.integers(1, 6), st.integers(0, 5), st.none() | st.integers(1, 7))
def test_the_mask_lets_each_query_attend_to_itself_and_earlier_tokens(
    n_queries: int, more: int, window: int | None
) -> None:
    n_keys = n_queries + more
    mask = causal_mask(n_queries, n_keys, window, n_padding=torch.tensor([0, 2]))
    assert mask.shape == (2, 1, n_queries, n_keys)
    for row, padding in enumerate((0, 2)):
        for i in range(n_queries):
            here = more + i
            first = max(padding, 0 if window is None else here - window + 1)
            assert [j for j in range(n_keys) if mask[row, 0, i, j]] == list(range(first, here + 1))


@given(
    st.lists(st.integers(1, 3), max_size=2),
    st.integers(1, 8),
    st.integers(1, 5),
    dtypes,
    st.booleans(),
    st.integers(0, 99),
)
def test_rotary_embedding_multiplies_by_complex_numbers(
    batch: list[int], n_tokens: int, pairs: int, dtype: torch.dtype, given_positions: bool, seed: int
) -> None:
    torch.manual_seed(seed)
    rope = RotaryEmbedding(100.0, 2 * pairs, 50)
    x = drawn(*batch, n_tokens, 2 * pairs, dtype=dtype)
    positions = torch.randint(50, (*batch, n_tokens)) if given_positions else None
    where = torch.arange(n_tokens) if positions is None else positions
    angles = where[..., None] * 100.0 ** (-torch.arange(pairs, dtype=torch.float64) / pairs)
    wide = x.double().unflatten(-1, (pairs, 2))
    turned = torch.view_as_complex(wide) * torch.polar(torch.ones_like(angles), angles)
    theirs = torch.view_as_real(turned).flatten(-2).to(dtype)
    assert_agree(rope(x, positions), theirs, (x,))


def test_rotary_products_depend_on_the_distance_alone() -> None:
    rope = RotaryEmbedding(10_000.0, 16, 500)
    q, k = torch.randn(1, 16), torch.randn(1, 16)
    product = [rope(q, torch.tensor([i + 7])) @ rope(k, torch.tensor([i])).T for i in (0, 3, 480)]
    torch.testing.assert_close(product[0], product[1], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(product[0], product[2], rtol=1e-4, atol=1e-4)


def test_rotary_tables_are_not_saved_and_stay_exact_when_the_model_is_cast() -> None:
    rope = RotaryEmbedding(10_000.0, 8, 1000)
    rotations = rope.rotations.clone()
    assert not rope.state_dict()
    rope.to(torch.bfloat16)
    assert rope.rotations.dtype == torch.float32
    assert torch.equal(rope.rotations, rotations)


def test_sinusoids_are_those_of_the_paper() -> None:
    table = sinusoids(20, 6)
    position, i = 13, 2
    assert table[position, 2 * i].item() == pytest.approx(
        torch.tensor(position / 10_000 ** (2 * i / 6)).sin().item()
    )
    assert table[position, 2 * i + 1].item() == pytest.approx(
        torch.tensor(position / 10_000 ** (2 * i / 6)).cos().item()
    )


@pytest.mark.parametrize("with_rope", [False, True])
def test_self_attention_equals_torchs_multi_head_attention(with_rope: bool) -> None:
    ours = MultiHeadSelfAttention(24, 3, RotaryEmbedding(10_000.0, 8, 12) if with_rope else None)
    x = torch.randn(2, 2, 10, 24)
    q, k, v = (
        (x @ p.weight.T).unflatten(-1, (3, 8)).transpose(-3, -2)
        for p in (ours.q_proj, ours.k_proj, ours.v_proj)
    )
    if ours.rope is not None:
        q, k = ours.rope(q), ours.rope(k)
    mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    theirs = mixed.transpose(-3, -2).flatten(-2) @ ours.output_proj.weight.T
    torch.testing.assert_close(ours(x), theirs)
    if with_rope:  # shifted positions with leading dimensions: only distances matter
        torch.testing.assert_close(
            ours(x, torch.arange(2, 12).expand(2, 2, 10)), theirs, rtol=1e-4, atol=1e-5
        )
        torch.testing.assert_close(ours(x, torch.arange(10)[None, None]), theirs)


def test_heads_that_do_not_divide_are_refused() -> None:
    with pytest.raises(ModelConfigError, match="do not divide each other"):
        MultiHeadSelfAttention(10, 3)
