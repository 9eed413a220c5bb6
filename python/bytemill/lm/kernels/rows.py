"""Blocks of rows that stay in cache between operations."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

# Numbers per block on the CPU: two or three float32 temporaries fit in the caches of two cores. With half as many, the
# calls cost more than the cache saves: a step of `tiny` takes 5 % longer.
_BLOCK = 2**17


def row_blocks(x: Tensor) -> Iterator[slice]:
    """Yield slices of the rows of `x` (n_rows, width) to process in turn; on other devices than the CPU, one slice."""
    n_rows = len(x)
    step = max(1, _BLOCK // x.shape[-1]) if x.device.type == "cpu" else max(1, n_rows)
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))
