"""Cross-entropy in its three forms against torch, perplexity and bits per byte."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from bytemill import Tokenizer
from bytemill.formats.spec import TokenFlags
from bytemill.lm import loss
from bytemill.lm.kernels import layers
from bytemill.lm.kernels.layers import linear_cross_entropy, linear_losses
from bytemill.lm.loss import (
    bits_per_byte,
    cross_entropy,
    mean_losses,
    perplexity,
    text_nats_and_bytes,
    token_byte_counts,
    token_losses,
    token_losses_and_log_z,
)
from bytemill.lm.model import soft_capped

if TYPE_CHECKING:
    from torch import Tensor

shapes = st.lists(st.integers(1, 5), max_size=3)
scales = st.sampled_from([1.0, 1e4])


def assert_close(ours: Tensor, theirs: Tensor, dtype: torch.dtype = torch.float32) -> None:
    """Tolerance: float32 has 24 bits, minus rounding of sums; bfloat16 has 8, also for gradients (2⁻⁸ = 0.4 %)."""
    tolerance: Any = {"rtol": 1e-5, "atol": 1e-6} if dtype == torch.float32 else {"rtol": 1e-2, "atol": 1e-3}
    torch.testing.assert_close(ours.float(), theirs.float(), **tolerance)


@given(
    shapes, st.integers(1, 40), scales, st.sampled_from([torch.float32, torch.bfloat16]), st.integers(0, 99)
)
def test_cross_entropy_equals_torchs(
    shape: list[int], n_vocab: int, scale: float, dtype: torch.dtype, seed: int
) -> None:
    torch.manual_seed(seed)
    logits = (torch.randn(*shape, n_vocab) * scale).to(dtype).requires_grad_()
    targets = torch.randint(n_vocab, shape)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loss, "_BLOCK_CPU", 60)  # several blocks
        ours = cross_entropy(logits, targets)
        (gradient,) = torch.autograd.grad(ours, logits)
    assert ours.dtype == torch.float32
    assert gradient.dtype == dtype
    theirs = functional.cross_entropy(logits.reshape(-1, n_vocab).float(), targets.reshape(-1))
    assert_close(ours, theirs)
    assert_close(gradient, torch.autograd.grad(theirs, logits)[0], dtype)
    each = token_losses(logits, targets)
    assert each.shape == targets.shape
    assert_close(each.mean(), theirs)


def test_large_logits_and_masks_give_finite_losses() -> None:
    logits = torch.tensor([[1e4, -1e4, -math.inf], [-math.inf, 3.0, -math.inf]], requires_grad=True)
    each = token_losses(logits, torch.tensor([1, 1]))
    assert each.tolist() == [2e4, 0]
    each.sum().backward()
    assert logits.grad is not None
    assert logits.grad.tolist() == [[1, -1, 0], [0, 0, 0]]
    assert token_losses(logits.detach(), torch.tensor([2, 1])).tolist() == [math.inf, 0]


def test_the_z_loss_adds_the_squared_logarithm_of_the_normalizer() -> None:
    logits, targets = torch.randn(3, 7, 11, requires_grad=True), torch.randint(11, (3, 7))
    ours = cross_entropy(logits, targets, 0.1)
    theirs = functional.cross_entropy(logits.view(-1, 11), targets.view(-1))
    theirs = theirs + 0.1 * logits.logsumexp(-1).square().mean()
    assert_close(ours, theirs)
    gradient, expected = (torch.autograd.grad(value, logits)[0] for value in (ours, theirs))
    assert_close(gradient, expected)
    wide = logits.detach().double().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: cross_entropy(x, targets, 0.1), (wide,))
    assert torch.autograd.gradcheck(lambda x: token_losses_and_log_z(x, targets)[1], (wide,))
    assert cross_entropy(logits, targets, 0.0) == cross_entropy(logits, targets)


@pytest.mark.parametrize("block", [20, 1000])
@pytest.mark.parametrize("soft_cap", [None, 2.0])
def test_linear_losses_with_a_z_loss_equal_their_two_parts(
    block: int, soft_cap: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layers, "_LOGITS_CPU", block)
    torch.manual_seed(1)
    x, weight = torch.randn(6, 4, requires_grad=True), torch.randn(9, 4, requires_grad=True)
    targets = torch.randint(9, (6,))
    ours, plain = linear_losses(x, weight, targets, 0.3, soft_cap=soft_cap)
    logits = x @ weight.T
    theirs, expected = mean_losses(soft_capped(logits, soft_cap) if soft_cap else logits, targets, 0.3)
    assert_close(ours, theirs)
    assert not plain.requires_grad
    assert not expected.requires_grad
    assert_close(plain, expected)
    for a, b in zip(*(torch.autograd.grad(2 * v, (x, weight)) for v in (ours, theirs)), strict=True):
        assert_close(a, b)


@given(shapes, st.integers(1, 40), st.integers(1, 9), st.integers(1, 300), st.booleans(), st.integers(0, 99))
def test_linear_cross_entropy_equals_its_two_parts(
    shape: list[int], n_vocab: int, d: int, block: int, autocast: bool, seed: int
) -> None:
    torch.manual_seed(seed)
    x, weight = torch.randn(*shape, d, requires_grad=True), torch.randn(n_vocab, d, requires_grad=True)
    targets = torch.randint(n_vocab, shape)
    with pytest.MonkeyPatch.context() as patch, torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        patch.setattr(layers, "_LOGITS_CPU", block)
        ours = linear_cross_entropy(x, weight, targets)
        theirs = cross_entropy(x @ weight.T, targets)
    assert_close(ours, theirs)
    pairs = zip(
        torch.autograd.grad(3 * ours, (x, weight)), torch.autograd.grad(3 * theirs, (x, weight)), strict=True
    )
    for a, b in pairs:
        assert a.dtype == torch.float32
        tolerance: Any = {"rtol": 2e-2, "atol": 4e-2} if autocast else {"rtol": 1e-4, "atol": 1e-5}
        torch.testing.assert_close(a, b, **tolerance)
    with torch.no_grad():
        assert_close(linear_cross_entropy(x, weight, targets), cross_entropy(x @ weight.T, targets))


def test_a_second_backward_pass_is_refused() -> None:
    x, weight = torch.randn(3, 2, requires_grad=True), torch.randn(4, 2, requires_grad=True)
    value = linear_cross_entropy(x, weight, torch.tensor([0, 1, 2]))
    value.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="one backward pass"):
        value.backward()


def test_wrong_shapes_and_ids_are_refused() -> None:
    with pytest.raises(ValueError, match="do not match targets"):
        cross_entropy(torch.zeros(2, 3), torch.zeros(3, dtype=torch.long))
    with pytest.raises(RuntimeError, match="out of bounds"):
        cross_entropy(torch.zeros(1, 3), torch.tensor([3]))


def test_targets_of_any_integer_type() -> None:
    logits = torch.randn(2, 50_000)
    targets = torch.tensor([49_999, 40_000])
    assert cross_entropy(logits, targets.to(torch.uint16)) == cross_entropy(logits, targets)


def test_perplexity_of_a_uniform_choice_is_their_number() -> None:
    assert perplexity(cross_entropy(torch.zeros(4, 50), torch.arange(4)).item()) == pytest.approx(50)
    assert perplexity(1e9) == math.inf


def test_bits_per_byte_count_the_bytes_of_ordinary_tokens() -> None:
    vocab: dict[int, bytes] = {i: bytes([i]) for i in range(256)} | {256: "é".encode()}
    tokenizer = Tokenizer(vocab, [(b"\xc3", b"\xa9")], special_tokens=["<|endoftext|>"])
    counts = token_byte_counts(tokenizer)
    assert counts.counts[256] == 2
    assert counts.counts[257] == 0
    assert counts.counts.sum() == 256 + 2
    inputs, targets = torch.tensor([[257, 97, 256]]), torch.tensor([[97, 256, 257]])
    losses = torch.tensor([[1.0, 2.0, 100.0]])
    nats, n_bytes = text_nats_and_bytes(losses, inputs, targets, counts)
    assert (nats, n_bytes) == (3.0, 3)
    assert bits_per_byte(nats, n_bytes) == pytest.approx(1 / math.log(2))
    with pytest.raises(ValueError, match="no bytes"):
        bits_per_byte(0.0, 0)


@pytest.mark.parametrize("step", [("Prepend", " "), ("Metaspace", "always")])
def test_the_space_that_a_tokenizer_puts_before_texts_is_no_byte_of_them(step: tuple[str, ...]) -> None:
    vocab = {i: bytes([i]) for i in range(256)} | {256: b" a"}
    plain = Tokenizer(vocab, [(b" ", b"a")], special_tokens=["<s>", "<in>"])
    flags = {"<in>": TokenFlags(normalized=True)}
    tokenizer = Tokenizer.from_spec(replace(plain.to_spec(), normalizer=(step,), flags=flags))
    texts = ["a b a", "b", "", "aaa"]
    ids = torch.tensor(tokenizer.encode("<s>" + "<s>".join(texts)))
    assert (tokenizer.encode("a"), tokenizer.encode("b")) == ([256], [32, 98])
    for counts in (token_byte_counts(tokenizer), token_byte_counts(tokenizer).padded(300, ids.device)):
        nats, n_bytes = text_nats_and_bytes(torch.ones(len(ids) - 1), ids[:-1], ids[1:], counts)
        assert n_bytes == sum(map(len, texts))
        # The space itself must be predicted: it has a loss.
        assert nats == sum(int(i) < 257 for i in ids[1:])
        assert counts.begins is not None
        assert counts.begins[[97, 257, 258]].tolist() == [0, 1, 0]


def test_small_probabilities_keep_their_gradient_in_float16() -> None:
    n_tokens, vocab_size, scale = 512, 4096, 2.0**16
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n_tokens, 16, generator=generator)
    weight = torch.randn(vocab_size, 16, generator=generator) / 16
    targets = torch.randint(
        0, 8, (n_tokens,), generator=generator
    )  # all other ids have small probabilities only
    gradients: list[torch.Tensor] = []
    for dtype in (torch.float32, torch.float16):
        half = weight.detach().clone().to(dtype).requires_grad_()
        (linear_cross_entropy(x.to(dtype), half, targets) * scale).backward()
        assert half.grad is not None
        gradients.append(half.grad.float()[8:] / scale)
    assert (gradients[1] - gradients[0]).norm() < 0.01 * gradients[0].norm()
