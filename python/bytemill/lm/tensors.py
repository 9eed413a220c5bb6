"""Typed wrappers of tensor operations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch

if TYPE_CHECKING:
    from torch import Tensor


def widened(x: Tensor) -> Tensor:
    """Return `x` in float32, or unchanged if it is float32 or float64."""
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


def narrowed(x: Tensor) -> Tensor:
    """Return `x` in the type of matrix products: that of the autocast context, or unchanged outside of one.

    Several products of one tensor then share the copy that is saved for their backward passes.
    """
    device = x.device.type
    # Not by `is_autocast_available`: torch before 2.15 does not compile functions that call it.
    if device == "meta" or not torch.is_autocast_enabled(device):
        return x
    return x.to(torch.get_autocast_dtype(device))


def split(x: Tensor, n_rows: int) -> tuple[Tensor, ...]:
    """Split `x` into views of `n_rows` rows; the last one may have fewer."""
    return cast("tuple[Tensor, ...]", x.split(n_rows))  # pyright: ignore[reportUnknownMemberType]


def l2_norm(x: Tensor) -> Tensor:
    """Return √Σ x², summed in float32."""
    return cast("Any", torch.linalg).vector_norm(x, dtype=torch.float32)
