"""Checks of `kernels.functions`, which both implementations pass."""

from typing import Any

import pytest
import torch
from torch import Tensor

from bytemill.lm.model import causal_mask, rms_norm


def check_attention(
    functions: Any, device: str, shape: tuple[int, ...], n_kv_heads: int, **options: Any
) -> None:
    """Compare result, log-sum-exp and gradients with the formula, which stores all scores."""
    random = torch.Generator().manual_seed(0)
    own = shape if len(shape) == 3 else (shape[0], n_kv_heads, *shape[2:])
    leaves = [torch.randn(size, generator=random).to(device).requires_grad_() for size in (shape, own, own)]
    gradient = torch.randn(shape, generator=random).to(device)
    is_causal = options.get("is_causal", False)
    y, log_sums = functions.flash_attention(*leaves, **options)
    wide = [leaf.detach().double().requires_grad_() for leaf in leaves]
    want, want_sums = textbook(wide, is_causal, options.get("window"), options.get("document_starts"))
    assert not log_sums.requires_grad
    torch.testing.assert_close(log_sums, want_sums.detach().float(), rtol=1e-5, atol=1e-5)
    applied = functions.FlashAttention.apply(
        *leaves, is_causal, options.get("window"), options.get("document_starts")
    )
    saved = [t for t in applied.grad_fn.saved_tensors if t.shape == shape[:-1]]
    assert len(saved) == 1
    torch.testing.assert_close(saved[0], log_sums, rtol=1e-6, atol=1e-6)
    expected = [want, *torch.autograd.grad(want, wide, gradient.double())]
    for result in (y, applied):
        for a, b in zip([result, *torch.autograd.grad(result, leaves, gradient)], expected, strict=True):
            torch.testing.assert_close(a, b.float(), rtol=1e-4, atol=1e-5)


def textbook(
    heads: list[Tensor], is_causal: bool, window: int | None, starts: Tensor | None
) -> tuple[Tensor, Tensor]:
    q, k, v = heads
    if q.ndim == 4:
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    n_tokens, width = q.shape[-2:]
    scores = q @ k.mT / width**0.5
    if is_causal:
        mask = causal_mask(n_tokens, n_tokens, window, device=q.device)
        if starts is not None:
            mask = mask & (starts[:, None, :, None] <= torch.arange(n_tokens, device=q.device))
        scores = scores.masked_fill(~mask, -torch.inf)
    return scores.softmax(-1) @ v, scores.logsumexp(-1)


def check_norm(functions: Any, device: str) -> None:
    random = torch.Generator().manual_seed(0)
    x, gradient = (torch.randn(2, 3, 33, generator=random).to(device) for _ in range(2))
    leaves = [x.requires_grad_(), torch.randn(33, generator=random).to(device).requires_grad_()]
    want = rms_norm(leaves[0], leaves[1], 1e-5)
    expected = [want, *torch.autograd.grad(want, leaves, gradient)]
    for result in (functions.rms_norm(*leaves), functions.RMSNorm.apply(*leaves)):
        for a, b in zip([result, *torch.autograd.grad(result, leaves, gradient)], expected, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


ATTENTION_SHAPES: list[tuple[tuple[int, ...], int, dict[str, Any]]] = [
    ((1, 70, 16), 1, {}),  # several blocks, the last one incomplete
    ((2, 9, 16), 1, {"is_causal": True}),
    ((2, 4, 9, 8), 2, {}),
    ((1, 2, 37, 16), 1, {"is_causal": True, "window": 20}),
    ((2, 1, 20, 8), 1, {"is_causal": True, "document_starts": [0] * 13 + [13] * 7}),
]


def check_all_attention(functions: Any, device: str) -> None:
    for shape, n_kv_heads, options in ATTENTION_SHAPES:
        tensors = {
            name: torch.tensor([value] * shape[0], device=device) if name == "document_starts" else value
            for name, value in options.items()
        }
        check_attention(functions, device, shape, n_kv_heads, **tensors)


def check_refusals(functions: Any, device: str) -> None:
    q, other = torch.zeros(1, 2, 3, 4, device=device), torch.zeros(1, 2, 5, 4, device=device)
    with pytest.raises(ValueError, match="the same batch, number of tokens and width"):
        functions.flash_attention(q, other, other)
    with pytest.raises(ValueError, match="need is_causal"):
        functions.flash_attention(q, q, q, window=2)
    with pytest.raises(ValueError, match="3 or 4 dimensions"):
        functions.flash_attention(q[0, 0], q[0, 0], q[0, 0])
    with pytest.raises(ValueError, match="multiple"):
        functions.flash_attention(q[:, :1], q, q)
