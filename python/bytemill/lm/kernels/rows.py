"""Blocks of rows that stay in cache from one operation to the next."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

# Numbers of a block on the CPU: with two or three temporaries of float32, the caches of two cores or more. With half as
# many the calls cost more than the cache saves: a step of `tiny` took 5 % longer.
_BLOCK = 2**17


def row_blocks(x: Tensor) -> Iterator[slice]:
    """Slices of (n_rows, width) to treat one after the other; elsewhere than on the CPU only one."""
    n_rows = len(x)
    step = max(1, _BLOCK // x.shape[-1]) if x.device.type == "cpu" else max(1, n_rows)
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))


def by_hand(x: Tensor) -> bool:
    """Whether to take the parts of this package: not while torch.compile traces, which fuses the plain ones itself."""
    return not torch.compiler.is_compiling() and x.device.type != "meta"
