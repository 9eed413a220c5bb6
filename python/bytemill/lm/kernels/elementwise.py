"""Norms, gates, activations and rotations in blocks of rows, which stay in the processor's cache."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bytemill.lm.tensors import widened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    _Function = Callable[[Tensor, Tensor], None]
    _Derivative = Callable[[Tensor], Tensor]


# Numbers per block on the CPU: two or three float32 temporaries fit in the caches of two cores. With half as many, the
# calls cost more than the cache saves: a step of `tiny` takes 5 % longer.
_BLOCK = 2**17


def row_blocks(x: Tensor) -> Iterator[slice]:
    """Yield slices of the rows of `x` (n_rows, width) to process in turn; on other devices than the CPU, one slice."""
    n_rows = len(x)
    step = max(1, _BLOCK // x.shape[-1]) if x.device.type == "cpu" else max(1, n_rows)
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))


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


_SLOPE, _CUBE = math.sqrt(2 / math.pi), 0.044715


def gated_silu(gate: Tensor, x: Tensor) -> Tensor:
    """Compute silu(gate) ⊙ x, of equal shapes."""
    return cast("Tensor", _GatedSilu.apply(gate, x))  # pyright: ignore[reportUnknownMemberType]


def gelu_tanh(x: Tensor) -> Tensor:
    """Compute the GELU of GPT-2: x/2 · (1 + tanh(√(2/π) (x + 0.044715 x³)))."""
    return _elementwise(x, _gelu_tanh, _gelu_tanh_derivative)


def gelu_erf(x: Tensor) -> Tensor:
    """Compute the exact GELU: x/2 · (1 + erf(x/√2))."""
    return _elementwise(x, _gelu_erf, _gelu_erf_derivative)


def squared_relu(x: Tensor) -> Tensor:
    """Compute max(x, 0)²."""
    return _elementwise(x, _squared_relu, _squared_relu_derivative)


def _elementwise(x: Tensor, function: _Function, derivative: _Derivative) -> Tensor:
    return cast("Tensor", _Elementwise.apply(x, function, derivative))  # pyright: ignore[reportUnknownMemberType]


class _GatedSilu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate: Tensor, x: Tensor) -> Tensor:
        gates, rows = gate.reshape(-1, gate.shape[-1]), x.reshape(-1, x.shape[-1])
        result = torch.empty_like(rows)
        for block in row_blocks(rows):
            a = widened(gates[block])
            torch.mul(torch.sigmoid(a).mul_(a), rows[block], out=result[block])
        ctx.save_for_backward(gates, rows)
        return result.view(x.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:  # pyright: ignore[reportIncompatibleMethodOverride]
        gates, rows = ctx.saved_tensors
        gradients = gradient.reshape(rows.shape)
        d_gate, d_x = torch.empty_like(gates), torch.empty_like(rows)
        one = torch.ones((), device=rows.device, dtype=widened(rows[:0]).dtype)
        for block in row_blocks(rows):
            a, b, g = widened(gates[block]), widened(rows[block]), widened(gradients[block])
            sigmoid = torch.sigmoid(a)
            silu = sigmoid * a
            torch.mul(g, silu, out=d_x[block])
            # silu′ = σ + a σ (1 − σ) = silu + σ (1 − silu)
            torch.mul(silu.lerp_(one, sigmoid).mul_(b), g, out=d_gate[block])
        return d_gate.view(gradient.shape), d_x.view(gradient.shape)


class _Elementwise(torch.autograd.Function):
    """A function of each number: `function(x, out)` writes its values, `derivative(x)` returns its derivative."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, function: _Function, derivative: _Derivative) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        result = torch.empty_like(rows)
        for block in row_blocks(rows):
            function(widened(rows[block]), result[block])
        ctx.save_for_backward(rows)
        ctx.derivative = derivative
        return result.view(x.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        (rows,) = ctx.saved_tensors
        gradients = gradient.reshape(rows.shape)
        d_x = torch.empty_like(rows)
        for block in row_blocks(rows):
            torch.mul(ctx.derivative(widened(rows[block])), widened(gradients[block]), out=d_x[block])
        return d_x.view(gradient.shape), None, None


def _tanh_term(a: Tensor) -> Tensor:
    return a.square().mul_(_CUBE).add_(1).mul_(a).mul_(_SLOPE).tanh_()


def _gelu_tanh(a: Tensor, out: Tensor) -> None:
    torch.mul(_tanh_term(a).add_(1).mul_(a), 0.5, out=out)


def _gelu_tanh_derivative(a: Tensor) -> Tensor:
    # ½ (1 + t) + ½ a (1 − t²) √(2/π) (1 + 3 · 0.044715 a²)
    tanh = _tanh_term(a)
    inner = a.square().mul_(3 * _CUBE).add_(1).mul_(0.5 * _SLOPE).mul_(a)
    inner.addcmul_(inner, tanh.square(), value=-1)
    return tanh.add_(1).mul_(0.5).add_(inner)


def _gelu_erf(a: Tensor, out: Tensor) -> None:
    torch.mul((a * math.sqrt(0.5)).erf_().add_(1).mul_(a), 0.5, out=out)


def _gelu_erf_derivative(a: Tensor) -> Tensor:
    # Φ(a) + a φ(a)
    density = a.square().mul_(-0.5).exp_().mul_(1 / math.sqrt(2 * math.pi))
    return (a * math.sqrt(0.5)).erf_().add_(1).mul_(0.5).addcmul_(a, density)


def _squared_relu(a: Tensor, out: Tensor) -> None:
    torch.mul(a, a.clamp_min(0), out=out)


def _squared_relu_derivative(a: Tensor) -> Tensor:
    return a.clamp_min(0).mul_(2)


def rotate_pairs(x: Tensor, rotations: Tensor) -> Tensor:
    """Rotate neighbouring pairs of `x` as complex numbers: (even + i odd) (cos + i sin).

    Args:
        x: (..., n_tokens, d_k).
        rotations: cos and sin, broadcastable to (..., n_tokens, d_k / 2, 2), in float32.
    """
    wide = x.float() if x.stride(-1) == 1 else x.float().contiguous()
    pairs = torch.view_as_complex(wide.view(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * torch.view_as_complex(rotations)).flatten(-2).to(x.dtype)
