"""Output layer and loss in one, without ever holding all the logits."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bytemill.lm.kernels.rows import row_blocks
from bytemill.lm.tensors import widened

# Logits of a block. A block's matrix products must be large enough to run at full rate (each reads and writes the whole
# gradient of the weights once) and small enough to be in cache when softmax comes: with 10,000 ids, 2²² are 420 rows.
_BLOCK_CPU, _BLOCK = 2**22, 2**26


def linear_cross_entropy(x: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """`cross_entropy(x @ weight.T, targets)`: (..., d), (vocab_size, d), (...) of ids -> one float32 number, in nats.

    Logits come block by block, and their gradient at once, while the block is in cache: what is kept for the backward
    pass is the gradients of `x` and `weight`, not (..., vocab_size) numbers. Made for a mean loss that is followed
    by one backward pass.
    """
    rows, targets = x.reshape(-1, x.shape[-1]), targets.reshape(-1).long()
    device = x.device.type
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        rows, weight = rows.to(dtype), weight.to(dtype)
    with_gradient = torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad)
    loss: Tensor = _LinearCrossEntropy.apply(rows, weight, targets, with_gradient)  # pyright: ignore[reportUnknownMemberType, reportAssignmentType]
    return loss


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, targets: Tensor, with_gradient: bool) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            return _forward(ctx, x, weight, targets, with_gradient)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        if ctx.gradients is None:
            raise RuntimeError(
                "linear_cross_entropy keeps what it needs for one backward pass, and this is the second"
            )
        d_x, d_weight = ctx.gradients
        ctx.gradients = None
        # Mostly the loss is where backward starts, and this is 1.
        if gradient.device.type != "cpu" or gradient.item() != 1:
            d_x.mul_(gradient)
            d_weight.mul_(gradient)
        return d_x, d_weight, None, None


def _forward(ctx: Any, x: Tensor, weight: Tensor, targets: Tensor, with_gradient: bool) -> Tensor:
    n_rows = max(1, (_BLOCK_CPU if x.device.type == "cpu" else _BLOCK) // len(weight))
    losses = torch.empty(len(x), 1, device=x.device, dtype=torch.promote_types(x.dtype, torch.float32))
    d_x = torch.empty_like(x) if with_gradient else None
    d_weight = torch.zeros_like(weight, dtype=losses.dtype) if with_gradient else None
    buffer = torch.empty(min(n_rows, len(x)), len(weight), device=x.device, dtype=x.dtype)
    for start in range(0, len(x), n_rows):
        rows, target = x[start : start + n_rows], targets[start : start + n_rows, None]
        logits = torch.mm(rows, weight.mT, out=buffer[: len(rows)])
        wide = widened(logits)
        losses[start : start + n_rows] = _losses(wide, target, len(x))
        if d_x is None or d_weight is None:
            continue
        gradients = wide.to(x.dtype)
        torch.mm(gradients, weight, out=d_x[start : start + n_rows])
        if d_weight.dtype == x.dtype:
            d_weight.addmm_(gradients.mT, rows)
        else:
            d_weight += gradients.mT @ rows
    ctx.gradients = (d_x, None if d_weight is None else d_weight.to(weight.dtype))
    return losses.mean()


def _losses(logits: Tensor, targets: Tensor, n_tokens: int) -> Tensor:
    """(n_rows, 1) of losses. In place of the logits comes their gradient, (softmax − 1 at the target) / n_tokens."""
    losses = -logits.gather(-1, targets)
    for block in row_blocks(logits):
        rows = logits[block]
        greatest = rows.amax(-1, keepdim=True)
        total = rows.sub_(greatest).exp_().sum(-1, keepdim=True)
        losses[block].add_(greatest).add_(total.log())  # in this order: see `token_losses`
        rows.div_(total.mul_(n_tokens))
    logits.scatter_add_(-1, targets, torch.full_like(losses, -1 / n_tokens))
    return losses
