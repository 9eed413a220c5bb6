"""Tensor operations that torch has without types, or with other names in other releases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch

if TYPE_CHECKING:
    from torch import Tensor


def widened(x: Tensor) -> Tensor:
    """In float32 at least."""
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


def split(x: Tensor, n_rows: int) -> tuple[Tensor, ...]:
    """Views of so many rows each; the last one may have fewer."""
    return cast("tuple[Tensor, ...]", x.split(n_rows))  # pyright: ignore[reportUnknownMemberType]


def l2_norm(x: Tensor) -> Tensor:
    """√Σ x², summed in float32."""
    return cast("Any", torch.linalg).vector_norm(x, dtype=torch.float32)
