"""Mamba-2 (Dao & Gu 2024): a state-space model with one decay per head, computed in chunks (SSD).

x, B, C = silu(convolution(W u)),    Δ = softplus(W_Δ u + b_Δ),    a = exp(−Δ exp(A))
Sₜ = aₜ Sₜ₋₁ + Bₜ (Δₜ xₜ)ᵀ,    yₜ = Sₜᵀ Cₜ + D xₜ,    output = W_o RMSNorm(y ⊙ silu(z))

RMSNorm is over each group of heads.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor
from torch.nn import Parameter

from bytemill.errors import ModelConfigError
from bytemill.lm.mixers.scan import chunked_scan, recurrent_scan, scan_flops
from bytemill.lm.mixers.state import (
    RecurrentMixer,
    ShortConvolution,
    StateCache,
    divided,
    in_full_precision,
    in_heads,
    softplus,
    without_padding,
)
from bytemill.lm.model import Linear, RMSNorm, rms_norm, silu
from bytemill.lm.tensors import widened

if TYPE_CHECKING:
    from bytemill.lm.mixer_settings import MambaConfig
    from bytemill.lm.model import LayerCache, RotaryEmbedding
    from bytemill.lm.model_config import ModelConfig


def initial_decay(
    n_heads: int, device: torch.device | str | None, dtype: torch.dtype | None
) -> tuple[Parameter, Parameter]:
    """Return log A, with A uniform from 1 to 16, and b_Δ, with softplus(b_Δ) log-uniform from 0.001 to 0.1."""
    uniform = (
        torch.zeros(2, n_heads) if torch.device(device or "cpu").type == "meta" else torch.rand(2, n_heads)
    )
    step = (uniform[1] * math.log(100) + math.log(0.001)).exp()
    log_rate, bias = (1 + 15 * uniform[0]).log(), step + (-torch.expm1(-step)).log()
    return Parameter(log_rate.to(device, dtype)), Parameter(bias.to(device, dtype))


class Mamba2(RecurrentMixer):
    """A Mamba-2 layer: (batch, n_tokens, d_model) -> the same shape. It takes no position encoding.

    Args:
        d_model: Width of the input.
        settings: Its other sizes.
        eps: Term added in the norm.
        bias: Add a bias to the projections.
        device: Device of the weights.
        dtype: Type of the weights.
    """

    def __init__(
        self,
        d_model: int,
        settings: MambaConfig,
        eps: float = 1e-5,
        *,
        bias: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.settings = settings
        self.width, self.n_heads, self.d_head = heads_of(settings, d_model)
        self.d_shared = settings.groups * settings.state
        n_channels = self.width + 2 * self.d_shared
        self.in_proj = Linear(
            d_model, self.width + n_channels + self.n_heads, bias, device=device, dtype=dtype
        )
        self.convolution = ShortConvolution(
            n_channels, settings.convolution, bias=True, device=device, dtype=dtype
        )
        self.log_rate, self.step_bias = initial_decay(self.n_heads, device, dtype)
        self.skip = Parameter(torch.ones(self.n_heads, device=device, dtype=dtype))
        self.norm = RMSNorm(self.width, eps, device=device, dtype=dtype)
        self.output_proj = Linear(self.width, d_model, bias, device=device, dtype=dtype)

    @classmethod
    def of(
        cls,
        config: ModelConfig,
        rope: RotaryEmbedding | None = None,  # noqa: ARG003
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> Self:
        """Build the mixer of a model."""
        return cls(
            config.d_model, config.mamba, config.norm_eps, bias=config.bias, device=device, dtype=dtype
        )

    @staticmethod
    def new_cache(
        config: ModelConfig, batch_size: int, device: torch.device | str | None, dtype: torch.dtype
    ) -> LayerCache:
        """Return an empty state of a layer."""
        own = config.mamba
        width, n_heads, d_head = heads_of(own, config.d_model)
        shapes = {
            "state": (n_heads, own.state, d_head),
            "convolution": (own.convolution - 1, width + 2 * own.groups * own.state),
        }
        return StateCache(batch_size, shapes, device, dtype)

    def mix(
        self, x: Tensor, real: Tensor | None, cache: StateCache | None, document_starts: Tensor | None
    ) -> Tensor:
        """Mix the tokens of (batch, n_tokens, d_model); `real` is False for padding."""
        own, n_tokens = self.settings, x.shape[1]
        n_inner = self.width + 2 * self.d_shared
        gate, inner, step = divided(self.in_proj(x), (self.width, n_inner, self.n_heads))
        with in_full_precision(x.device):
            inner = silu(self.convolution(without_padding(inner, real), document_starts, cache))
            values, b, c = divided(without_padding(inner, real), (self.width, self.d_shared, self.d_shared))
            values = in_heads(values, self.n_heads)
            # The heads of a group share B and C.
            b, c = (in_heads(each, own.groups) for each in (b, c))
            b, c = (each.repeat_interleave(self.n_heads // own.groups, dim=1) for each in (b, c))
            step = softplus(widened(step) + self.step_bias).mT
            log_decay = -step * widened(self.log_rate).exp()[:, None]
            written = values * step[..., None]
            shape = (len(x), self.n_heads, own.state, self.d_head)
            state = values.new_zeros(shape) if cache is None else cache["state"]
            if cache is not None and n_tokens == 1:
                y, state = recurrent_scan(c, b, written, log_decay, state)
            else:
                y, state = chunked_scan(
                    c, b, written, log_decay, state, chunk=own.chunk, document_starts=document_starts
                )
            if cache is not None:
                cache["state"] = state
            y = (y + values * self.skip[:, None, None]).transpose(1, 2).flatten(2)
            y = self._normalized(y * silu(widened(gate)))
        return self.output_proj(y.to(x.dtype))

    def _normalized(self, y: Tensor) -> Tensor:
        """Compute RMSNorm of each group of heads."""
        groups = (self.settings.groups, -1)
        rows = y.reshape(*y.shape[:-1], *groups)
        return rms_norm(rows, self.norm.weight.view(groups), self.norm.eps).flatten(2)

    @staticmethod
    def check(config: ModelConfig) -> None:
        """Raise ModelConfigError if sizes do not divide each other."""
        own = config.mamba
        width, n_heads, d_head = heads_of(own, config.d_model)
        if width % d_head or n_heads % own.groups:
            raise ModelConfigError(
                f"mamba.expand {own.expand} × d_model {config.d_model} is not a multiple of mamba.head_dim {d_head} × "
                f"mamba.groups {own.groups}",
                hint="choose another mamba.head_dim",
            )

    @staticmethod
    def matrices(config: ModelConfig) -> int:
        """Return the number of parameters in its matrices."""
        own, d = config.mamba, config.d_model
        width, n_heads, _ = heads_of(own, d)
        return d * (2 * width + 2 * own.groups * own.state + n_heads) + width * d

    @staticmethod
    def vectors(config: ModelConfig) -> int:
        """Return the number of its other parameters."""
        own, d = config.mamba, config.d_model
        width, n_heads, _ = heads_of(own, d)
        n_channels = width + 2 * own.groups * own.state
        biases = width + n_channels + n_heads + d if config.bias else 0
        return (own.convolution + 1) * n_channels + 3 * n_heads + width + biases

    @staticmethod
    def flops(config: ModelConfig, n_tokens: int) -> dict[str, int]:
        """Return the FLOPs of a forward pass over one sequence, by step."""
        own = config.mamba
        _, n_heads, d_head = heads_of(own, config.d_model)
        return {
            "mamba projections": 2 * n_tokens * Mamba2.matrices(config),
            "mamba state": scan_flops(n_tokens, own.chunk, n_heads, own.state, d_head),
        }


def heads_of(settings: MambaConfig, d_model: int) -> tuple[int, int, int]:
    """Return the inner width, the number of heads, and their width."""
    width = settings.expand * d_model
    d_head = settings.head_dim or math.gcd(64, width)
    return width, width // d_head, d_head
