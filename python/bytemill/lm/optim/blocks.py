"""Blocks of tensors, of a size that suits the device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from bytemill.lm.tensors import split

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

# Numbers per block and CPU thread. An update reads and writes five tensors several times; 2¹⁵ numbers of five float32
# tensors are 640 kB, which fits in the cache of a core. Below this size torch uses no further thread.
_BLOCK = 2**15


def blocks(tensors: Sequence[tuple[Tensor, ...]]) -> Iterator[list[list[Tensor]]]:
    """Yield lists of tensors to update together: all parameters, all gradients, and so on.

    On the CPU, blocks fit in cache; on other devices all tensors form one block, since launching operations is slow.

    Args:
        tensors: For each parameter a tuple of tensors of equal shape: the parameter, its gradient, its moments.
    """
    n_numbers = _BLOCK * torch.get_num_threads()
    other_devices: dict[object, list[tuple[Tensor, ...]]] = {}
    for row in tensors:
        if row[0].device.type == "cpu" and all(tensor.is_contiguous() for tensor in row):
            for parts in zip(*(split(tensor.view(-1), n_numbers) for tensor in row), strict=True):
                yield [[part] for part in parts]
        else:
            other_devices.setdefault((row[0].device, row[0].dtype), []).append(row)
    for rows in other_devices.values():
        yield [list(column) for column in zip(*rows, strict=True)]
