"""Linear layers in float32 by oneDNN.

torch computes float32 products on x86 with MKL, which uses at most 256 bits of a register on processors of other makers
than Intel. oneDNN uses 512 there: on AMD's Zen 5 its products take half the time. Products in bfloat16
are oneDNN's already.
"""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


@cache
def prefers_onednn() -> bool:
    """Return True on x86 processors with AVX-512 of other makers than Intel, if torch has oneDNN."""
    if not torch.backends.mkldnn.is_available() or torch.backends.cpu.get_cpu_capability() != "AVX512":
        return False
    try:
        vendor = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:  # not Linux
        vendor = platform.processor()
    return "GenuineIntel" not in vendor


def product(left: Tensor, right: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute left @ right.T + bias, with left (..., d) and right (n, d); both may be transposed views."""
    if torch.compiler.is_compiling():
        return _opaque_product(left, right, bias)
    return torch.ops.mkldnn._linear_pointwise(left, right, bias, "none", [], "")


@torch.library.custom_op("bytemill::product", mutates_args=())
def _opaque_product(left: Tensor, right: Tensor, bias: Tensor | None) -> Tensor:
    """`product` for torch.compile, whose own version of the operation accepts constant weights only."""
    return torch.ops.mkldnn._linear_pointwise(left, right, bias, "none", [], "")


@_opaque_product.register_fake  # pyright: ignore[reportUnknownMemberType, reportUntypedFunctionDecorator]
def _(left: Tensor, right: Tensor, _bias: Tensor | None) -> Tensor:
    return left.new_empty(*left.shape[:-1], right.shape[0])


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute x @ weight.T + bias; types other than float32 by torch."""
    if x.dtype != torch.float32 or weight.dtype != torch.float32 or torch.is_autocast_enabled("cpu"):
        y = x @ weight.mT
        return y if bias is None else y + bias.to(y.dtype)
    if not torch.is_grad_enabled():
        return product(x, weight, bias)
    return cast("Tensor", _Linear.apply(x, weight, bias))  # pyright: ignore[reportUnknownMemberType]


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.has_bias = bias is not None
        return product(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, weight = ctx.saved_tensors
        rows, gradients = x.reshape(-1, x.shape[-1]), gradient.reshape(-1, gradient.shape[-1])
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        d_x = product(gradients, weight.mT).view(x.shape) if needs_x else None
        d_weight = product(gradients.mT, rows.mT) if needs_weight else None
        return d_x, d_weight, gradients.sum(0) if needs_bias else None
