"""FlashAttention and RMSNorm as functions of their own, by torch's operations alone; `triton.functions` has Triton's.

`FlashAttention.apply(q, k, v, is_causal)` and `RMSNorm.apply(x, weight)` are functions of autograd. They save what the
backward pass needs to compute the rest again; of attention that is the log Σ exp of the scores of each query.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bytemill.lm.kernels.attention import attend, attend_backward
from bytemill.lm.kernels.layers import normalize, normalize_backward


def flash_attention(  # noqa: PLR0917 - those of `FlashAttention.apply`, which are positional
    q: Tensor,
    k: Tensor,
    v: Tensor,
    is_causal: bool = False,
    window: int | None = None,
    document_starts: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute softmax(q kᵀ / √d) v block by block (FlashAttention-2; Dao 2023).

    Args:
        q: Queries (batch, n_heads, n_tokens, d) or (batch, n_tokens, d).
        k: Keys (batch, n_kv_heads, n_tokens, d) or (batch, n_tokens, d); groups of query heads share them.
        v: Values, of the shape of the keys.
        is_causal: A token attends to none after it.
        window: A token attends to itself and the window − 1 tokens before it; needs `is_causal`.
        document_starts: (batch, n_tokens), position of the first token of each token's document; it attends to none
            before that. Needs `is_causal`.

    Returns:
        The result, of the shape of `q`, and log Σ exp of the scores of each query, of that shape without d. The second
        has no gradient.

    Raises:
        ValueError: The shapes do not fit, or a window or documents are given without `is_causal`.
    """
    return cast(
        "tuple[Tensor, Tensor]",
        _WithLogSums.apply(q, k, v, is_causal, window, document_starts),  # pyright: ignore[reportUnknownMemberType]
    )


def _forward(  # noqa: PLR0917 - autograd passes positional arguments
    ctx: Any, q: Tensor, k: Tensor, v: Tensor, is_causal: bool, window: int | None, starts: Tensor | None
) -> tuple[Tensor, Tensor]:
    check_attention(q, k, v, window, starts, is_causal=is_causal)
    result, log_sums = attend(
        with_heads(q), with_heads(k), with_heads(v), window, starts, is_causal=is_causal
    )
    result, log_sums = result.reshape(q.shape), log_sums.reshape(q.shape[:-1])
    ctx.save_for_backward(q, k, v, result, log_sums)
    ctx.options = (window, starts)
    ctx.is_causal = is_causal
    return result, log_sums


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    q, k, v, result, log_sums = ctx.saved_tensors
    d_q, d_k, d_v = attend_backward(
        with_heads(gradient),
        with_heads(q),
        with_heads(k),
        with_heads(v),
        with_heads(result),
        with_heads(log_sums[..., None]),
        *ctx.options,
        is_causal=ctx.is_causal,
    )
    return d_q.reshape(q.shape), d_k.reshape(k.shape), d_v.reshape(v.shape), None, None, None


class FlashAttention(torch.autograd.Function):
    """`flash_attention` as a function of autograd, which gives the result alone and saves log Σ exp."""

    @staticmethod
    def forward(  # noqa: PLR0917 - autograd passes positional arguments
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        is_causal: bool = False,
        window: int | None = None,
        document_starts: Tensor | None = None,
    ) -> Tensor:
        """Return the result; see `flash_attention` for the arguments."""
        return _forward(ctx, q, k, v, is_causal, window, document_starts)[0]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the gradients of queries, keys and values."""
        return _backward(ctx, gradient)


class _WithLogSums(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> tuple[Tensor, Tensor]:
        result, log_sums = _forward(ctx, *arguments)
        ctx.mark_non_differentiable(log_sums)
        return result, log_sums

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return _backward(ctx, gradient)


def with_heads(x: Tensor) -> Tensor:
    """(batch, n_tokens, d) -> (batch, 1, n_tokens, d); tensors with heads are unchanged."""
    return x[:, None] if x.ndim == 3 else x


def check_attention(
    q: Tensor, k: Tensor, v: Tensor, window: int | None, starts: Tensor | None, *, is_causal: bool
) -> None:
    """Raise ValueError if `flash_attention` does not support the arguments."""
    shapes = f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
    if q.ndim not in {3, 4} or k.shape != v.shape or q.ndim != k.ndim:
        raise ValueError(
            f"queries, keys and values need 3 or 4 dimensions, and keys the shape of values: {shapes}"
        )
    if (len(q), *q.shape[-2:]) != (len(k), *k.shape[-2:]):
        raise ValueError(f"queries and keys need the same batch, number of tokens and width: {shapes}")
    if q.ndim == 4 and q.shape[1] % k.shape[1]:
        raise ValueError(f"the heads of queries must be a multiple of those of keys: {shapes}")
    if not is_causal and not (window is None and starts is None):
        raise ValueError("a window or documents need is_causal")


def rms_norm(x: Tensor, weight: Tensor, eps: float = 1e-5) -> Tensor:
    """Compute x / √(mean(x²) + eps) · weight over the last dimension, in float32; the result has the type of `x`."""
    return cast("Tensor", RMSNorm.apply(x, weight, eps))  # pyright: ignore[reportUnknownMemberType]


def rms_norm_backward_x(gradient: Tensor, x: Tensor, weight: Tensor, eps: float = 1e-5) -> Tensor:
    """Return the gradient of `x` from that of `rms_norm(x, weight, eps)`; all of the shape of `x`."""
    return _norm_gradients(gradient, x, weight, eps)[0]


def rms_norm_backward_weight(gradient: Tensor, x: Tensor, weight: Tensor, eps: float = 1e-5) -> Tensor:
    """Return the gradient of `weight`, (d,), from that of `rms_norm(x, weight, eps)`."""
    return _norm_gradients(gradient, x, weight, eps)[1]


@torch.no_grad()
def _norm_gradients(gradient: Tensor, x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    (scales,) = normalize(x, weight, None, eps, centred=False)[1]
    return normalize_backward(gradient, x, weight, scales, has_bias=False)[:2]


class RMSNorm(torch.autograd.Function):
    """`rms_norm` as a function of autograd."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float = 1e-5) -> Tensor:
        """Return the result; see `rms_norm`."""
        result, (scales,) = normalize(x, weight, None, eps, centred=False)
        ctx.save_for_backward(x, weight, scales)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the gradients of `x` and `weight`."""
        return *normalize_backward(gradient, *ctx.saved_tensors, has_bias=False)[:2], None
