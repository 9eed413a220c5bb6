"""Layers: linear, embedding, norms, dropout, feed-forward networks. `...` in a shape stands for batch dimensions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor
from torch.nn import Module, Parameter

from bytemill.lm.activations import gelu, relu, relu_squared, silu
from bytemill.lm.initialization import truncated_normal
from bytemill.lm.kernels.choice import SCRATCH, Kernels
from bytemill.lm.tensors import narrowed, widened

if TYPE_CHECKING:
    from collections.abc import Callable

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
    """Compute y = W x (+ b): (..., d_in) -> (..., d_out).

    The initial weights are normal with σ² = 2 / (d_in + d_out), truncated at ±3σ; the initial bias is 0.

    Args:
        d_in: Width of the input.
        d_out: Width of the output; `weight` has shape (d_out, d_in).
        bias: Add a bias.
        device: Device of the weights.
        dtype: Type of the weights.
    """

    kernels: Kernels = SCRATCH

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
        if self.kernels.linear is not None:
            return self.kernels.linear(x, self.weight, self.bias)
        y = x @ self.weight.mT
        return y if self.bias is None else y + self.bias.to(y.dtype)


class Embedding(Module):
    """Look up a vector for each id: (...) of integers -> (..., d_model).

    Args:
        num_embeddings: Number of ids.
        d_model: Width of the vectors.
        std: Standard deviation σ of the initial weights, which are normal and truncated at ±3σ.
        device: Device of the weights.
        dtype: Type of the weights.
    """

    kernels: Kernels = SCRATCH

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
        if self.kernels.embedding is not None:
            return self.kernels.embedding(self.weight, ids)
        # Equal to weight[ids], whose gradients are summed by several threads in any order.
        return self.weight.index_select(0, ids.reshape(-1)).view(*ids.shape, self.weight.shape[1])


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Compute x / √(mean(x²) + eps) · weight over the last dimension, in float32; the result has the type of `x`."""
    wide = widened(x)
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (wide * scale * weight).to(x.dtype)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor | None, eps: float) -> Tensor:
    """Compute (x − mean) / √(variance + eps) · weight + bias over the last dimension, in float32."""
    wide = widened(x)
    centred = wide - wide.mean(-1, keepdim=True)
    scale = torch.rsqrt(centred.square().mean(-1, keepdim=True) + eps)
    y = centred * scale * weight
    return (y if bias is None else y + bias).to(x.dtype)


def gated(gate: Tensor, x: Tensor) -> Tensor:
    """Compute silu(gate) ⊙ x."""
    return silu(gate) * x


class RMSNorm(Module):
    """RMSNorm (Zhang & Sennrich 2019): x / √(mean(x²) + eps) · weight over the last dimension, in float32."""

    kernels: Kernels = SCRATCH

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
        if self.kernels.norm is not None:
            return self.kernels.norm(x, self.weight, None, self.eps, centred=False)
        return rms_norm(x, self.weight, self.eps)


class LayerNorm(Module):
    """LayerNorm (Ba et al. 2016): (x − mean) / √(variance + eps) · weight + bias, in float32."""

    kernels: Kernels = SCRATCH

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
        if self.kernels.norm is not None:
            return self.kernels.norm(x, self.weight, self.bias, self.eps, centred=True)
        return layer_norm(x, self.weight, self.bias, self.eps)


class Dropout(Module):
    """Dropout: in training mode, zero each number with probability `p` and divide the others by 1 − p."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        kept = torch.rand(x.shape, device=x.device) >= self.p
        return x * kept / (1 - self.p)


class SwiGLU(Module):
    """Feed-forward network W₂ (silu(W₁ x) ⊙ W₃ x), of width d_model (Shazeer 2020).

    `d_ff` is `swiglu_width(d_model)` by default.
    """

    kernels: Kernels = SCRATCH

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
        x = narrowed(x)
        return self.w2((self.kernels.gated or gated)(self.w1(x), self.w3(x)))


def _tanh_gelu(x: Tensor) -> Tensor:
    return gelu(x, "tanh")


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": _tanh_gelu,
    "gelu_exact": gelu,
    "relu": relu,
    "relu2": relu_squared,
}
"""Activation functions of `FeedForward` by the name in `ModelConfig.feed_forward`; "gelu" is GPT-2's, with tanh."""


class FeedForward(Module):
    """Feed-forward network W₂ f(W₁ x), of width d_model, with f from `ACTIVATIONS`."""

    kernels: Kernels = SCRATCH

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        activation: Literal["gelu", "gelu_exact", "relu", "relu2"] = "gelu",
        *,
        bias: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.activation = activation
        self._function = ACTIVATIONS[activation]
        self.w1 = Linear(d_model, d_ff, bias, device=device, dtype=dtype)
        self.w2 = Linear(d_ff, d_model, bias, device=device, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        function = self.kernels.activations.get(self.activation, self._function)
        return self.w2(function(self.w1(narrowed(x))))


def swiglu_width(d_model: int) -> int:
    """Return the multiple of 64 nearest to 8/3 · d_model: three matrices then equal two of width 4 · d_model.

    >>> swiglu_width(512)
    1344
    """
    return max(64, round(8 * d_model / 3 / 64) * 64)
