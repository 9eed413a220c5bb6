"""Cross-entropy by Triton equals the textbook in values and gradients."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from bytemill.lm.kernels.triton import layers as module
from bytemill.lm.kernels.triton import linear_losses, losses_and_gradients
from bytemill.lm.loss import cross_entropy, token_losses, token_losses_and_log_z
from tests.support.examples import few

Z_LOSS = 0.01


def random_logits(n_rows: int, vocab_size: int, scale: float = 3.0) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(0)
    logits = torch.randn(n_rows, vocab_size, generator=random) * scale
    return logits, torch.randint(vocab_size, (n_rows,), generator=random)


def check(
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
@pytest.mark.parametrize(("n_rows", "vocab_size"), [(1, 1), (1, 7), (7, 257), (33, 1000)])
def test_values_and_gradients_equal_the_textbook(
    n_rows: int, vocab_size: int, soft_cap: float | None, device: str
) -> None:
    check(*random_logits(n_rows, vocab_size), device, soft_cap)


@pytest.mark.parametrize("soft_cap", [None, 5.0])
def test_columns_beyond_the_ids_change_nothing(soft_cap: float | None, device: str) -> None:
    logits, targets = random_logits(9, 100)
    padded = torch.nn.functional.pad(logits, (0, 28), value=50.0).to(device)
    targets = targets[:, None].to(device)
    want = losses_and_gradients(logits.to(device), targets, 9, Z_LOSS, soft_cap)
    losses, log_z, gradients = losses_and_gradients(padded, targets, 9, Z_LOSS, soft_cap, 100)
    for got, expected in zip((losses, log_z, gradients[:, :100]), want, strict=True):
        torch.testing.assert_close(got, expected)
    assert not gradients[:, 100:].any()


def test_bfloat16_gradients_differ_by_their_rounding_alone(device: str) -> None:
    logits, targets = random_logits(9, 300)
    check(logits.bfloat16(), targets, device, bound=2**-7)


@few
@given(st.integers(1, 12), st.integers(1, 600))
def test_vocabularies_larger_than_a_block_equal_the_textbook(
    device: str, n_rows: int, vocab_size: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_MAX_BLOCK", 64)
        check(*random_logits(n_rows, vocab_size), device)


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
