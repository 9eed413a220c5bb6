"""Output layer and cross-entropy in one function that never stores all logits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bytemill.lm.kernels.rows import row_blocks
from bytemill.lm.tensors import narrowed, widened

if TYPE_CHECKING:
    from collections.abc import Callable

# Logits per block. The matrix products of a block must be large enough to run at full rate (each reads and writes the
# whole gradient of the weights), and small enough to be in cache for the softmax: with 10,000 ids, 2²² are 420 rows.
_BLOCK_CPU, _BLOCK = 2**22, 2**26


def linear_cross_entropy(
    x: Tensor,
    weight: Tensor,
    targets: Tensor,
    *,
    soft_cap: float | None = None,
    product: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> Tensor:
    """Compute `cross_entropy(x @ weight.T, targets)`, for one backward pass.

    Logits are computed block by block. Their gradient is computed at once, while the block is in cache, so the
    backward pass needs only the gradients of `x` and `weight` instead of (..., vocab_size) numbers.

    Args:
        x: Input of the output layer, (..., d).
        weight: Weight of the output layer, (vocab_size, d).
        targets: Ids (...).
        soft_cap: Replace the logits by cap · tanh(logits / cap).
        product: Computes left @ right.T in float32; by default torch does.

    Returns:
        Mean loss in nats, a float32 scalar.
    """
    rows, targets = x.reshape(-1, x.shape[-1]), targets.reshape(-1).long()
    rows, weight = narrowed(rows), narrowed(weight)
    if rows.dtype != torch.float32 or weight.dtype != torch.float32:
        product = None
    with_gradient = torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad)
    loss: Tensor = _LinearCrossEntropy.apply(  # pyright: ignore[reportUnknownMemberType, reportAssignmentType]
        rows, weight, targets, soft_cap, with_gradient, product or _product
    )
    return loss


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(  # noqa: PLR0917 - autograd passes positional arguments
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        targets: Tensor,
        soft_cap: float | None,
        with_gradient: bool,
        product: Callable[[Tensor, Tensor], Tensor],
    ) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            return _forward(ctx, x, weight, targets, soft_cap, with_gradient, product)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        if ctx.gradients is None:
            raise RuntimeError("linear_cross_entropy supports one backward pass, and this is the second")
        d_x, d_weight = ctx.gradients
        ctx.gradients = None
        # The gradient is 1 if the backward pass starts at the loss.
        if gradient.device.type != "cpu" or gradient.item() != 1:
            d_x.mul_(gradient)
            d_weight.mul_(gradient)
        return d_x, d_weight, None, None, None, None


def _product(left: Tensor, right: Tensor) -> Tensor:
    return left @ right.mT


def _forward(  # noqa: PLR0917 - as above
    ctx: Any,
    x: Tensor,
    weight: Tensor,
    targets: Tensor,
    soft_cap: float | None,
    with_gradient: bool,
    product: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    n_rows = max(1, (_BLOCK_CPU if x.device.type == "cpu" else _BLOCK) // len(weight))
    losses = torch.empty(len(x), 1, device=x.device, dtype=torch.promote_types(x.dtype, torch.float32))
    d_x = torch.empty_like(x) if with_gradient else None
    d_weight = torch.zeros_like(weight, dtype=losses.dtype) if with_gradient else None
    for start in range(0, len(x), n_rows):
        rows, target = x[start : start + n_rows], targets[start : start + n_rows, None]
        wide = widened(product(rows, weight))
        slopes = None if soft_cap is None else _cap(wide, soft_cap)
        losses[start : start + n_rows] = _losses(wide, target, len(x))
        if d_x is None or d_weight is None:
            continue
        gradients = (wide if slopes is None else wide.mul_(slopes)).to(x.dtype)
        d_x[start : start + n_rows] = product(gradients, weight.mT)
        d_weight += product(gradients.mT, rows.mT)
    ctx.gradients = (d_x, None if d_weight is None else d_weight.to(weight.dtype))
    return losses.mean()


def _cap(logits: Tensor, cap: float) -> Tensor:
    """Replace logits by cap · tanh(logits / cap), and return the derivative 1 − tanh² of each."""
    tanh = logits.div_(cap).tanh_()
    slopes = (1 - tanh).mul_(1 + tanh)
    logits.mul_(cap)
    return slopes


def _losses(logits: Tensor, targets: Tensor, n_tokens: int) -> Tensor:
    """Return losses (n_rows, 1), and replace the logits by their gradient (softmax − 1 at the target) / n_tokens."""
    losses = -logits.gather(-1, targets)
    for block in row_blocks(logits):
        rows = logits[block]
        maximum = rows.amax(-1, keepdim=True)
        total = rows.sub_(maximum).exp_().sum(-1, keepdim=True)
        losses[block].add_(maximum).add_(total.log())  # in this order: see `token_losses`
        rows.div_(total.mul_(n_tokens))
    logits.scatter_add_(-1, targets, torch.full_like(losses, -1 / n_tokens))
    return losses
