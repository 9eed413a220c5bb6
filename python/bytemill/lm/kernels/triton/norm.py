"""RMSNorm and LayerNorm, forward and backward, each in one kernel.

For a row x of width d, with r = 1 / √(mean((x − m)²) + eps), where m is mean(x) in LayerNorm and 0 in RMSNorm:

    x̂ = (x − m) r,    y = x̂ ⊙ w + b.

Let g be the gradient of y, and h = g ⊙ w the gradient of x̂. Then dw = Σ g ⊙ x̂ and db = Σ g over rows. Since
∂r/∂xⱼ = −r³ (xⱼ − m) / d = −r² x̂ⱼ / d, the gradient of an RMSNorm's input is

    dxⱼ = r hⱼ + Σᵢ hᵢ xᵢ ∂r/∂xⱼ = r (hⱼ − x̂ⱼ mean(h ⊙ x̂)).

In LayerNorm, each xᵢ − m also loses xⱼ / d, which subtracts the mean: dx = r (h − mean(h) − x̂ mean(h ⊙ x̂)).

One program computes one row of y, which it reads once and keeps in registers. It saves r, and m in LayerNorm. In the
backward pass, a program processes many rows and keeps its share of dw and db in registers; torch adds the shares up.
All arithmetic is float32.
"""

# pyright: basic, reportArgumentType=false, reportCallIssue=false
# pyright: reportAttributeAccessIssue=false, reportOperatorIssue=false
# Triton has no types, and its functions are not Python's: a compiler reads them.

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

_PROGRAMS_PER_PROCESSOR = 4


def normalized(x: Tensor, weight: Tensor, bias: Tensor | None, eps: float, *, centred: bool) -> Tensor:
    """Compute (x − mean) / √(variance + eps) · weight + bias over the last dimension; mean = 0 if not `centred`."""
    return _normalize(x.reshape(-1, x.shape[-1]), weight, bias, eps, centred)[0].view(x.shape)


@triton.jit
def _forward_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, statistics_ptr, width, eps, CENTRED: tl.constexpr, BLOCK: tl.constexpr
):
    row, n_rows = tl.program_id(0), tl.num_programs(0)
    columns = tl.arange(0, BLOCK)
    is_inside = columns < width
    offsets = row.to(tl.int64) * width + columns
    x = tl.load(x_ptr + offsets, mask=is_inside, other=0.0).to(tl.float32)
    if CENTRED:
        mean = tl.sum(x, 0) / width
        x = tl.where(is_inside, x - mean, 0.0)
        tl.store(statistics_ptr + n_rows + row, mean)
    scale = 1 / tl.sqrt(tl.sum(x * x, 0) / width + eps)
    tl.store(statistics_ptr + row, scale)
    y = x * scale * tl.load(weight_ptr + columns, mask=is_inside, other=0.0).to(tl.float32)
    if bias_ptr is not None:
        y += tl.load(bias_ptr + columns, mask=is_inside, other=0.0).to(tl.float32)
    tl.store(y_ptr + offsets, y, mask=is_inside)


@triton.jit
def _backward_kernel(
    gradient_ptr,
    x_ptr,
    weight_ptr,
    statistics_ptr,
    d_x_ptr,
    d_weight_ptr,
    d_bias_ptr,
    n_rows,
    width,
    CENTRED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    program = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    is_inside = columns < width
    weight = tl.load(weight_ptr + columns, mask=is_inside, other=0.0).to(tl.float32)
    d_weight = tl.zeros([BLOCK], tl.float32)
    d_bias = tl.zeros([BLOCK], tl.float32)
    for row in range(program, n_rows, tl.num_programs(0)):
        offsets = tl.cast(row, tl.int64) * width + columns
        x = tl.load(x_ptr + offsets, mask=is_inside, other=0.0).to(tl.float32)
        g = tl.load(gradient_ptr + offsets, mask=is_inside, other=0.0).to(tl.float32)
        scale = tl.load(statistics_ptr + row)
        if CENTRED:
            x = tl.where(is_inside, x - tl.load(statistics_ptr + n_rows + row), 0.0)
        unit = x * scale
        d_weight += g * unit
        d_bias += g
        h = g * weight
        d_x = h - unit * (tl.sum(h * unit, 0) / width)
        if CENTRED:
            d_x -= tl.sum(h, 0) / width
        tl.store(d_x_ptr + offsets, d_x * scale, mask=is_inside)
    tl.store(d_weight_ptr + program * width + columns, d_weight, mask=is_inside)
    if d_bias_ptr is not None:
        tl.store(d_bias_ptr + program * width + columns, d_bias, mask=is_inside)


@torch.library.custom_op("bytemill::normalize", mutates_args=())
def _normalize(
    x: Tensor, weight: Tensor, bias: Tensor | None, eps: float, centred: bool
) -> tuple[Tensor, Tensor]:
    """Return y, and the statistics (1 + centred, n_rows): scales, and means if `centred`."""
    x = x.contiguous()
    y, statistics = _empty_results(x, weight, bias, eps, centred)
    if len(x):
        block, warps = _block(x.shape[1])
        _forward_kernel[(len(x),)](
            x, weight, bias, y, statistics, x.shape[1], eps, CENTRED=centred, BLOCK=block, num_warps=warps
        )
    return y, statistics


@_normalize.register_fake
def _empty_results(
    x: Tensor, weight: Tensor, bias: Tensor | None, eps: float, centred: bool
) -> tuple[Tensor, Tensor]:
    del weight, bias, eps
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    return y, torch.empty(1 + centred, x.shape[0], device=x.device)


@torch.library.custom_op("bytemill::normalize_backward", mutates_args=())
def _normalize_backward(
    gradient: Tensor, x: Tensor, weight: Tensor, statistics: Tensor, has_bias: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of x, weight and bias; the last is empty without a bias."""
    gradient, x = gradient.contiguous(), x.contiguous()
    n_rows, width = x.shape
    n_programs = min(n_rows, _n_processors(x.device) * _PROGRAMS_PER_PROCESSOR)
    d_x = torch.empty_like(x)
    d_weight = torch.empty(n_programs, width, device=x.device)
    d_bias = torch.empty_like(d_weight) if has_bias else None
    if n_rows:
        block, warps = _block(width)
        _backward_kernel[(n_programs,)](
            gradient,
            x,
            weight,
            statistics,
            d_x,
            d_weight,
            d_bias,
            n_rows,
            width,
            CENTRED=len(statistics) > 1,
            BLOCK=block,
            num_warps=warps,
        )
    sum_bias = weight.new_empty(0) if d_bias is None else d_bias.sum(0).to(weight.dtype)
    return d_x, d_weight.sum(0).to(weight.dtype), sum_bias


@_normalize_backward.register_fake
def _empty_gradients(
    gradient: Tensor, x: Tensor, weight: Tensor, statistics: Tensor, has_bias: bool
) -> tuple[Tensor, Tensor, Tensor]:
    del gradient, statistics
    d_x = torch.empty_like(x, memory_format=torch.contiguous_format)
    return d_x, torch.empty_like(weight), weight.new_empty(len(weight) if has_bias else 0)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, weight, bias, _, _ = inputs
    ctx.save_for_backward(x, weight, output[1])
    ctx.has_bias = bias is not None


def _backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    d_x, d_weight, d_bias = _normalize_backward(gradient, *ctx.saved_tensors, ctx.has_bias)
    return d_x, d_weight, d_bias if ctx.has_bias else None, None, None


_normalize.register_autograd(_backward, setup_context=_save)


def _block(width: int) -> tuple[int, int]:
    """Return the number of columns of a program, a power of two, and its number of warps."""
    block = triton.next_power_of_2(width)
    return block, min(16, max(1, block // 256))


def _n_processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1
