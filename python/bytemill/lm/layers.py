"""Layers: linear, embedding, norms, feed-forward networks. `...` in a shape is any number of batch dimensions."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn import Module, Parameter

from bytemill.lm.activations import gelu, relu, silu
from bytemill.lm.initialization import truncated_normal
from bytemill.lm.kernels.gates import gated_silu, gelu_tanh
from bytemill.lm.kernels.norm import normalized
from bytemill.lm.kernels.rows import by_hand
from bytemill.lm.tensors import widened

__all__ = [
    "Dropout",
    "Embedding",
    "FeedForward",
    "LayerNorm",
    "Linear",
    "RMSNorm",
    "SwiGLU",
    "gated",
    "gelu",
    "layer_norm",
    "relu",
    "rms_norm",
    "silu",
    "swiglu_width",
]


class Linear(Module):
    """y = W x (+ b): (..., d_in) -> (..., d_out), with `weight` of shape (d_out, d_in).

    Weights start normal with σ² = 2 / (d_in + d_out), cut at ±3σ; the bias starts at 0.
    """

    def __init__(
        self,
        d_in: int,
        d_out: int,
        bias: bool = False,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        std = math.sqrt(2 / (d_in + d_out))
        self.weight = Parameter(truncated_normal(d_out, d_in, std=std, device=device, dtype=dtype))
        self.bias = Parameter(torch.zeros(d_out, device=device, dtype=dtype)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        y = x @ self.weight.mT
        return y if self.bias is None else y + self.bias


class Embedding(Module):
    """A vector for each id: (...) of integers -> (..., d_model); starts normal with the given σ, cut at ±3σ."""

    def __init__(
        self,
        num_embeddings: int,
        d_model: int,
        std: float = 1.0,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.weight = Parameter(
            truncated_normal(num_embeddings, d_model, std=std, device=device, dtype=dtype)
        )

    def forward(self, ids: Tensor) -> Tensor:
        return self.weight[ids]


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x / √(mean(x²) + eps) · weight over the last dimension, computed in float32 and cast back."""
    wide = widened(x)
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (wide * scale * weight).to(x.dtype)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor | None, eps: float) -> Tensor:
    """(x − mean) / √(variance + eps) · weight + bias over the last dimension, computed in float32 and cast back."""
    wide = widened(x)
    centred = wide - wide.mean(-1, keepdim=True)
    scale = torch.rsqrt(centred.square().mean(-1, keepdim=True) + eps)
    y = centred * scale * weight
    return (y if bias is None else y + bias).to(x.dtype)


def gated(gate: Tensor, x: Tensor) -> Tensor:
    """silu(gate) ⊙ x."""
    return silu(gate) * x


class RMSNorm(Module):
    """x / √(mean(x²) + eps) · weight over the last dimension (Zhang & Sennrich 2019), computed in float32."""

    def __init__(
        self,
        d_model: int,
        eps: float = 1e-5,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.eps = eps
        self.weight = Parameter(torch.ones(d_model, device=device, dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        if by_hand(x):
            return normalized(x, self.weight, None, self.eps, centred=False)
        return rms_norm(x, self.weight, self.eps)


class LayerNorm(Module):
    """(x − mean) / √(variance + eps) · weight + bias over the last dimension (Ba et al. 2016), in float32."""

    def __init__(
        self,
        d_model: int,
        eps: float = 1e-5,
        bias: bool = True,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.eps = eps
        self.weight = Parameter(torch.ones(d_model, device=device, dtype=dtype))
        self.bias = Parameter(torch.zeros(d_model, device=device, dtype=dtype)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        if by_hand(x):
            return normalized(x, self.weight, self.bias, self.eps, centred=True)
        return layer_norm(x, self.weight, self.bias, self.eps)


class Dropout(Module):
    """While training, zeroes each number with probability `p` and divides the others by 1 − p."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        kept = torch.rand(x.shape, device=x.device) >= self.p
        return x * kept / (1 - self.p)


class SwiGLU(Module):
    """W₂ (silu(W₁ x) ⊙ W₃ x): (..., d_model) -> (..., d_model) (Shazeer 2020)."""

    def __init__(
        self,
        d_model: int,
        d_ff: int | None = None,
        bias: bool = False,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        d_ff = swiglu_width(d_model) if d_ff is None else d_ff
        self.w1 = Linear(d_model, d_ff, bias, device=device, dtype=dtype)
        self.w2 = Linear(d_ff, d_model, bias, device=device, dtype=dtype)
        self.w3 = Linear(d_model, d_ff, bias, device=device, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        gate, inner = self.w1(x), self.w3(x)
        return self.w2(gated_silu(gate, inner) if by_hand(x) else gated(gate, inner))


class FeedForward(Module):
    """W₂ f(W₁ x): (..., d_model) -> (..., d_model), with f = relu or GPT-2's gelu (its tanh form)."""

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        activation: Literal["gelu", "relu"] = "gelu",
        *,
        bias: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.activation = activation
        self.w1 = Linear(d_model, d_ff, bias, device=device, dtype=dtype)
        self.w2 = Linear(d_ff, d_model, bias, device=device, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.w1(x)
        if self.activation == "relu":
            return self.w2(relu(inner))
        return self.w2(gelu_tanh(inner) if by_hand(x) else gelu(inner, "tanh"))


def swiglu_width(d_model: int) -> int:
    """The multiple of 64 nearest to 8/3 · d_model: as many weights in three matrices as two of 4 · d_model have.

    >>> swiglu_width(512)
    1344
    """
    return max(64, round(8 * d_model / 3 / 64) * 64)
