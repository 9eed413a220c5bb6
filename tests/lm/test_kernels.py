"""The choice of kernels by device, and products by oneDNN."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bytemill.errors import RunConfigError
from bytemill.lm.kernels import choice
from bytemill.lm.kernels.choice import SCRATCH, Kernels, choose_kernels
from bytemill.lm.kernels.layers import gelu_by_sigmoid, linear, linear_losses
from bytemill.lm.loss import cross_entropy
from bytemill.lm.model import ModelConfig, TransformerLM
from bytemill.lm.tuning.responses import logits_of
from tests.lm.conftest import sizes

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
widths = st.integers(1, 9)


def test_a_new_model_and_scratch_are_the_textbook() -> None:
    config = ModelConfig(vocab_size=9, context_length=4, d_model=8, num_layers=1, num_heads=2, d_ff=8)
    assert TransformerLM(config).kernels is SCRATCH
    assert choose_kernels("scratch", CUDA) == Kernels() == SCRATCH


def test_all_modules_of_a_model_share_the_choice() -> None:
    config = ModelConfig(vocab_size=9, context_length=4, d_model=8, num_layers=1, num_heads=2, d_ff=8)
    model = TransformerLM(config).use_kernels("auto")
    asked = [module for module in model.modules() if hasattr(module, "kernels")]
    assert len(asked) > 10
    assert all(module.kernels is model.kernels for module in asked)


def test_a_policy_and_its_reference_have_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "prefers_onednn", torch.backends.mkldnn.is_available)
    config = ModelConfig(vocab_size=99, context_length=32, d_model=96, num_layers=2, num_heads=4, d_ff=160)
    model, ids = TransformerLM(config, seed=1).use_kernels("auto"), torch.arange(32)[None]
    policy = logits_of(model.train(), ids)
    assert torch.equal(logits_of(model.eval(), ids), policy)
    assert torch.equal(model.logits(model.hidden(ids)), policy)
    torch.testing.assert_close(model(ids), policy, rtol=1e-4, atol=1e-5)


def test_auto_is_torchs_on_cuda_and_ours_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_kernels("auto", CUDA).attention is choose_kernels("torch", CUDA).attention
    assert choose_kernels("auto", CPU).norm is not None
    assert choose_kernels("auto", CPU, compiled=True).norm is None  # the compiler fuses the textbook's
    for prefers in (True, False):
        monkeypatch.setattr(choice, "prefers_onednn", lambda prefers=prefers: prefers)
        assert (choose_kernels("auto", CPU).linear is not None) == prefers


def test_auto_on_a_gpu_takes_the_loss_of_triton_where_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    gpu = torch.device("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for capability, is_triton in (((9, 0), True), ((7, 0), True), ((6, 1), False)):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _, found=capability: found)
        expected = choice.triton_kernels().losses if is_triton else linear_losses
        assert choose_kernels("auto", gpu).losses is expected
        assert choose_kernels("torch", gpu).losses is linear_losses
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_kernels("auto", gpu).losses is linear_losses


def test_triton_needs_its_package_and_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for is_installed, device, message in ((True, CPU, "need a GPU"), (False, CUDA, "not installed")):
        monkeypatch.setattr(choice, "find_spec", lambda _, found=is_installed: object() if found else None)
        with pytest.raises(RunConfigError, match=message) as failure:
            choose_kernels("triton", device)
        assert "--training.kernels auto" in str(failure.value.hint)


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
def test_triton_replaces_norms_attention_and_loss_on_cuda() -> None:
    kernels, torchs = choose_kernels("triton", CUDA), choose_kernels("torch", CUDA)
    assert kernels.norm is not torchs.norm
    assert kernels.attention is not torchs.attention
    assert kernels.losses is not torchs.losses
    assert kernels.masked_attention is torchs.masked_attention


@given(
    st.lists(widths, max_size=2),
    widths,
    widths,
    st.booleans(),
    st.sampled_from([torch.float32, torch.float64]),
)
def test_onednn_gives_the_products_of_torch(
    batch: list[int], d_in: int, d_out: int, has_bias: bool, dtype: torch.dtype
) -> None:
    generator = torch.Generator().manual_seed(d_in)
    shapes = [(*batch, d_in), (d_out, d_in), *([(d_out,)] if has_bias else [])]
    inputs = [torch.randn(*s, generator=generator, dtype=dtype).requires_grad_() for s in shapes]
    bias = inputs[2] if has_bias else None
    ours = linear(inputs[0], inputs[1], bias)
    theirs = torch.nn.functional.linear(inputs[0], inputs[1], bias)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    gradient = torch.randn(ours.shape, generator=generator, dtype=dtype)
    pairs = zip(*(torch.autograd.grad(y, inputs, gradient) for y in (ours, theirs)), strict=True)
    for a, b in pairs:
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
    with torch.no_grad():
        torch.testing.assert_close(linear(inputs[0], inputs[1], bias), theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gelu_by_sigmoid_is_the_tanh_approximation(dtype: torch.dtype) -> None:
    x = torch.linspace(-30, 30, 2001, dtype=dtype).requires_grad_()
    ours, theirs = gelu_by_sigmoid(x), torch.nn.functional.gelu(x, approximate="tanh")
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)
    gradients = [torch.autograd.grad(y.sum(), x)[0] for y in (ours, theirs)]
    torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "options", [{}, {"bias": True}, {"attention": {"num_kv_heads": 2, "qkv_bias": True}}]
)
def test_compiled_models_on_a_gpu_have_the_gradients_of_others(options: dict[str, Any]) -> None:
    sizes_ = sizes(50, 16, 32, 2, 4, 64)
    config = ModelConfig(**sizes_, feed_forward="gelu", **options)
    ids = torch.randint(50, (2, 17), generator=torch.Generator().manual_seed(0))
    found: list[list[torch.Tensor]] = []
    for kernels in (choose_kernels("scratch", CPU), choose_kernels("torch", CUDA, compiled=True)):
        model = TransformerLM(config, seed=0).use_kernels(kernels)
        model.loss(ids[:, :-1], ids[:, 1:]).backward()
        found.append([parameter.grad for parameter in model.parameters() if parameter.grad is not None])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


@pytest.mark.gpu
@pytest.mark.parametrize("n_ids", [1000, 1024])
def test_the_output_layer_in_bfloat16_pads_its_vocabulary(n_ids: int) -> None:
    random = torch.Generator("cuda").manual_seed(0)
    x = torch.randn(20_000, 64, generator=random, device="cuda").requires_grad_()
    weight = torch.randn(n_ids, 64, generator=random, device="cuda").requires_grad_()
    targets = torch.randint(n_ids, (20_000,), generator=random, device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        got = choice.triton_kernels().losses(x, weight, targets, 0.01, soft_cap=None)[0]  # pyright: ignore[reportOptionalCall]
    want = cross_entropy(x @ weight.mT, targets, 0.01)
    torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-3)
    for a, b in zip(
        torch.autograd.grad(got, [x, weight]), torch.autograd.grad(want, [x, weight]), strict=True
    ):
        assert a.dtype == torch.float32
        assert float((a - b).norm() / b.norm()) < 0.02
