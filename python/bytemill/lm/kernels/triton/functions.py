"""FlashAttention and RMSNorm as functions of their own, by Triton's kernels; `kernels.functions` has torch's."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bytemill.lm.kernels.functions import check_attention, with_heads
from bytemill.lm.kernels.triton.attention import attend, attend_backward, first_keys
from bytemill.lm.kernels.triton.layers import normalize, normalize_backward

_LOG2_E = math.log2(math.e)


def flash_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    is_causal: bool = False,
    window: int | None = None,
    document_starts: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute `kernels.functions.flash_attention`, whose arguments, results and errors it has."""
    check_attention(q, k, v, window, document_starts, is_causal=is_causal)
    first = first_keys(q, window, document_starts)
    result, log_sums = attend(*(with_heads(x) for x in (q, k, v)), first, is_causal=is_causal)
    return result.reshape(q.shape), log_sums.detach().reshape(q.shape[:-1]) / _LOG2_E


class FlashAttention(torch.autograd.Function):
    """`flash_attention` as a function of autograd, which gives the result alone and saves log Σ exp."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        is_causal: bool = False,
        window: int | None = None,
        document_starts: Tensor | None = None,
    ) -> Tensor:
        """Return the result; see `flash_attention` for the arguments."""
        result, log_sums = flash_attention(q, k, v, is_causal, window, document_starts)
        ctx.save_for_backward(q, k, v, result, log_sums)
        ctx.first, ctx.is_causal = first_keys(q, window, document_starts), is_causal
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the gradients of queries, keys and values."""
        q, k, v, result, log_sums = ctx.saved_tensors
        heads = [with_heads(x) for x in (gradient, q, k, v)]
        log2_sums = (log_sums * _LOG2_E).view(with_heads(q).shape[:-1])
        gradients = attend_backward(*heads, ctx.first, with_heads(result), log2_sums, ctx.is_causal)
        own = (x.reshape(like.shape) for x, like in zip(gradients, (q, k, v), strict=True))
        return *own, None, None, None


def rms_norm(x: Tensor, weight: Tensor, eps: float = 1e-5) -> Tensor:
    """Compute x / √(mean(x²) + eps) · weight over the last dimension, in float32; the result has the type of `x`."""
    return normalize(x.reshape(-1, x.shape[-1]), weight, None, eps, False)[0].view(x.shape)


class RMSNorm(torch.autograd.Function):
    """`rms_norm` as a function of autograd."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float = 1e-5) -> Tensor:
        """Return the result; see `rms_norm`."""
        result, statistics = normalize(x.reshape(-1, x.shape[-1]), weight, None, eps, False)
        ctx.save_for_backward(x, weight, statistics)
        return result.view(x.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the gradients of `x` and `weight`."""
        x, weight, statistics = ctx.saved_tensors
        rows = (t.reshape(-1, x.shape[-1]) for t in (gradient, x))
        d_x, d_weight, _ = normalize_backward(*rows, weight, statistics, False)
        return d_x.view(x.shape), d_weight, None
