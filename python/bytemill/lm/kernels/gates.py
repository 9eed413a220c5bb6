"""Activations of feed-forward networks that save only their inputs."""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bytemill.lm.kernels.rows import row_blocks
from bytemill.lm.tensors import widened

_SLOPE, _CUBE = math.sqrt(2 / math.pi), 0.044715


def gated_silu(gate: Tensor, x: Tensor) -> Tensor:
    """Compute silu(gate) ⊙ x, of equal shapes."""
    return cast("Tensor", _GatedSilu.apply(gate, x))  # pyright: ignore[reportUnknownMemberType]


def gelu_tanh(x: Tensor) -> Tensor:
    """Compute the GELU of GPT-2: x/2 · (1 + tanh(√(2/π) (x + 0.044715 x³)))."""
    return cast("Tensor", _GeluTanh.apply(x))  # pyright: ignore[reportUnknownMemberType]


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


class _GeluTanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        result = torch.empty_like(rows)
        for block in row_blocks(rows):
            a = widened(rows[block])
            torch.mul(_tanh_term(a).add_(1).mul_(a), 0.5, out=result[block])
        ctx.save_for_backward(rows)
        return result.view(x.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        (rows,) = ctx.saved_tensors
        gradients = gradient.reshape(rows.shape)
        d_x = torch.empty_like(rows)
        for block in row_blocks(rows):
            a = widened(rows[block])
            tanh = _tanh_term(a)
            # ½ (1 + t) + ½ a (1 − t²) √(2/π) (1 + 3 · 0.044715 a²)
            inner = a.square().mul_(3 * _CUBE).add_(1).mul_(0.5 * _SLOPE).mul_(a)
            inner.addcmul_(inner, tanh.square(), value=-1)
            torch.mul(tanh.add_(1).mul_(0.5).add_(inner), widened(gradients[block]), out=d_x[block])
        return d_x.view(gradient.shape)


def _tanh_term(a: Tensor) -> Tensor:
    return a.square().mul_(_CUBE).add_(1).mul_(a).mul_(_SLOPE).tanh_()
