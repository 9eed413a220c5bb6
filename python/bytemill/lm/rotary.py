"""Position encodings: rotary embedding and sinusoids."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import Module

from bytemill.lm.kernels.choice import SCRATCH, Kernels

if TYPE_CHECKING:
    from collections.abc import Callable


class RotaryEmbedding(Module):
    """Rotate each pair (x₂ᵢ, x₂ᵢ₊₁) by the angle position · θ^(−2i/d_k) (Su et al. 2021).

    The product of a query and a key then depends on their distance only. The lookup tables are not part of the state
    dict, and stay float32 when the model is cast.

    Args:
        theta: Base θ of the wavelengths.
        d_k: Width of the vectors, an even number.
        max_seq_len: Number of positions.
        device: Device of the tables.
        frequencies: Replaces θ^(−2i/d_k), the radians per position of each pair; (d_k / 2,) in float64 on the CPU.
            A pair of frequency 0 is not rotated.
    """

    kernels: Kernels = SCRATCH
    rotations: Tensor  # (max_seq_len, d_k / 2, 2): cos and sin

    def __init__(
        self,
        theta: float,
        d_k: int,
        max_seq_len: int,
        device: torch.device | str | None = None,
        *,
        frequencies: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.d_k, self.max_seq_len = d_k, max_seq_len
        self.frequencies = rotary_frequencies(theta, d_k) if frequencies is None else frequencies
        self._make_tables(device)

    def forward(self, x: Tensor, token_positions: Tensor | None = None) -> Tensor:
        """Rotate queries or keys.

        Args:
            x: (..., n_tokens, d_k).
            token_positions: (n_tokens,), or broadcastable to (..., n_tokens); by default 0, 1, 2, …
        """
        rotations = (
            self.rotations[: x.shape[-2]] if token_positions is None else self.rotations[token_positions]
        )
        if self.kernels.rotary is not None and x.dtype != torch.float64:
            return self.kernels.rotary(x, rotations)
        cos, sin = rotations.unbind(-1)
        even, odd = x[..., 0::2], x[..., 1::2]
        rotated = torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1)
        return rotated.flatten(-2).to(x.dtype)

    def _make_tables(self, device: torch.device | str | None) -> None:
        angles = _angles(self.frequencies, self.max_seq_len)
        rotations = torch.stack((angles.cos(), angles.sin()), dim=-1).float()
        self.register_buffer("rotations", rotations.to(device), persistent=False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> RotaryEmbedding:
        super()._apply(fn, recurse)  # pyright: ignore[reportUnknownMemberType]
        # bfloat16 cannot tell positions above 256 apart, so the tables are computed again after a cast.
        self._make_tables(self.rotations.device)
        return self


def rotary_frequencies(theta: float, d_k: int) -> Tensor:
    """Return θ^(−2i/d_k), the radians per position of each pair, (d_k / 2,).

    In float64, on the CPU, because some devices lack float64; float32 has an error of 1e-3 rad at position 10,000.
    """
    return theta ** (-torch.arange(0, d_k, 2, dtype=torch.float64, device="cpu") / d_k)


def llama3_frequencies(
    frequencies: Tensor, factor: float, low_freq_factor: float, high_freq_factor: float, original_context: int
) -> Tensor:
    """Return the scaled frequencies of Llama 3.1 (Grattafiori et al. 2024).

    Pairs that turn less than `low_freq_factor` times in the original context turn `factor` times slower, those that
    turn more than `high_freq_factor` times are unchanged, and those between are interpolated.

    Args:
        frequencies: Result of `rotary_frequencies`.
        factor: Factor of the context length.
        low_freq_factor: Number of turns.
        high_freq_factor: Number of turns.
        original_context: Context length before scaling.
    """
    turns = original_context * frequencies / (2 * math.pi)
    kept = ((turns - low_freq_factor) / (high_freq_factor - low_freq_factor)).clamp(0, 1)
    return frequencies * (kept + (1 - kept) / factor)


def sinusoids(n_positions: int, d_model: int, theta: float = 10_000.0) -> Tensor:
    """Return (n_positions, d_model): alternating sin and cos of position · θ^(−2i/d_model) (Vaswani et al. 2017)."""
    angles = _angles(rotary_frequencies(theta, d_model), n_positions)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2).float()


def _angles(frequencies: Tensor, n_positions: int) -> Tensor:
    """Return (n_positions, n_frequencies) in float64."""
    return torch.outer(torch.arange(n_positions, dtype=torch.float64, device="cpu"), frequencies)
