"""Attention by Triton equals the textbook in values and gradients."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from bytemill.lm.kernels.triton import causal_attention
from bytemill.lm.model import causal_mask, scaled_dot_product_attention
from tests.support.examples import few


def random_heads(
    batch: int, n_heads: int, n_kv_heads: int, n_tokens: int, width: int, dtype: torch.dtype, device: str
) -> list[Tensor]:
    """Return queries, keys, values and the gradient of the result, with the layout of a model in memory."""
    random = torch.Generator().manual_seed(0)
    return [
        torch.randn(batch, n_tokens, heads, width, generator=random).to(device, dtype).transpose(1, 2)
        for heads in (n_heads, n_kv_heads, n_kv_heads, n_heads)
    ]


def document_mask(starts: Tensor) -> Tensor:
    """(batch, n_tokens) -> (batch, 1, n_tokens, n_tokens)."""
    return starts[:, None, :, None] <= torch.arange(starts.shape[1], device=starts.device)


def check(
    device: str,
    *,
    n_tokens: int,
    width: int = 16,
    heads: tuple[int, int] = (2, 2),
    window: int | None = None,
    starts: Tensor | None = None,
    dtype: torch.dtype = torch.float32,
    bound: float = 1e-5,
) -> None:
    batch = 1 if starts is None else len(starts)
    q, k, v, g = random_heads(batch, *heads, n_tokens, width, dtype, device)
    leaves = [t.requires_grad_() for t in (q, k, v)]
    got = causal_attention(q, k, v, window, starts)
    mask = causal_mask(n_tokens, n_tokens, window, device=device)
    if starts is not None:
        mask = mask & document_mask(starts)
    n_groups = heads[0] // heads[1]
    wide = [t.detach().double().requires_grad_() for t in leaves]
    keys, values = (t.repeat_interleave(n_groups, 1) for t in wide[1:])
    want = scaled_dot_product_attention(wide[0], keys, values, mask)
    results = [got, *torch.autograd.grad(got, leaves, g)]
    expected = [want, *torch.autograd.grad(want, wide, g.double())]
    for name, a, b in zip(["y", "q", "k", "v"], results, expected, strict=True):
        assert a.dtype == dtype
        assert float((a - b).detach().abs().max()) <= bound * max(1.0, float(b.detach().abs().max())), name


@pytest.mark.parametrize(
    "shape",
    [
        {"n_tokens": 1},
        {"n_tokens": 70, "heads": (4, 2)},
        {"n_tokens": 70, "heads": (2, 1), "window": 40},
        {"n_tokens": 33, "heads": (1, 1), "width": 80},
        # Weights and gradients of scores are rounded to 8 bits before the second products.
        {"n_tokens": 70, "heads": (2, 1), "dtype": torch.bfloat16, "bound": 2**-6},
        *(
            pytest.param({"n_tokens": n_tokens, "heads": (1, 1), "width": width}, marks=pytest.mark.slow)
            for n_tokens, width in ((130, 16), (37, 8), (37, 32), (37, 64), (37, 128))
        ),
    ],
    ids=str,
)
def test_values_and_gradients_equal_the_textbook(shape: dict[str, Any], device: str) -> None:
    check(device, **shape)


@pytest.mark.parametrize("window", [pytest.param(None, marks=pytest.mark.slow), 20])
def test_documents_hide_earlier_documents(window: int | None, device: str) -> None:
    starts = torch.zeros(2, 70, dtype=torch.int32, device=device)
    starts[0, 10:], starts[0, 43:], starts[1, 63:], starts[1, 64:] = 10, 43, 63, 64
    check(device, n_tokens=70, heads=(1, 1), starts=starts, window=window)


@few
@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 3), st.none() | st.integers(1, 45))
def test_every_shape_equals_the_textbook(
    device: str, n_tokens: int, width: int, n_groups: int, window: int | None
) -> None:
    check(device, n_tokens=n_tokens, width=width, heads=(n_groups, 1), window=window)
