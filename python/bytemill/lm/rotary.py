"""Where a token stands: rotary position embedding, and the sinusoids of the first Transformer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import Module

from bytemill.lm.kernels.rows import by_hand

if TYPE_CHECKING:
    from collections.abc import Callable


class RotaryEmbedding(Module):
    """Turns each pair of neighbours (x₂ᵢ, x₂ᵢ₊₁) by the angle position · θ^(−2i/d_k) (Su et al. 2021).

    The product of a query and a key then depends on the distance between them, not on where they stand.
    The tables are no part of the state dict and stay float32 when the model is cast.
    """

    turns: Tensor  # (max_seq_len, d_k / 2, 2): cos and sin

    def __init__(
        self, theta: float, d_k: int, max_seq_len: int, device: torch.device | str | None = None
    ) -> None:
        super().__init__()
        self.theta, self.d_k, self.max_seq_len = theta, d_k, max_seq_len
        self._make_tables(device)

    def forward(self, x: Tensor, token_positions: Tensor | None = None) -> Tensor:
        """(..., n_tokens, d_k) -> the same; positions of shape (n_tokens,) or any that broadcasts to (..., n_tokens).

        Without positions, tokens stand at 0, 1, 2, …
        """
        turns = self.turns[: x.shape[-2]] if token_positions is None else self.turns[token_positions]
        if x.dtype == torch.float32 and x.stride(-1) == 1 and by_hand(x):
            # As complex numbers, in one pass: (even + i odd) (cos + i sin).
            pairs = torch.view_as_complex(x.view(*x.shape[:-1], -1, 2))
            return torch.view_as_real(pairs * torch.view_as_complex(turns)).flatten(-2)
        cos, sin = turns.unbind(-1)
        even, odd = x[..., 0::2], x[..., 1::2]
        turned = torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1)
        return turned.flatten(-2).to(x.dtype)

    def _make_tables(self, device: torch.device | str | None) -> None:
        angles = _angles(self.theta, self.d_k, self.max_seq_len)
        turns = torch.stack((angles.cos(), angles.sin()), dim=-1).float()
        self.register_buffer("turns", turns.to(device), persistent=False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> RotaryEmbedding:
        super()._apply(fn, recurse)  # pyright: ignore[reportUnknownMemberType]
        # In bfloat16 positions beyond 256 would blur, so a cast makes the tables anew where they now are.
        self._make_tables(self.turns.device)
        return self


def sinusoids(n_positions: int, d_model: int, theta: float = 10_000.0) -> Tensor:
    """(n_positions, d_model): sin and cos of position · θ^(−2i/d_model) in turn (Vaswani et al. 2017)."""
    angles = _angles(theta, d_model, n_positions)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2).float()


def _angles(theta: float, d_k: int, n_positions: int) -> Tensor:
    """(n_positions, d_k / 2) in float64: float32 would be off by 1e-3 rad at position 10,000.

    On the CPU, because not every device has float64.
    """
    frequencies = theta ** (-torch.arange(0, d_k, 2, dtype=torch.float64, device="cpu") / d_k)
    return torch.outer(torch.arange(n_positions, dtype=torch.float64, device="cpu"), frequencies)
