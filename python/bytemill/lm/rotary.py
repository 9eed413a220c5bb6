"""Position encodings: rotary embedding and sinusoids."""

from __future__ import annotations

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
    """

    kernels: Kernels = SCRATCH
    rotations: Tensor  # (max_seq_len, d_k / 2, 2): cos and sin

    def __init__(
        self, theta: float, d_k: int, max_seq_len: int, device: torch.device | str | None = None
    ) -> None:
        super().__init__()
        self.theta, self.d_k, self.max_seq_len = theta, d_k, max_seq_len
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
        angles = _angles(self.theta, self.d_k, self.max_seq_len)
        rotations = torch.stack((angles.cos(), angles.sin()), dim=-1).float()
        self.register_buffer("rotations", rotations.to(device), persistent=False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> RotaryEmbedding:
        super()._apply(fn, recurse)  # pyright: ignore[reportUnknownMemberType]
        # bfloat16 cannot tell positions above 256 apart, so the tables are computed again after a cast.
        self._make_tables(self.rotations.device)
        return self


def sinusoids(n_positions: int, d_model: int, theta: float = 10_000.0) -> Tensor:
    """Return (n_positions, d_model): alternating sin and cos of position · θ^(−2i/d_model) (Vaswani et al. 2017)."""
    angles = _angles(theta, d_model, n_positions)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2).float()


def _angles(theta: float, d_k: int, n_positions: int) -> Tensor:
    """Return (n_positions, d_k / 2) in float64; float32 has an error of 1e-3 rad at position 10,000.

    Computed on the CPU, because some devices lack float64.
    """
    frequencies = theta ** (-torch.arange(0, d_k, 2, dtype=torch.float64, device="cpu") / d_k)
    return torch.outer(torch.arange(n_positions, dtype=torch.float64, device="cpu"), frequencies)
