"""RMSNorm and LayerNorm, forward and backward, each in one kernel.

For a row x of width d, with r = 1 / √(mean((x − m)²) + eps), where m is mean(x) in LayerNorm and 0 in RMSNorm:

    x̂ = (x − m) r,    y = x̂ ⊙ w + b.

Let g be the gradient of y, and h = g ⊙ w the gradient of x̂. Then dw = Σ g ⊙ x̂ and db = Σ g over rows. Since
∂r/∂xⱼ = −r³ (xⱼ − m) / d = −r² x̂ⱼ / d, the gradient of an RMSNorm's input is

    dxⱼ = r hⱼ + Σᵢ hᵢ xᵢ ∂r/∂xⱼ = r (hⱼ − x̂ⱼ mean(h ⊙ x̂)).

In LayerNorm, each xᵢ − m also loses xⱼ / d, which subtracts the mean: dx = r (h − mean(h) − x̂ mean(h ⊙ x̂)).

One program computes one row of y, which it reads once and keeps in registers. It saves r, and m in LayerNorm. In the
backward pass, a program processes many rows and keeps its share of dw and db in registers; torch adds the shares up.
All arithmetic is float32.


Cross-entropy and its gradient, which replaces the logits in memory.

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
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from bytemill.lm.kernels.layers import linear_losses as _linear_losses

_PROGRAMS_PER_PROCESSOR = 4


def normalized(x: Tensor, weight: Tensor, bias: Tensor | None, eps: float, *, centred: bool) -> Tensor:
    """Compute (x − mean) / √(variance + eps) · weight + bias over the last dimension; mean = 0 if not `centred`."""
    return normalize(x.reshape(-1, x.shape[-1]), weight, bias, eps, centred)[0].view(x.shape)


@triton.jit
def _norm_forward_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, statistics_ptr, width, eps, CENTRED: tl.constexpr, BLOCK: tl.constexpr
):
    row, n_rows = tl.program_id(0), tl.num_programs(0)
    columns = tl.arange(0, BLOCK)
    is_inside = columns < width
    offsets = row.to(tl.int64) * width + columns
    x = tl.load(x_ptr + offsets, mask=is_inside, other=0.0).to(tl.float32)
    if CENTRED:
        mean = tl.sum(x, 0) / width
        x = tl.where(is_inside, x - mean, 0.0)
        tl.store(statistics_ptr + n_rows + row, mean)
    scale = 1 / tl.sqrt(tl.sum(x * x, 0) / width + eps)
    tl.store(statistics_ptr + row, scale)
    y = x * scale * tl.load(weight_ptr + columns, mask=is_inside, other=0.0).to(tl.float32)
    if bias_ptr is not None:
        y += tl.load(bias_ptr + columns, mask=is_inside, other=0.0).to(tl.float32)
    tl.store(y_ptr + offsets, y, mask=is_inside)


@triton.jit
def _norm_backward_kernel(
    gradient_ptr,
    x_ptr,
    weight_ptr,
    statistics_ptr,
    d_x_ptr,
    d_weight_ptr,
    d_bias_ptr,
    n_rows,
    width,
    CENTRED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    program = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    is_inside = columns < width
    weight = tl.load(weight_ptr + columns, mask=is_inside, other=0.0).to(tl.float32)
    d_weight = tl.zeros([BLOCK], tl.float32)
    d_bias = tl.zeros([BLOCK], tl.float32)
    for row in range(program, n_rows, tl.num_programs(0)):
        offsets = tl.cast(row, tl.int64) * width + columns
        x = tl.load(x_ptr + offsets, mask=is_inside, other=0.0).to(tl.float32)
        g = tl.load(gradient_ptr + offsets, mask=is_inside, other=0.0).to(tl.float32)
        scale = tl.load(statistics_ptr + row)
        if CENTRED:
            x = tl.where(is_inside, x - tl.load(statistics_ptr + n_rows + row), 0.0)
        unit = x * scale
        d_weight += g * unit
        d_bias += g
        h = g * weight
        d_x = h - unit * (tl.sum(h * unit, 0) / width)
        if CENTRED:
            d_x -= tl.sum(h, 0) / width
        tl.store(d_x_ptr + offsets, d_x * scale, mask=is_inside)
    tl.store(d_weight_ptr + program * width + columns, d_weight, mask=is_inside)
    if d_bias_ptr is not None:
        tl.store(d_bias_ptr + program * width + columns, d_bias, mask=is_inside)


@torch.library.custom_op("bytemill::normalize", mutates_args=())
def normalize(
    x: Tensor, weight: Tensor, bias: Tensor | None, eps: float, centred: bool
) -> tuple[Tensor, Tensor]:
    """Return y, and the statistics (1 + centred, n_rows): scales, and means if `centred`."""
    x = x.contiguous()
    y, statistics = _empty_results(x, weight, bias, eps, centred)
    if len(x):
        block, warps = _block(x.shape[1])
        _norm_forward_kernel[(len(x),)](
            x, weight, bias, y, statistics, x.shape[1], eps, CENTRED=centred, BLOCK=block, num_warps=warps
        )
    return y, statistics


@normalize.register_fake
def _empty_results(
    x: Tensor, weight: Tensor, bias: Tensor | None, eps: float, centred: bool
) -> tuple[Tensor, Tensor]:
    del weight, bias, eps
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    return y, torch.empty(1 + centred, x.shape[0], device=x.device)


@torch.library.custom_op("bytemill::normalize_backward", mutates_args=())
def normalize_backward(
    gradient: Tensor, x: Tensor, weight: Tensor, statistics: Tensor, has_bias: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of x, weight and bias; the last is empty without a bias."""
    gradient, x = gradient.contiguous(), x.contiguous()
    n_rows, width = x.shape
    n_programs = min(n_rows, _n_processors(x.device) * _PROGRAMS_PER_PROCESSOR)
    d_x = torch.empty_like(x)
    d_weight = torch.empty(n_programs, width, device=x.device)
    d_bias = torch.empty_like(d_weight) if has_bias else None
    if n_rows:
        block, warps = _block(width)
        _norm_backward_kernel[(n_programs,)](
            gradient,
            x,
            weight,
            statistics,
            d_x,
            d_weight,
            d_bias,
            n_rows,
            width,
            CENTRED=len(statistics) > 1,
            BLOCK=block,
            num_warps=warps,
        )
    sum_bias = weight.new_empty(0) if d_bias is None else d_bias.sum(0).to(weight.dtype)
    return d_x, d_weight.sum(0).to(weight.dtype), sum_bias


@normalize_backward.register_fake
def _empty_gradients(
    gradient: Tensor, x: Tensor, weight: Tensor, statistics: Tensor, has_bias: bool
) -> tuple[Tensor, Tensor, Tensor]:
    del gradient, statistics
    d_x = torch.empty_like(x, memory_format=torch.contiguous_format)
    return d_x, torch.empty_like(weight), weight.new_empty(len(weight) if has_bias else 0)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, weight, bias, _, _ = inputs
    ctx.save_for_backward(x, weight, output[1])
    ctx.has_bias = bias is not None


def _backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    d_x, d_weight, d_bias = normalize_backward(gradient, *ctx.saved_tensors, ctx.has_bias)
    return d_x, d_weight, d_bias if ctx.has_bias else None, None, None


normalize.register_autograd(_backward, setup_context=_save)


def _block(width: int) -> tuple[int, int]:
    """Return the number of columns of a program, a power of two, and its number of warps."""
    block = triton.next_power_of_2(width)
    return block, min(16, max(1, block // 256))


def _n_processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1


_MAX_BLOCK, _RUN, _PER_WARP = 8192, 8, 256
"""Logits of a block, of a run (16 bytes in half precision), and of a warp. So large a block takes 32 warps, of which a
processor holds 64: the rows that are being processed stay in the cache until they are read again."""


def losses_and_gradients(
    logits: Tensor,
    targets: Tensor,
    n_tokens: int,
    z_loss: float = 0.0,
    soft_cap: float | None = None,
    n_ids: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute −log softmax(logits)[target] and log Z of each row, and the gradient of the mean of loss + z log² Z.

    Args:
        logits: (n_rows, vocab_size), contiguous. The gradient replaces them.
        targets: Ids, (n_rows, 1).
        n_tokens: Number of tokens of the mean.
        z_loss: Weight z of log² Z.
        soft_cap: Replace the logits by cap · tanh(logits / cap).
        n_ids: Number of columns that are logits, by default all; the gradient of the others is 0.

    Returns:
        Losses in nats and log Z, (n_rows, 1) in float32, and the gradient, which is `logits`.
    """
    n_ids = logits.shape[1] if n_ids is None else n_ids
    losses, log_z = _replace_by_gradient(logits, targets, n_tokens, z_loss, soft_cap, n_ids)
    return losses, log_z, logits


linear_losses = partial(_linear_losses, losses_and_gradients=losses_and_gradients)
"""`kernels.linear.linear_losses` with this kernel: chunks of logits, of which none is stored."""


@triton.jit
def _capped(x, SOFT_CAP: tl.constexpr):
    if SOFT_CAP is not None:
        x = SOFT_CAP * (2 * tl.sigmoid(2 * x / SOFT_CAP) - 1)  # tanh(a) = 2 sigmoid(2 a) − 1
    return x


@triton.jit
def _logits(row_ptr, columns, n_ids, SOFT_CAP: tl.constexpr):
    is_inside = columns < n_ids
    x = tl.load(row_ptr + columns, mask=is_inside, other=0.0).to(tl.float32)
    return tl.where(is_inside, _capped(x, SOFT_CAP), -float("inf"))


@triton.jit
def _loss_kernel(
    logits_ptr,
    targets_ptr,
    losses_ptr,
    log_z_ptr,
    width,
    n_ids,
    share,
    z_loss,
    SOFT_CAP: tl.constexpr,
    BLOCK: tl.constexpr,
    RUN: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    row_ptr = logits_ptr + row * width
    target = tl.load(targets_ptr + row)
    at_target = _capped(tl.load(row_ptr + target).to(tl.float32), SOFT_CAP)
    # A thread reads a run of neighbouring logits, with one maximum and total for all its runs, and waits for no other.
    runs: tl.constexpr = BLOCK // RUN
    columns = tl.arange(0, runs)[:, None] * RUN + tl.arange(0, RUN)[None, :]

    maximums = tl.full([runs], -1e30, tl.float32)  # finite: −∞ − −∞ is not a number
    totals = tl.zeros([runs], tl.float32)
    for start in range(0, n_ids, BLOCK):
        x = _logits(row_ptr, start + columns, n_ids, SOFT_CAP)
        larger = tl.maximum(maximums, tl.max(x, 1))
        totals = totals * tl.exp(maximums - larger) + tl.sum(tl.exp(x - larger[:, None]), 1)
        maximums = larger
    maximum = tl.max(maximums, 0)
    total = tl.sum(totals * tl.exp(maximums - maximum), 0)
    # Subtract first: added to a logit of 10⁴, the logarithm would lose 10 of its 24 bits.
    tl.store(losses_ptr + row, (maximum - at_target) + tl.log(total))
    log_z = maximum + tl.log(total)
    tl.store(log_z_ptr + row, log_z)

    scale = (1 + 2 * z_loss * log_z) * share / total
    tl.debug_barrier()  # the logit at the target has been read by all threads
    for start in range(0, width, BLOCK):
        x = _logits(row_ptr, start + columns, n_ids, SOFT_CAP)
        gradient = tl.exp(x - maximum) * scale - tl.where(start + columns == target, share, 0.0)
        if SOFT_CAP is not None:
            gradient *= tl.where(start + columns < n_ids, 1 - (x / SOFT_CAP) * (x / SOFT_CAP), 0.0)
        tl.store(row_ptr + start + columns, gradient, mask=start + columns < width)


@torch.library.custom_op("bytemill::replace_by_gradient", mutates_args=("logits",))
def _replace_by_gradient(
    logits: Tensor, targets: Tensor, n_tokens: int, z_loss: float, soft_cap: float | None, n_ids: int
) -> tuple[Tensor, Tensor]:
    losses, log_z = _empty_losses(logits, targets, n_tokens, z_loss, soft_cap, n_ids)
    if not logits.is_contiguous():
        raise ValueError("logits must be contiguous")
    if len(logits):
        block = min(_MAX_BLOCK, max(_RUN, triton.next_power_of_2(logits.shape[1])))
        _loss_kernel[(len(logits),)](
            logits,
            targets.contiguous(),
            losses,
            log_z,
            logits.shape[1],
            n_ids,
            1 / n_tokens,
            z_loss,
            SOFT_CAP=soft_cap,
            BLOCK=block,
            RUN=_RUN,
            num_warps=max(1, block // _PER_WARP),
        )
    return losses, log_z


@_replace_by_gradient.register_fake
def _empty_losses(
    logits: Tensor, targets: Tensor, n_tokens: int, z_loss: float, soft_cap: float | None, n_ids: int
) -> tuple[Tensor, Tensor]:
    del targets, n_tokens, z_loss, soft_cap, n_ids
    losses = torch.empty(logits.shape[0], 1, device=logits.device)
    return losses, torch.empty_like(losses)
