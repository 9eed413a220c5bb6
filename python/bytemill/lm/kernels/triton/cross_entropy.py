"""Cross-entropy and its gradient, which replaces the logits in memory.

For a row of logits x with target t, the loss is −log softmax(x)ₜ = log Σ exp(x − m) + m − xₜ, where the maximum m keeps
the exponentials from overflowing. Its gradient is softmax(x) − 1 at the target.

A row has up to 10⁵ logits, which do not fit in registers, so a program reads it twice:

1. The maximum and the sum, block by block. When the maximum grows from m to m', the sum so far takes the factor
   exp(m − m'), since Σ exp(x − m') = exp(m − m') Σ exp(x − m) (Milakov & Gimelshein 2018).
2. The gradient, (exp(x − m) / Σ exp(x − m) − 1 at the target) / n, for the mean over n tokens. The row was just read,
   so it comes from the cache, and the gradient is written over it.

With a z-loss, z log² Z is added to the loss, where log Z = log Σ exp(x). Since its gradient is softmax(x), that of the
loss is softmax(x) (1 + 2 z log Z) − 1 at the target.

Under a soft cap c, x is replaced by y = c tanh(x / c), whose derivative is 1 − tanh² = 1 − (y / c)².

Reading twice and writing once is the least memory traffic without the softmax in the output layer's product. torch's
operations read and write the logits about six times. All arithmetic is float32.
"""

# pyright: basic, reportArgumentType=false, reportCallIssue=false
# pyright: reportAttributeAccessIssue=false, reportOperatorIssue=false
# Triton has no types, and its functions are not Python's: a compiler reads them.

from __future__ import annotations

from functools import partial

import torch
import triton
import triton.language as tl
from torch import Tensor

from bytemill.lm.kernels.linear import linear_losses as _linear_losses

_MAX_BLOCK = 4096


def losses_and_gradients(
    logits: Tensor, targets: Tensor, n_tokens: int, z_loss: float = 0.0, soft_cap: float | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute −log softmax(logits)[target] and log Z of each row, and the gradient of the mean of loss + z log² Z.

    Args:
        logits: (n_rows, vocab_size), contiguous. The gradient replaces them.
        targets: Ids, (n_rows, 1).
        n_tokens: Number of tokens of the mean.
        z_loss: Weight z of log² Z.
        soft_cap: Replace the logits by cap · tanh(logits / cap).

    Returns:
        Losses in nats and log Z, (n_rows, 1) in float32, and the gradient, which is `logits`.
    """
    losses, log_z = _replace_by_gradient(logits, targets, n_tokens, z_loss, soft_cap)
    return losses, log_z, logits


linear_losses = partial(_linear_losses, losses_and_gradients=losses_and_gradients)
"""`kernels.linear.linear_losses` with this kernel: chunks of logits, of which none is stored."""


@triton.jit
def _logits(row_ptr, columns, vocab_size, SOFT_CAP: tl.constexpr):
    is_inside = columns < vocab_size
    x = tl.load(row_ptr + columns, mask=is_inside, other=0.0).to(tl.float32)
    if SOFT_CAP is not None:
        x = SOFT_CAP * (2 * tl.sigmoid(2 * x / SOFT_CAP) - 1)  # tanh(a) = 2 sigmoid(2 a) − 1
    return tl.where(is_inside, x, -float("inf"))


@triton.jit
def _kernel(
    logits_ptr,
    targets_ptr,
    losses_ptr,
    log_z_ptr,
    vocab_size,
    share,
    z_loss,
    SOFT_CAP: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    row_ptr = logits_ptr + row * vocab_size
    target = tl.load(targets_ptr + row)
    columns = tl.arange(0, BLOCK)

    maximums = tl.full([BLOCK], -1e30, tl.float32)  # finite: −∞ − −∞ is not a number
    totals = tl.zeros([BLOCK], tl.float32)
    at_target = tl.zeros([BLOCK], tl.float32)
    for start in range(0, vocab_size, BLOCK):  # one maximum and total per thread, without synchronization
        x = _logits(row_ptr, start + columns, vocab_size, SOFT_CAP)
        larger = tl.maximum(maximums, x)
        totals = totals * tl.exp(maximums - larger) + tl.exp(x - larger)
        at_target += tl.where(start + columns == target, x, 0.0)
        maximums = larger
    maximum = tl.max(maximums, 0)
    total = tl.sum(totals * tl.exp(maximums - maximum), 0)
    # Subtract first: added to a logit of 10⁴, the logarithm would lose 10 of its 24 bits.
    tl.store(losses_ptr + row, (maximum - tl.sum(at_target, 0)) + tl.log(total))
    log_z = maximum + tl.log(total)
    tl.store(log_z_ptr + row, log_z)

    for start in range(0, vocab_size, BLOCK):
        x = _logits(row_ptr, start + columns, vocab_size, SOFT_CAP)
        gradient = tl.exp(x - maximum) / total * (1 + 2 * z_loss * log_z) - tl.where(
            start + columns == target, 1.0, 0.0
        )
        if SOFT_CAP is not None:
            gradient *= tl.where(start + columns < vocab_size, 1 - (x / SOFT_CAP) * (x / SOFT_CAP), 0.0)
        tl.store(row_ptr + start + columns, gradient * share, mask=start + columns < vocab_size)


@torch.library.custom_op("bytemill::replace_by_gradient", mutates_args=("logits",))
def _replace_by_gradient(
    logits: Tensor, targets: Tensor, n_tokens: int, z_loss: float, soft_cap: float | None
) -> tuple[Tensor, Tensor]:
    losses, log_z = _empty_losses(logits, targets, n_tokens, z_loss, soft_cap)
    if not logits.is_contiguous():
        raise ValueError("logits must be contiguous")
    if len(logits):
        block = min(_MAX_BLOCK, triton.next_power_of_2(logits.shape[1]))
        _kernel[(len(logits),)](
            logits,
            targets.contiguous(),
            losses,
            log_z,
            logits.shape[1],
            1 / n_tokens,
            z_loss,
            SOFT_CAP=soft_cap,
            BLOCK=block,
            num_warps=max(1, block // 512),
        )
    return losses, log_z


@_replace_by_gradient.register_fake
def _empty_losses(
    logits: Tensor, targets: Tensor, n_tokens: int, z_loss: float, soft_cap: float | None
) -> tuple[Tensor, Tensor]:
    del targets, n_tokens, z_loss, soft_cap
    losses = torch.empty(logits.shape[0], 1, device=logits.device)
    return losses, torch.empty_like(losses)
