"""Functions of single numbers, and softmax."""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bytemill.lm.tensors import widened


def silu(x: Tensor) -> Tensor:
    """x · σ(x), of any shape (Hendrycks & Gimpel 2016, there "SiL")."""
    return x * torch.sigmoid(x)


def gelu(x: Tensor, approximate: Literal["none", "tanh"] = "none") -> Tensor:
    """x · Φ(x) with the normal distribution function Φ, or GPT-2's approximation of it by tanh."""
    if approximate == "tanh":
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + torch.erf(x * math.sqrt(0.5)))


def relu(x: Tensor) -> Tensor:
    """max(x, 0), of any shape."""
    return x.clamp_min(0)


def softmax(x: Tensor, dim: int) -> Tensor:
    """exp(x) / Σ exp(x) along `dim`, of the same shape and type; computed in float32 at least.

    The maximum is subtracted first, so that no exponential overflows. Where every number is −∞, nothing has any
    weight: the result is 0 there (`torch.softmax` gives NaN).
    """
    result: Tensor = _Softmax.apply(x, dim)  # pyright: ignore[reportUnknownMemberType, reportAssignmentType]
    return result


class _Softmax(torch.autograd.Function):
    """Keeps its result alone for the backward pass, and makes it in one buffer."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int) -> Tensor:
        wide = widened(x)
        # A row of nothing but −∞: −∞ − (−∞) would be NaN, −∞ − (the least finite number) is −∞.
        greatest = wide.amax(dim, keepdim=True).clamp_min_(torch.finfo(wide.dtype).min)
        weights = (wide - greatest).exp_()
        # The greatest number adds exp(0) = 1, so the sum is below 1 only where all are −∞.
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
