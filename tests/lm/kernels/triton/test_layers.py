"""Norms and cross-entropy by Triton equal the textbook in values and gradients."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from bytemill.lm.kernels.triton import layers as module
from bytemill.lm.kernels.triton import linear_losses, losses_and_gradients, normalized
from bytemill.lm.loss import cross_entropy, token_losses, token_losses_and_log_z
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
@pytest.mark.parametrize("shape", [(1, 1), (2, 3, 33)])
def test_values_and_gradients_equal_the_textbook(
    shape: tuple[int, ...], centred: bool, has_bias: bool, device: str
) -> None:
    check(shape, centred, has_bias, torch.float32, device, 1e-5)


@KINDS
def test_bfloat16_differs_by_its_rounding_alone(centred: bool, has_bias: bool, device: str) -> None:
    check((9, 48), centred, has_bias, torch.bfloat16, device, 2**-7)


# In narrower rows, all digits of x − mean may cancel.
@few
@given(st.integers(1, 9), st.integers(16, 300), st.booleans())
def test_every_shape_equals_the_textbook(device: str, n_rows: int, width: int, centred: bool) -> None:
    check((n_rows, width), centred, centred, torch.float32, device, 1e-5)


def test_rows_apart_in_memory_are_read(device: str) -> None:
    x = torch.randn(6, 40, device=device)[:, ::2]
    weight = torch.randn(20, device=device)
    torch.testing.assert_close(normalized(x, weight, None, 1e-5, centred=False), rms_norm(x, weight, 1e-5))


Z_LOSS = 0.01


def random_logits(n_rows: int, vocab_size: int, scale: float = 3.0) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(0)
    logits = torch.randn(n_rows, vocab_size, generator=random) * scale
    return logits, torch.randint(vocab_size, (n_rows,), generator=random)


def check_losses(
    logits: Tensor, targets: Tensor, device: str, soft_cap: float | None = None, bound: float = 1e-5
) -> None:
    logits, targets = logits.to(device), targets.to(device)
    x = logits.float().clone().requires_grad_()
    want, want_log_z = token_losses_and_log_z(
        x if soft_cap is None else soft_cap * torch.tanh(x / soft_cap), targets
    )
    (want_gradient,) = torch.autograd.grad((want + Z_LOSS * want_log_z.square()).mean(), x)
    losses, log_z, gradients = losses_and_gradients(
        logits.detach().clone(), targets[:, None], len(logits), Z_LOSS, soft_cap
    )
    torch.testing.assert_close(log_z[:, 0], want_log_z, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(losses[:, 0], want, rtol=1e-5, atol=1e-5)
    assert gradients.dtype == logits.dtype
    assert float((gradients.float() - want_gradient).abs().max()) <= bound / len(logits)


@pytest.mark.parametrize("soft_cap", [None, 5.0])
@pytest.mark.parametrize(
    ("n_rows", "vocab_size"), [(1, 1), (5, 257), pytest.param(33, 1000, marks=pytest.mark.slow)]
)
def test_losses_and_gradients_equal_the_textbook(
    n_rows: int, vocab_size: int, soft_cap: float | None, device: str
) -> None:
    check_losses(*random_logits(n_rows, vocab_size), device, soft_cap)


@pytest.mark.parametrize("soft_cap", [None, 5.0])
def test_columns_beyond_the_ids_change_nothing(soft_cap: float | None, device: str) -> None:
    logits, targets = random_logits(3, 100)
    padded = torch.nn.functional.pad(logits, (0, 28), value=50.0).to(device)
    targets = targets[:, None].to(device)
    want = losses_and_gradients(logits.to(device), targets, 3, Z_LOSS, soft_cap)
    losses, log_z, gradients = losses_and_gradients(padded, targets, 3, Z_LOSS, soft_cap, 100)
    for got, expected in zip((losses, log_z, gradients[:, :100]), want, strict=True):
        torch.testing.assert_close(got, expected)
    assert not gradients[:, 100:].any()


def test_bfloat16_gradients_differ_by_their_rounding_alone(device: str) -> None:
    logits, targets = random_logits(9, 300)
    check_losses(logits.bfloat16(), targets, device, bound=2**-7)


@few
@given(st.integers(1, 3), st.integers(1, 300))
def test_vocabularies_larger_than_a_block_equal_the_textbook(
    device: str, n_rows: int, vocab_size: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_MAX_BLOCK", 64)
        check_losses(*random_logits(n_rows, vocab_size), device)


def test_large_logits_lose_no_digits(device: str) -> None:
    logits, targets = random_logits(5, 100)
    logits = (logits + 1e4).to(device)
    losses, _, _ = losses_and_gradients(logits.clone(), targets.to(device)[:, None], 5)
    torch.testing.assert_close(losses[:, 0], token_losses(logits, targets.to(device)), rtol=1e-5, atol=1e-5)


def test_the_output_layer_has_the_gradients_of_the_textbook(device: str) -> None:
    random = torch.Generator().manual_seed(0)
    x = torch.randn(2, 7, 16, generator=random).to(device).requires_grad_()
    weight = torch.randn(50, 16, generator=random).to(device).requires_grad_()
    targets = torch.randint(50, (2, 7), generator=random).to(device)
    got, want = linear_losses(x, weight, targets, 0.01)[0], cross_entropy(x @ weight.mT, targets, 0.01)
    torch.testing.assert_close(got, want)
    for a, b in zip(
        torch.autograd.grad(got, [x, weight]), torch.autograd.grad(want, [x, weight]), strict=True
    ):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
