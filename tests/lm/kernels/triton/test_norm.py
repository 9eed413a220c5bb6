"""RMSNorm and LayerNorm by Triton equal the textbook in values and gradients."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from bytemill.lm.kernels.triton import normalized
from bytemill.lm.model import layer_norm, rms_norm
from tests.support.examples import few

KINDS = pytest.mark.parametrize(
    ("centred", "has_bias"), [(False, False), (True, False), (True, True)], ids=["rms", "layer", "layer-bias"]
)


def reference(x: Tensor, weight: Tensor, bias: Tensor | None, centred: bool) -> Tensor:
    return layer_norm(x, weight, bias, 1e-5) if centred else rms_norm(x, weight, 1e-5)


def inputs(*shape: int, dtype: torch.dtype, device: str) -> list[Tensor]:
    """Return x, weight, bias and the gradient of the result."""
    random = torch.Generator().manual_seed(0)
    x, g = (torch.randn(shape, generator=random).to(dtype) for _ in range(2))
    weight, bias = (torch.randn(shape[-1], generator=random) for _ in range(2))
    return [t.to(device) for t in (x * 3 + 1, weight, bias, g)]


def check(
    shape: tuple[int, ...], centred: bool, has_bias: bool, dtype: torch.dtype, device: str, bound: float
) -> None:
    *leaves, g = inputs(*shape, dtype=dtype, device=device)
    leaves = [t.requires_grad_() for t in (leaves if has_bias else leaves[:2])]
    x, weight = leaves[:2]
    bias = leaves[2] if has_bias else None
    got = normalized(x, weight, bias, 1e-5, centred=centred)
    want = reference(x, weight, bias, centred)
    assert got.dtype == x.dtype
    torch.testing.assert_close(got, want, rtol=bound, atol=bound)
    for name, a, b in zip(
        ["x", "weight", "bias"],
        torch.autograd.grad(got, leaves, g),
        torch.autograd.grad(want, leaves, g),
        strict=False,
    ):
        assert float((a - b).abs().max()) <= bound * max(1.0, float(b.abs().max())), name


@KINDS
@pytest.mark.parametrize("shape", [(1, 1), (7, 33), (2, 3, 130), (5, 64)])
def test_values_and_gradients_equal_the_textbook(
    shape: tuple[int, ...], centred: bool, has_bias: bool, device: str
) -> None:
    check(shape, centred, has_bias, torch.float32, device, 1e-5)


@KINDS
def test_bfloat16_differs_by_its_rounding_alone(centred: bool, has_bias: bool, device: str) -> None:
    check((9, 48), centred, has_bias, torch.bfloat16, device, 2**-7)


@few
@given(
    st.integers(1, 20), st.integers(16, 300), st.booleans()
)  # in narrower rows, all digits of x − mean may cancel
def test_every_shape_equals_the_textbook(device: str, n_rows: int, width: int, centred: bool) -> None:
    check((n_rows, width), centred, centred, torch.float32, device, 1e-5)


def test_rows_apart_in_memory_are_read(device: str) -> None:
    x = torch.randn(6, 40, device=device)[:, ::2]
    weight = torch.randn(20, device=device)
    torch.testing.assert_close(normalized(x, weight, None, 1e-5, centred=False), rms_norm(x, weight, 1e-5))
