"""Typed wrappers of tensor operations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch

from bytemill.errors import NotFiniteError

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module


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


def not_finite(model: Module) -> NotFiniteError:
    """Return the error for a model that computes NaN or infinity; it names the first tensor of weights with them."""
    hint = "use an earlier checkpoint, or train or import the model again"
    for name, parameter in model.named_parameters():
        if not bool(torch.isfinite(parameter).all()):
            return NotFiniteError(f"the weights are not finite: {name} has NaN or infinite values", hint=hint)
    return NotFiniteError("the logits are not finite, although all weights are", hint=hint)


def split(x: Tensor, n_rows: int) -> tuple[Tensor, ...]:
    """Split `x` into views of `n_rows` rows; the last one may have fewer."""
    return cast("tuple[Tensor, ...]", x.split(n_rows))  # pyright: ignore[reportUnknownMemberType]


def l2_norm(x: Tensor) -> Tensor:
    """Return √Σ x², summed in float32."""
    return cast("Any", torch.linalg).vector_norm(x, dtype=torch.float32)
