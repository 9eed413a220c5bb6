"""Operations in the order in which other programs compute them, for logits that are compared with theirs.

Sums of float32 numbers depend on the order of their terms: two programs with the same weights differ by about 1e-4 in
logits of some tens, and neither is more exact. In the common order, kernels for the CPU compute what transformers does
with torch's operations, term by term. They take twice as long there, so training, evaluation and sampling do not.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

from bytemill.lm.kernels.attention import windowed_attention

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from torch import Tensor

_is_common: ContextVar[bool | None] = ContextVar("common_order", default=None)


@contextmanager
def common_order(wanted: bool = True) -> Generator[None]:
    """Compute in the order of other programs inside the block, or not; an outer block decides."""
    outer = _is_common.get()
    token = _is_common.set(wanted if outer is None else outer)
    try:
        yield
    finally:
        _is_common.reset(token)


def _gated_silu(gate: Tensor, x: Tensor) -> Tensor:
    return functional.silu(gate) * x


def _rotate_halves(x: Tensor, rotations: Tensor) -> Tensor:
    """Rotate neighbouring pairs, and return their first numbers before their second ones.

    Scores are the same if queries and keys both have this order, which is that of weights in transformers.
    """
    cos, sin = rotations.unbind(-1)
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.cat((even * cos + -odd * sin, odd * cos + even * sin), -1)


_COMMON: dict[str, Callable[..., Tensor]] = {
    "linear": functional.linear,
    "gated": _gated_silu,
    "rotary": _rotate_halves,
    "attention": windowed_attention,
}


def with_common_order(parts: dict[str, Any]) -> dict[str, Any]:
    """Let kernels of float32 obey `common_order`.

    Args:
        parts: Arguments of `Kernels`; without `linear` the textbook's product stands, which is torch's.
    """
    names = [name for name in _COMMON if parts.get(name) is not None]
    return parts | {name: _either(parts[name], _COMMON[name]) for name in names}


def _either(fast: Callable[..., Tensor], common: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def compute(x: Tensor, *others: Any) -> Tensor:
        return (common if _is_common.get() and x.dtype == torch.float32 else fast)(x, *others)

    return compute
