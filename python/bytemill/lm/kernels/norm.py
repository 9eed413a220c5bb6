"""RMSNorm and LayerNorm that save their input and one or two numbers per row."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bytemill.lm.kernels.rows import row_blocks
from bytemill.lm.tensors import widened


def normalized(x: Tensor, weight: Tensor, bias: Tensor | None, eps: float, *, centred: bool) -> Tensor:
    """Compute (x − mean) / √(variance + eps) · weight + bias over the last dimension; mean = 0 if not `centred`."""
    return cast("Tensor", _Normalized.apply(x, weight, bias, eps, centred))  # pyright: ignore[reportUnknownMemberType]


class _Normalized(torch.autograd.Function):
    @staticmethod
    def forward(  # noqa: PLR0917 - autograd passes positional arguments
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, eps: float, centred: bool
    ) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        result = torch.empty_like(rows)
        statistics = [
            torch.empty(len(rows), 1, device=x.device, dtype=widened(x[:0]).dtype) for _ in range(1 + centred)
        ]
        for block in row_blocks(rows):
            wide = widened(rows[block])
            if centred:
                statistics[1][block] = mean = wide.mean(-1, keepdim=True)
                wide = wide - mean
            scale = wide.square().mean(-1, keepdim=True).add_(eps).rsqrt_()
            statistics[0][block] = scale
            unit = wide * scale
            if bias is None:
                torch.mul(unit, weight, out=result[block])
            else:
                torch.addcmul(bias, unit, weight, out=result[block])
        ctx.save_for_backward(rows, weight, *statistics)
        ctx.has_bias = bias is not None
        return result.view(x.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor | None, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        rows, weight, scales, *means = ctx.saved_tensors
        gradients = gradient.reshape(rows.shape)
        d_x = torch.empty_like(rows)
        d_weight = torch.zeros_like(weight, dtype=scales.dtype)
        d_bias = torch.zeros_like(d_weight) if ctx.has_bias else None
        wide_weight = widened(weight) / rows.shape[-1]  # the product with it is a mean
        for block in row_blocks(rows):
            x, g, scale = widened(rows[block]), widened(gradients[block]), scales[block]
            unit = (x - means[0][block]).mul_(scale) if means else x * scale
            if d_bias is not None:
                d_bias += g.sum(0)
            product = g * unit
            d_weight += product.sum(0)
            # x̂: normalized rows, h = g ⊙ weight: dx = scale (h − mean(h) − x̂ mean(h ⊙ x̂)); RMSNorm has no mean(h).
            along = (product @ wide_weight)[:, None]
            h = torch.mul(g, weight, out=product)
            if means:
                h.sub_(h.mean(-1, keepdim=True))
            torch.mul(h.addcmul_(unit, along, value=-1), scale, out=d_x[block])
        d_x, d_weight = d_x.view(gradient.shape), d_weight.to(weight.dtype)
        return d_x, d_weight, None if d_bias is None else d_bias.to(weight.dtype), None, None
