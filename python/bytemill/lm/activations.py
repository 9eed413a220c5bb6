"""Activation functions and softmax."""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bytemill.lm.tensors import widened


def silu(x: Tensor) -> Tensor:
    """Compute x · σ(x) (Hendrycks & Gimpel 2016, there "SiL")."""
    return x * torch.sigmoid(x)


def gelu(x: Tensor, approximate: Literal["none", "tanh"] = "none") -> Tensor:
    """Compute x · Φ(x), with Φ the normal distribution function, or the tanh approximation of GPT-2.

    Computed in float32 or wider; the result has the type of `x`.
    """
    wide = widened(x)
    if approximate == "tanh":
        curve = torch.tanh(math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3))
    else:
        curve = torch.erf(wide * math.sqrt(0.5))
    return (0.5 * wide * (1 + curve)).to(x.dtype)


def relu(x: Tensor) -> Tensor:
    """Compute max(x, 0)."""
    return x.clamp_min(0)


def relu_squared(x: Tensor) -> Tensor:
    """Compute max(x, 0)² (So et al. 2021)."""
    return relu(x).square()


def soft_capped(x: Tensor, cap: float) -> Tensor:
    """Compute cap · tanh(x / cap), between −cap and cap, in float32 or wider; the result has the type of `x`."""
    return (cap * torch.tanh(widened(x) / cap)).to(x.dtype)


def softmax(x: Tensor, dim: int) -> Tensor:
    """Compute exp(x) / Σ exp(x) along `dim`, in float32 or wider; the result has the type of `x`.

    The maximum is subtracted first, so that no exponential overflows. Where all numbers are −∞, the result is 0
    (`torch.softmax` gives NaN).
    """
    if torch.compiler.is_compiling():  # torch 2.11 compiles _Softmax to code with other gradients
        wide = widened(x)
        weights = (wide - _maximum(wide.detach(), dim)).exp()
        total = weights.sum(dim, keepdim=True)
        return (weights / (total + (total == 0))).to(x.dtype)
    result: Tensor = _Softmax.apply(x, dim)  # pyright: ignore[reportUnknownMemberType, reportAssignmentType]
    return result


def _maximum(x: Tensor, dim: int) -> Tensor:
    # If all numbers are −∞: −∞ − (−∞) is NaN, but −∞ − (the lowest finite number) is −∞.
    return x.amax(dim, keepdim=True).clamp_min_(torch.finfo(x.dtype).min)


class _Softmax(torch.autograd.Function):
    """Softmax in one buffer; only the result is saved for the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int) -> Tensor:
        wide = widened(x)
        weights = (wide - _maximum(wide, dim)).exp_()
        # The maximum adds exp(0) = 1, so the sum is below 1 only if all numbers are −∞.
        weights.div_(weights.sum(dim, keepdim=True).clamp_min_(1))
        weights = weights.to(x.dtype)
        ctx.save_for_backward(weights)
        ctx.dim = dim
        return weights

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        (weights,) = ctx.saved_tensors
        # dxᵢ = wᵢ (gᵢ − Σⱼ gⱼ wⱼ)
        product = gradient * weights
        total = product.sum(ctx.dim, keepdim=True)
        return product.sub_(weights * total), None
