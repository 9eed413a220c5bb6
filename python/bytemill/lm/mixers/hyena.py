"""Hyena (Poli et al. 2023): gates and long convolutions, whose filters are the result of a small network.

    (x₀, …, x_N₋₁, v) = short convolution(W u),    v ← h_n ∗ (x_n ⊙ v) for n = N − 1, …, 1,    output = W_o (x₀ ⊙ v)

A filter h(t) of each channel is a network of sines of features of the distance t, times an exponential that falls at a
different rate in each channel. The parallel form convolves by FFT, in n log n steps. The recurrent form computes one
token as the sum over all cached values, in n steps: a filter of this kind has no state of a fixed size.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self, cast

import torch
from torch import Tensor
from torch.nn import Module, ModuleList, Parameter

from bytemill.errors import ModelConfigError
from bytemill.lm.mixers.state import (
    RecurrentMixer,
    ShortConvolution,
    StateCache,
    divided,
    in_full_precision,
    without_padding,
)
from bytemill.lm.model import Linear
from bytemill.lm.tensors import widened

if TYPE_CHECKING:
    from bytemill.lm.mixer_settings import HyenaConfig
    from bytemill.lm.model import LayerCache, RotaryEmbedding
    from bytemill.lm.model_config import ModelConfig

_FREQUENCY = 10.0
"""Initial frequency of the sines of the network."""
_FASTEST, _SLOWEST, _TARGET = 0.3, 1.5, 0.01
"""The exponentials fall to the target at these shares of the context."""


def fft_convolution(x: Tensor, filters: Tensor) -> Tensor:
    """Compute yₜ = Σₛ≤ₜ hₜ₋ₛ xₛ of each channel, by the fast Fourier transform of twice the length.

    Args:
        x: (batch, n_tokens, n_channels).
        filters: (at least n_tokens, n_channels).
    """
    fft: Any = cast("Any", torch.fft)
    n = 2 * x.shape[1]
    product = fft.rfft(x, n=n, dim=1) * fft.rfft(filters[: x.shape[1]], n=n, dim=0)
    return fft.irfft(product, n=n, dim=1)[:, : x.shape[1]]


def last_of_convolution(x: Tensor, filters: Tensor) -> Tensor:
    """Compute the last token of `fft_convolution` as a sum, (batch, 1, n_channels)."""
    return (x * filters[: x.shape[1]].flip(0)).sum(1, keepdim=True)


class HyenaFilter(Module):
    """The network of the long filters: a number of distances -> (n_distances, n_channels).

    Args:
        n_channels: Number of channels.
        context_length: Largest number of distances.
        settings: Sizes of the network.
        device: Device of the weights.
        dtype: Type of the weights.
    """

    def __init__(
        self,
        n_channels: int,
        context_length: int,
        settings: HyenaConfig,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.n_channels, self.context_length = n_channels, context_length
        self.n_features, width = settings.filter_features, settings.filter_width
        widths = [self.n_features, *[width] * settings.filter_layers]
        self.layers = ModuleList(
            Linear(d_in, d_out, True, device=device, dtype=dtype) for d_in, d_out in pairwise(widths)
        )
        self.frequency = Parameter(torch.full((width,), _FREQUENCY, device=device, dtype=dtype))
        self.last = Linear(width, n_channels, device=device, dtype=dtype)

    def forward(self, n_distances: int) -> Tensor:
        """Compute the filters of the first distances."""
        weight = self.last.weight
        x = self._features(n_distances).to(weight.device, torch.promote_types(weight.dtype, torch.float32))
        time = x[:, :1]
        for layer in self.layers:
            x = torch.sin(self.frequency * layer(x.to(weight.dtype)))
        rates = torch.linspace(
            -math.log(_TARGET) / _FASTEST,
            -math.log(_TARGET) / _SLOWEST,
            self.n_channels,
            device=weight.device,
        )
        return widened(self.last(x)) * torch.exp(-time * rates.to(time.dtype))

    def _features(self, n_distances: int) -> Tensor:
        """Return (n_distances, n_features): distance by context, and cosines and sines of several frequencies."""
        distances = torch.arange(n_distances, dtype=torch.float64, device="cpu")[:, None]
        n_bands = (self.n_features - 1) // 2
        bands = torch.linspace(1e-4, max(n_bands - 1, 1e-4), n_bands, dtype=torch.float64, device="cpu")
        angles = 2 * math.pi * distances / self.context_length * bands
        return torch.cat((distances / max(1, self.context_length - 1), angles.cos(), -angles.sin()), dim=1)


class Hyena(RecurrentMixer):
    """A Hyena layer: (batch, n_tokens, d_model) -> the same shape. It takes no position encoding.

    Args:
        d_model: Width of the input.
        context_length: Largest number of tokens.
        settings: Its other sizes.
        bias: Add a bias to the projections.
        device: Device of the weights.
        dtype: Type of the weights.
    """

    def __init__(
        self,
        d_model: int,
        context_length: int,
        settings: HyenaConfig,
        *,
        bias: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.d_model, self.order = d_model, settings.order
        n_channels = (settings.order + 1) * d_model
        self.in_proj = Linear(d_model, n_channels, bias, device=device, dtype=dtype)
        self.convolution = ShortConvolution(
            n_channels, settings.convolution, bias=True, device=device, dtype=dtype
        )
        n_filters = (settings.order - 1) * d_model
        self.filters = HyenaFilter(n_filters, context_length, settings, device=device, dtype=dtype)
        self.skip = Parameter(torch.ones(n_filters, device=device, dtype=dtype))
        self.output_proj = Linear(d_model, d_model, bias, device=device, dtype=dtype)

    @classmethod
    def of(
        cls,
        config: ModelConfig,
        rope: RotaryEmbedding | None = None,  # noqa: ARG003
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> Self:
        """Build the mixer of a model."""
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        return cls(config.d_model, config.context_length, config.hyena, bias=config.bias, **place)

    @staticmethod
    def new_cache(
        config: ModelConfig, batch_size: int, device: torch.device | str | None, dtype: torch.dtype
    ) -> LayerCache:
        """Return an empty cache of a layer: the inputs of the convolutions."""
        own, d = config.hyena, config.d_model
        inputs = {f"inputs {n}": (config.context_length, d) for n in range(1, own.order)}
        shapes = {"convolution": (own.convolution - 1, (own.order + 1) * d), **inputs}
        return StateCache(batch_size, shapes, device, dtype, by_position=inputs.keys())

    def mix(
        self, x: Tensor, real: Tensor | None, cache: StateCache | None, document_starts: Tensor | None
    ) -> Tensor:
        """Mix the tokens of (batch, n_tokens, d_model); `real` is False for padding.

        Raises:
            ModelConfigError: There are documents, which a Fourier transform cannot keep apart.
        """
        if document_starts is not None:
            raise ModelConfigError(
                "mixer 'hyena' cannot keep documents apart, since its filters span the whole window",
                hint="leave out --training.document-mask, or choose another mixer",
            )
        inner = self.in_proj(x)
        with in_full_precision(x.device):
            inner = self.convolution(without_padding(inner, real), cache=cache)
            *gates, values = divided(without_padding(inner, real), [self.d_model] * (self.order + 1))
            filters = self._filters(x.shape[1], cache)
            for n in range(self.order - 1, 0, -1):
                own = slice((n - 1) * self.d_model, n * self.d_model)
                values = gates[n] * values
                convolved = self._convolve(values, filters[:, own], cache, f"inputs {n}")
                values = convolved + values * self.skip[own]
            values = gates[0] * values
        return self.output_proj(values.to(x.dtype))

    def _filters(self, n_tokens: int, cache: StateCache | None) -> Tensor:
        if cache is None:
            return self.filters(n_tokens)
        if "filters" not in cache.constants:
            cache.constants["filters"] = self.filters(self.filters.context_length)
        return cache.constants["filters"]

    def _convolve(self, values: Tensor, filters: Tensor, cache: StateCache | None, name: str) -> Tensor:
        if cache is None:
            return fft_convolution(values, filters)
        n_before, n_tokens = cache.n_positions, values.shape[1]
        inputs = cache[name]
        inputs[:, n_before : n_before + n_tokens] = values
        joined = inputs[:, : n_before + n_tokens]
        convolve = last_of_convolution if n_tokens == 1 else fft_convolution
        return convolve(joined, filters)[:, -n_tokens:]

    @staticmethod
    def check(config: ModelConfig) -> None:
        """Raise ModelConfigError if the number of features is even."""
        if config.hyena.filter_features % 2 == 0:
            raise ModelConfigError(
                f"hyena.filter_features is {config.hyena.filter_features}",
                hint="choose an odd number: one for the distance, and pairs of cosines and sines",
            )

    @staticmethod
    def matrices(config: ModelConfig) -> int:
        """Return the number of parameters in its matrices."""
        own, d = config.hyena, config.d_model
        return (own.order + 2) * d * d + _filter_matrices(config)

    @staticmethod
    def vectors(config: ModelConfig) -> int:
        """Return the number of its other parameters."""
        own, d = config.hyena, config.d_model
        biases = (own.order + 2) * d if config.bias else 0
        short = (own.convolution + 1) * (own.order + 1) * d
        return short + (own.order - 1) * d + (own.filter_layers + 1) * own.filter_width + biases

    @staticmethod
    def flops(config: ModelConfig, n_tokens: int) -> dict[str, int]:
        """Return the FLOPs of a forward pass over one sequence, by step.

        Filters, which a batch computes once, count for each sequence; Fourier transforms, n log n, do not count.
        """
        own, d = config.hyena, config.d_model
        return {
            "hyena projections": 2 * n_tokens * (own.order + 2) * d * d,
            "hyena filters": 2 * n_tokens * _filter_matrices(config),
        }


def _filter_matrices(config: ModelConfig) -> int:
    own = config.hyena
    inner = (own.filter_features + (own.filter_layers - 1) * own.filter_width) * own.filter_width
    return inner + own.filter_width * (own.order - 1) * config.d_model
