"""Initial values of weights."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def truncated_normal(
    *shape: int, std: float, device: torch.device | str | None = None, dtype: torch.dtype | None = None
) -> Tensor:
    """Sample from a normal distribution of mean 0, truncated at ±3 standard deviations, with torch's generator.

    Inverse transform sampling: uniform between Φ(−3) and Φ(3), where 2Φ(x) − 1 = erf(x/√2).

    Args:
        shape: Shape of the result.
        std: Standard deviation before truncation.
        device: Device of the result.
        dtype: Type of the result; by default torch's default type.
    """
    numbers = torch.empty(shape, device=device, dtype=torch.float32)
    # On the device "meta" there are no values, and these operations would import torch's compiler (2 to 8 seconds).
    if not numbers.is_meta:
        edge = math.erf(3 / math.sqrt(2))
        numbers.uniform_(-edge, edge).erfinv_().mul_(math.sqrt(2) * std)
        # Rounding may exceed the bounds slightly.
        numbers.clamp_(-3 * std, 3 * std)
    return numbers.to(dtype or torch.get_default_dtype())
