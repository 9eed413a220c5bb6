"""Fast layers: norms, gates, activations and rotations in blocks of rows, linear layers, and the output layer.

Blocks of rows stay in the processor's cache. The output layer is computed with its cross-entropy, and never stores all
logits. Linear layers in float32 may use oneDNN: torch computes float32 products on x86 with MKL, which uses at most 256
bits of a register on processors of other makers than Intel. oneDNN uses 512 there: on AMD's Zen 5 its products take
half the time. Products in bfloat16 are oneDNN's already.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from bytemill.lm.tensors import narrowed, widened

if TYPE_CHECKING:
    from collections.abc import Iterator

    _Function = Callable[[Tensor, Tensor], None]
    _Derivative = Callable[[Tensor], Tensor]


# Numbers per block on the CPU: two or three float32 temporaries fit in the caches of two cores. With half as many, the
# calls cost more than the cache saves: a step of `tiny` takes 5 % longer.
_BLOCK = 2**17


def row_blocks(x: Tensor) -> Iterator[slice]:
    """Yield slices of the rows of `x` (n_rows, width) to process in turn; on other devices than the CPU, one slice."""
    n_rows = len(x)
    step = max(1, _BLOCK // x.shape[-1]) if x.device.type == "cpu" else max(1, n_rows)
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))


def normalized(x: Tensor, weight: Tensor, bias: Tensor | None, eps: float, *, centred: bool) -> Tensor:
    """Compute (x − mean) / √(variance + eps) · weight + bias over the last dimension; mean = 0 if not `centred`."""
    return cast("Tensor", _Normalized.apply(x, weight, bias, eps, centred))  # pyright: ignore[reportUnknownMemberType]


class _Normalized(torch.autograd.Function):
    @staticmethod
    def forward(  # noqa: PLR0917 - autograd passes positional arguments
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, eps: float, centred: bool
    ) -> Tensor:
        result, statistics = normalize(x, weight, bias, eps, centred=centred)
        ctx.save_for_backward(x, weight, *statistics)
        ctx.has_bias = bias is not None
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor | None, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        gradients = normalize_backward(gradient, *ctx.saved_tensors, has_bias=ctx.has_bias)
        return *gradients, None, None


def normalize(
    x: Tensor, weight: Tensor, bias: Tensor | None, eps: float, *, centred: bool
) -> tuple[Tensor, list[Tensor]]:
    """Compute `normalized`, without a graph.

    Returns:
        The result, and the statistics of each row, (n_rows, 1) each: 1 / √(variance + eps), and if `centred` the mean.
    """
    rows = x.reshape(-1, x.shape[-1])
    result = torch.empty_like(rows)
    statistics = [
        torch.empty(len(rows), 1, device=x.device, dtype=widened(x[:0]).dtype) for _ in range(1 + centred)
    ]
    for block in row_blocks(rows):
        wide = widened(rows[block])
        if centred:
            statistics[1][block] = mean = wide.mean(-1, keepdim=True)
            wide = wide - mean
        scale = wide.square().mean(-1, keepdim=True).add_(eps).rsqrt_()
        statistics[0][block] = scale
        unit = wide * scale
        if bias is None:
            torch.mul(unit, weight, out=result[block])
        else:
            torch.addcmul(bias, unit, weight, out=result[block])
    return result.view(x.shape), statistics


def normalize_backward(
    gradient: Tensor, x: Tensor, weight: Tensor, scales: Tensor, *means: Tensor, has_bias: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the gradients of x, weight and bias, from that of the result; see `normalize`."""
    rows, gradients = x.reshape(-1, x.shape[-1]), gradient.reshape(-1, x.shape[-1])
    d_x = torch.empty_like(rows)
    d_weight = torch.zeros_like(weight, dtype=scales.dtype)
    d_bias = torch.zeros_like(d_weight) if has_bias else None
    wide_weight = widened(weight) / rows.shape[-1]  # the product with it is a mean
    for block in row_blocks(rows):
        wide, g, scale = widened(rows[block]), widened(gradients[block]), scales[block]
        unit = (wide - means[0][block]).mul_(scale) if means else wide * scale
        if d_bias is not None:
            d_bias += g.sum(0)
        product = g * unit
        d_weight += product.sum(0)
        # x̂: normalized rows, h = g ⊙ weight: dx = scale (h − mean(h) − x̂ mean(h ⊙ x̂)); RMSNorm has no mean(h).
        along = (product @ wide_weight)[:, None]
        h = torch.mul(g, weight, out=product)
        if means:
            h.sub_(h.mean(-1, keepdim=True))
        torch.mul(h.addcmul_(unit, along, value=-1), scale, out=d_x[block])
    d_bias = None if d_bias is None else d_bias.to(weight.dtype)
    return d_x.view(x.shape), d_weight.to(weight.dtype), d_bias


def torch_norm(x: Tensor, weight: Tensor, bias: Tensor | None, eps: float, *, centred: bool) -> Tensor:
    """Compute `normalized`: LayerNorm by torch's function, RMSNorm by the formula, which torch.compile fuses."""
    if centred:
        return functional.layer_norm(x, (x.shape[-1],), weight, bias, eps).to(x.dtype)
    wide = widened(x)
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight).to(x.dtype)


_SLOPE, _CUBE = math.sqrt(2 / math.pi), 0.044715


def gated_silu(gate: Tensor, x: Tensor) -> Tensor:
    """Compute silu(gate) ⊙ x, of equal shapes."""
    return cast("Tensor", _GatedSilu.apply(gate, x))  # pyright: ignore[reportUnknownMemberType]


def gelu_tanh(x: Tensor) -> Tensor:
    """Compute the GELU of GPT-2: x/2 · (1 + tanh(√(2/π) (x + 0.044715 x³)))."""
    return _elementwise(x, _gelu_tanh, _gelu_tanh_derivative)


def gelu_by_sigmoid(x: Tensor) -> Tensor:
    """Compute the GELU of GPT-2 as x σ(2 √(2/π) (x + 0.044715 x³)), since (1 + tanh a) / 2 = σ(2 a).

    Compiled, the sigmoid takes less time than tanh.
    """
    wide = widened(x)
    return (wide * torch.sigmoid(wide * (2 * _SLOPE + 2 * _SLOPE * _CUBE * wide.square()))).to(x.dtype)


def gelu_erf(x: Tensor) -> Tensor:
    """Compute the exact GELU: x/2 · (1 + erf(x/√2))."""
    return _elementwise(x, _gelu_erf, _gelu_erf_derivative)


def squared_relu(x: Tensor) -> Tensor:
    """Compute max(x, 0)²."""
    return _elementwise(x, _squared_relu, _squared_relu_derivative)


def _elementwise(x: Tensor, function: _Function, derivative: _Derivative) -> Tensor:
    return cast("Tensor", _Elementwise.apply(x, function, derivative))  # pyright: ignore[reportUnknownMemberType]


class _GatedSilu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate: Tensor, x: Tensor) -> Tensor:
        gates, rows = gate.reshape(-1, gate.shape[-1]), x.reshape(-1, x.shape[-1])
        result = torch.empty_like(rows)
        for block in row_blocks(rows):
            a = widened(gates[block])
            torch.mul(torch.sigmoid(a).mul_(a), rows[block], out=result[block])
        ctx.save_for_backward(gates, rows)
        return result.view(x.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:  # pyright: ignore[reportIncompatibleMethodOverride]
        gates, rows = ctx.saved_tensors
        gradients = gradient.reshape(rows.shape)
        d_gate, d_x = torch.empty_like(gates), torch.empty_like(rows)
        one = torch.ones((), device=rows.device, dtype=widened(rows[:0]).dtype)
        for block in row_blocks(rows):
            a, b, g = widened(gates[block]), widened(rows[block]), widened(gradients[block])
            sigmoid = torch.sigmoid(a)
            silu = sigmoid * a
            torch.mul(g, silu, out=d_x[block])
            # silu′ = σ + a σ (1 − σ) = silu + σ (1 − silu)
            torch.mul(silu.lerp_(one, sigmoid).mul_(b), g, out=d_gate[block])
        return d_gate.view(gradient.shape), d_x.view(gradient.shape)


class _Elementwise(torch.autograd.Function):
    """A function of each number: `function(x, out)` writes its values, `derivative(x)` returns its derivative."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, function: _Function, derivative: _Derivative) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        result = torch.empty_like(rows)
        for block in row_blocks(rows):
            function(widened(rows[block]), result[block])
        ctx.save_for_backward(rows)
        ctx.derivative = derivative
        return result.view(x.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        (rows,) = ctx.saved_tensors
        gradients = gradient.reshape(rows.shape)
        d_x = torch.empty_like(rows)
        for block in row_blocks(rows):
            torch.mul(ctx.derivative(widened(rows[block])), widened(gradients[block]), out=d_x[block])
        return d_x.view(gradient.shape), None, None


def _tanh_term(a: Tensor) -> Tensor:
    return a.square().mul_(_CUBE).add_(1).mul_(a).mul_(_SLOPE).tanh_()


def _gelu_tanh(a: Tensor, out: Tensor) -> None:
    torch.mul(_tanh_term(a).add_(1).mul_(a), 0.5, out=out)


def _gelu_tanh_derivative(a: Tensor) -> Tensor:
    # ½ (1 + t) + ½ a (1 − t²) √(2/π) (1 + 3 · 0.044715 a²)
    tanh = _tanh_term(a)
    inner = a.square().mul_(3 * _CUBE).add_(1).mul_(0.5 * _SLOPE).mul_(a)
    inner.addcmul_(inner, tanh.square(), value=-1)
    return tanh.add_(1).mul_(0.5).add_(inner)


def _gelu_erf(a: Tensor, out: Tensor) -> None:
    torch.mul((a * math.sqrt(0.5)).erf_().add_(1).mul_(a), 0.5, out=out)


def _gelu_erf_derivative(a: Tensor) -> Tensor:
    # Φ(a) + a φ(a)
    density = a.square().mul_(-0.5).exp_().mul_(1 / math.sqrt(2 * math.pi))
    return (a * math.sqrt(0.5)).erf_().add_(1).mul_(0.5).addcmul_(a, density)


def _squared_relu(a: Tensor, out: Tensor) -> None:
    torch.mul(a, a.clamp_min(0), out=out)


def _squared_relu_derivative(a: Tensor) -> Tensor:
    return a.clamp_min(0).mul_(2)


def rotate_pairs(x: Tensor, rotations: Tensor) -> Tensor:
    """Rotate neighbouring pairs of `x` as complex numbers: (even + i odd) (cos + i sin).

    Args:
        x: (..., n_tokens, d_k).
        rotations: cos and sin, broadcastable to (..., n_tokens, d_k / 2, 2), in float32.
    """
    wide = x.float() if x.stride(-1) == 1 else x.float().contiguous()
    pairs = torch.view_as_complex(wide.view(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * torch.view_as_complex(rotations)).flatten(-2).to(x.dtype)


@cache
def prefers_onednn() -> bool:
    """Return True on x86 processors with AVX-512 of other makers than Intel, if torch has oneDNN."""
    if not torch.backends.mkldnn.is_available() or torch.backends.cpu.get_cpu_capability() != "AVX512":
        return False
    try:
        vendor = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:  # not Linux
        vendor = platform.processor()
    return "GenuineIntel" not in vendor


def product(left: Tensor, right: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute left @ right.T + bias, with left (..., d) and right (n, d); both may be transposed views."""
    if torch.compiler.is_compiling():
        return _opaque_product(left, right, bias)
    return torch.ops.mkldnn._linear_pointwise(left, right, bias, "none", [], "")


@torch.library.custom_op("bytemill::product", mutates_args=())
def _opaque_product(left: Tensor, right: Tensor, bias: Tensor | None) -> Tensor:
    """`product` for torch.compile, whose own version of the operation accepts constant weights only."""
    return torch.ops.mkldnn._linear_pointwise(left, right, bias, "none", [], "")


@_opaque_product.register_fake  # pyright: ignore[reportUnknownMemberType, reportUntypedFunctionDecorator]
def _(left: Tensor, right: Tensor, _bias: Tensor | None) -> Tensor:
    return left.new_empty(*left.shape[:-1], right.shape[0])


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute x @ weight.T + bias; types other than float32 by torch."""
    if x.dtype != torch.float32 or weight.dtype != torch.float32 or torch.is_autocast_enabled("cpu"):
        y = x @ weight.mT
        return y if bias is None else y + bias.to(y.dtype)
    if not torch.is_grad_enabled():
        return product(x, weight, bias)
    return cast("Tensor", _Linear.apply(x, weight, bias))  # pyright: ignore[reportUnknownMemberType]


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.has_bias = bias is not None
        return product(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, weight = ctx.saved_tensors
        rows, gradients = x.reshape(-1, x.shape[-1]), gradient.reshape(-1, gradient.shape[-1])
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        d_x = product(gradients, weight.mT).view(x.shape) if needs_x else None
        d_weight = product(gradients.mT, rows.mT) if needs_weight else None
        return d_x, d_weight, gradients.sum(0) if needs_bias else None


def joined_linear(x: Tensor, layers: Sequence[Any]) -> tuple[Tensor, ...]:
    """Compute the results of linear layers of one shape by one product, which fills a GPU better than several."""
    biases: list[Tensor] = [layer.bias for layer in layers if layer.bias is not None]
    weights: list[Tensor] = [layer.weight for layer in layers]
    y = functional.linear(x, torch.cat(weights), torch.cat(biases) if biases else None)
    return y.view(*y.shape[:-1], len(layers), -1).unbind(-2)


Product: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""(left, right) -> left @ right.T."""
LossesAndGradients: TypeAlias = Callable[
    [Tensor, Tensor, int, float, float | None, int], tuple[Tensor, Tensor, Tensor]
]
"""(logits, targets (n_rows, 1), n_tokens, z_loss, soft_cap, n_ids) -> losses and log Z (n_rows, 1), and the gradient of
Σ (loss + z_loss log² Z) / n_tokens. Only the first `n_ids` columns are logits: the gradient of the others is 0. It may
overwrite the logits."""

# Logits per block. The matrix products of a block must be large enough to run at full rate (each reads and writes the
# whole gradient of the weights), and small enough to be in cache for the softmax: with 10,000 ids, 2²² are 420 rows.
# On GPUs 8,192 rows fill all processors, and 2²⁹ logits in bfloat16 are 1 GB.
_LOGITS_CPU, _LOGITS, _ROWS = 2**22, 2**29, 8192
_ALIGNED = 64
"""On NVIDIA GPUs the vocabulary is padded to a multiple of this: with 50,257 ids in bfloat16 an output layer took four
times as long as with 50,304."""


def linear_cross_entropy(
    x: Tensor,
    weight: Tensor,
    targets: Tensor,
    z_loss: float = 0.0,
    *,
    soft_cap: float | None = None,
    product: Product | None = None,
    losses_and_gradients: LossesAndGradients | None = None,
) -> Tensor:
    """Compute `cross_entropy(x @ weight.T, targets, z_loss)`, for one backward pass.

    Logits are computed block by block. Their gradient is computed at once, while the block is in cache, so the
    backward pass needs only the gradients of `x` and `weight` instead of (..., vocab_size) numbers.

    Args:
        x: Input of the output layer, (..., d).
        weight: Weight of the output layer, (vocab_size, d).
        targets: Ids (...).
        z_loss: Weight of log² Z.
        soft_cap: Replace the logits by cap · tanh(logits / cap).
        product: Computes left @ right.T in float32; by default torch does.
        losses_and_gradients: Computes both of a block of logits; by default torch's operations do.

    Returns:
        Mean loss in nats, a float32 scalar.
    """
    return linear_losses(
        x,
        weight,
        targets,
        z_loss,
        soft_cap=soft_cap,
        product=product,
        losses_and_gradients=losses_and_gradients,
    )[0]


def linear_losses(
    x: Tensor,
    weight: Tensor,
    targets: Tensor,
    z_loss: float = 0.0,
    *,
    soft_cap: float | None = None,
    product: Product | None = None,
    losses_and_gradients: LossesAndGradients | None = None,
) -> tuple[Tensor, Tensor]:
    """Return `linear_cross_entropy(…)`, and without gradient the part of it that is cross-entropy."""
    rows, targets = x.reshape(-1, x.shape[-1]), targets.reshape(-1).long()
    rows = narrowed(rows)
    if rows.dtype != torch.float32 or weight.dtype != torch.float32:
        product = None
    with_gradient = torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad)
    losses: Any = _LinearCrossEntropy.apply(  # pyright: ignore[reportUnknownMemberType]
        rows,
        weight,
        targets,
        z_loss,
        soft_cap,
        with_gradient,
        product or _product,
        losses_and_gradients or _losses_and_gradients,
    )
    return losses


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(  # noqa: PLR0917 - autograd passes positional arguments
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        targets: Tensor,
        z_loss: float,
        soft_cap: float | None,
        with_gradient: bool,
        product: Product,
        losses_and_gradients: LossesAndGradients,
    ) -> tuple[Tensor, Tensor]:
        with torch.autocast(x.device.type, enabled=False):
            loss, cross_entropy = _forward(
                ctx,
                x,
                weight,
                targets,
                z_loss=z_loss,
                soft_cap=soft_cap,
                with_gradient=with_gradient,
                product=product,
                losses_and_gradients=losses_and_gradients,
            )
        ctx.mark_non_differentiable(cross_entropy)
        return loss, cross_entropy

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        if ctx.gradients is None:
            raise RuntimeError("linear_cross_entropy supports one backward pass, and this is the second")
        d_x, d_weight = ctx.gradients
        ctx.gradients = None
        # The gradient is 1 if the backward pass starts at the loss.
        if ctx.divisor != 1 or gradient.device.type != "cpu" or gradient.item() != 1:
            d_x.mul_(gradient / ctx.divisor)
            d_weight.mul_(gradient / ctx.divisor)
        return d_x, d_weight.to(ctx.weight_dtype), None, None, None, None, None, None


def _product(left: Tensor, right: Tensor) -> Tensor:
    return left @ right.mT


def _forward(
    ctx: Any,
    x: Tensor,
    weight: Tensor,
    targets: Tensor,
    *,
    z_loss: float,
    soft_cap: float | None,
    with_gradient: bool,
    product: Product,
    losses_and_gradients: LossesAndGradients,
) -> tuple[Tensor, Tensor]:
    # In float16, small probabilities divided by the number of tokens would become 0. There the backward pass divides,
    # and multiplies by the scale of the loss at the same time.
    is_divided_later = x.dtype == torch.float16
    n_tokens = 1 if is_divided_later else len(x)
    n_ids, weight_dtype = len(weight), weight.dtype
    weight = weight.to(x.dtype)
    if x.device.type == "cuda" and x.element_size() == 2 and n_ids % _ALIGNED:
        weight = functional.pad(weight, (0, 0, 0, -n_ids % _ALIGNED))
    n_rows = max(1, _LOGITS_CPU // n_ids if x.device.type == "cpu" else min(_ROWS, _LOGITS // n_ids))
    dtype = torch.promote_types(x.dtype, torch.float32)
    losses, log_z = (torch.empty(len(x), 1, device=x.device, dtype=dtype) for _ in range(2))
    d_x = torch.empty_like(x) if with_gradient else None
    d_weight = torch.zeros_like(weight, dtype=dtype) if with_gradient else None
    for start in range(0, len(x), n_rows):
        block = slice(start, start + n_rows)
        rows, target = x[block], targets[block, None]
        losses[block], log_z[block], gradients = losses_and_gradients(
            product(rows, weight), target, n_tokens, z_loss, soft_cap, n_ids
        )
        if d_x is None or d_weight is None:
            continue
        gradients = gradients.to(x.dtype)
        d_x[block] = product(gradients, weight.mT)
        _add_product(d_weight, gradients, rows, product)
    if d_weight is not None:
        d_weight = d_weight[:n_ids]
        if not is_divided_later:
            d_weight = d_weight.to(weight_dtype)
    ctx.gradients, ctx.weight_dtype = (d_x, d_weight), weight_dtype
    ctx.divisor = len(x) // n_tokens
    mean = losses.mean()
    return (mean + z_loss * log_z.square_().mean() if z_loss else mean.clone()), mean


def _add_product(total: Tensor, left: Tensor, right: Tensor, product: Product) -> None:
    """Add leftᵀ right to `total` in float32; on CUDA the product of half precision is not rounded before."""
    into: Any = getattr(torch.ops.aten.addmm, "dtype_out", None)  # torch 2.8 or newer
    if into is None or total.device.type != "cuda" or total.dtype == left.dtype:
        total += product(left.mT, right.mT)
    else:
        into(total, left.mT, right, total.dtype, out=total)


def _losses_and_gradients(  # noqa: PLR0917 - the arguments of every function for this purpose
    logits: Tensor, targets: Tensor, n_tokens: int, z_loss: float, soft_cap: float | None, n_ids: int
) -> tuple[Tensor, Tensor, Tensor]:
    wide = widened(logits)
    slopes = None if soft_cap is None else _cap(wide, soft_cap)
    if n_ids < wide.shape[1]:
        wide[:, n_ids:] = -math.inf
    losses, log_z = _losses(wide, targets, n_tokens, z_loss)
    return losses, log_z, wide if slopes is None else wide.mul_(slopes)


def _cap(logits: Tensor, cap: float) -> Tensor:
    """Replace logits by cap · tanh(logits / cap), and return the derivative 1 − tanh² of each."""
    tanh = logits.div_(cap).tanh_()
    slopes = (1 - tanh).mul_(1 + tanh)
    logits.mul_(cap)
    return slopes


def _losses(logits: Tensor, targets: Tensor, n_tokens: int, z_loss: float) -> tuple[Tensor, Tensor]:
    """Return losses and log Z, both (n_rows, 1), and replace the logits by the gradient of the mean loss.

    For one of n tokens it is (softmax(x) (1 + 2 z log Z) − 1 at the target) / n, since d log Z / d x = softmax(x).
    """
    losses, log_z = -logits.gather(-1, targets), torch.empty_like(logits[:, :1])
    for block in row_blocks(logits):
        rows = logits[block]
        maximum = rows.amax(-1, keepdim=True)
        total = rows.sub_(maximum).exp_().sum(-1, keepdim=True)
        log_total = total.log()
        losses[block].add_(maximum).add_(log_total)  # in this order: see `token_losses_and_log_z`
        log_z[block] = maximum + log_total
        scale = total.mul_(n_tokens)
        rows.div_(scale / (1 + 2 * z_loss * log_z[block]) if z_loss else scale)
    logits.scatter_add_(-1, targets, torch.full_like(losses, -1 / n_tokens))
    return losses, log_z
