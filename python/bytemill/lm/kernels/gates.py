"""Activations of feed-forward networks that save only their inputs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bytemill.lm.kernels.rows import row_blocks
from bytemill.lm.tensors import widened

if TYPE_CHECKING:
    from collections.abc import Callable

    _Function = Callable[[Tensor, Tensor], None]
    _Derivative = Callable[[Tensor], Tensor]

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
