"""The numbers that weights start from."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def truncated_normal(
    *shape: int, std: float, device: torch.device | str | None = None, dtype: torch.dtype | None = None
) -> Tensor:
    """Numbers of a normal distribution of mean 0 cut at ±3 standard deviations, from torch's generator.

    Drawn by the inverse of the distribution function: uniform between Φ(−3) and Φ(3), where 2Φ(x) − 1 = erf(x/√2).
    """
    numbers = torch.empty(shape, device=device, dtype=torch.float32)
    # On the device "meta" there are none, and for what is done with them torch would load its compiler: 2 to 8 seconds.
    if not numbers.is_meta:
        edge = math.erf(3 / math.sqrt(2))
        numbers.uniform_(-edge, edge).erfinv_().mul_(math.sqrt(2) * std)
        # Rounding could put what lies at the very edge a little outside.
        numbers.clamp_(-3 * std, 3 * std)
    return numbers.to(dtype or torch.get_default_dtype())
