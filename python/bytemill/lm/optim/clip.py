"""Gradient clipping."""

# pyright: reportPrivateUsage=false, reportPrivateImportUsage=false
# torch._foreach_… have no public names; torch's own optimizers use them.

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from bytemill.lm.sharded_tensors import is_sharded, local, sum_over_shards
from bytemill.lm.tensors import l2_norm

if TYPE_CHECKING:
    from collections.abc import Iterable


@torch.no_grad()
def clip_gradients(parameters: Iterable[Tensor] | Tensor, max_norm: float, eps: float = 1e-6) -> Tensor:
    """Scale all gradients by max_norm / (norm + eps), in place, if their common ℓ2 norm exceeds `max_norm`.

    Sharded gradients have the norm of the whole model; all processes must call this.

    Args:
        parameters: Parameters; those without a gradient are ignored.
        max_norm: Maximum norm.
        eps: Term added to the norm.

    Returns:
        The norm before clipping, a scalar; it is not finite if a gradient is not.
    """
    parameters = [parameters] if isinstance(parameters, Tensor) else parameters
    shards = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if not shards:
        return torch.zeros(())
    gradients = [local(shard) for shard in shards]
    norms = [l2_norm(gradient) for gradient in gradients]
    norm = l2_norm(torch.stack([each.to(norms[0].device) for each in norms]))
    if is_sharded(shards[0]):
        norm = sum_over_shards(norm.square(), shards[0]).sqrt()
    if norm.device.type == "cpu":
        if norm > max_norm:
            torch._foreach_mul_(gradients, (max_norm / (norm + eps)).item())
    else:  # no synchronization with the device
        scale = torch.where(norm > max_norm, max_norm / (norm + eps), 1.0)
        torch._foreach_mul_(gradients, scale)
    return norm
