"""Tensors of an update cut to the size that suits the device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from bytemill.lm.tensors import split

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

# Numbers of a block for each thread of the CPU. An update reads and writes four or five tensors several times; 2¹⁵
# numbers of five float32 tensors are 640 kB, which a core's own cache holds, so that memory is read once instead of
# each time. It is also the least that torch hands to another thread.
_BLOCK = 2**15


def blocks(tensors: Sequence[tuple[Tensor, ...]]) -> Iterator[list[list[Tensor]]]:
    """Lists of tensors to update together: first all of the first kind, then all of the second, …

    `tensors` has a tuple for each parameter: the parameter, its gradient, what else the update takes, of one shape. On
    the CPU they come in blocks that fit in cache; elsewhere all at once, because launching operations costs more there.
    """
    n_numbers = _BLOCK * torch.get_num_threads()
    elsewhere: dict[object, list[tuple[Tensor, ...]]] = {}
    for row in tensors:
        if row[0].device.type == "cpu" and all(tensor.is_contiguous() for tensor in row):
            for pieces in zip(*(split(tensor.view(-1), n_numbers) for tensor in row), strict=True):
                yield [[piece] for piece in pieces]
        else:
            elsewhere.setdefault((row[0].device, row[0].dtype), []).append(row)
    for rows in elsewhere.values():
        yield [list(column) for column in zip(*rows, strict=True)]
