"""Rotary embedding in one pass."""

from __future__ import annotations

import torch
from torch import Tensor


def rotate_pairs(x: Tensor, rotations: Tensor) -> Tensor:
    """Rotate neighbouring pairs of `x` as complex numbers: (even + i odd) (cos + i sin).

    Args:
        x: (..., n_tokens, d_k).
        rotations: cos and sin, broadcastable to (..., n_tokens, d_k / 2, 2), in float32.
    """
    wide = x.float() if x.stride(-1) == 1 else x.float().contiguous()
    pairs = torch.view_as_complex(wide.view(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * torch.view_as_complex(rotations)).flatten(-2).to(x.dtype)
