"""After the backward pass, average all gradients in one buffer.

Messages per step: 1 (for each type and device of weights). Bytes sent by each process: 2 (n − 1) / n · B. One large
message uses the bandwidth better than P small ones, but none overlaps with computation, and the buffer takes another B.
Each process holds all weights, gradients and optimizer state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from bytemill.lm.parallel.base import DataParallel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


class FlatParallel(DataParallel):
    """All-reduce all gradients at once after the backward pass."""

    def finish(self) -> None:
        if self.count > 1:
            average_in_one_buffer(self.trained, self.count)


@torch.no_grad()
def average_in_one_buffer(parameters: Sequence[Tensor], count: int) -> None:
    """Replace the gradients of parameters by their means over `count` processes."""
    by_type: dict[tuple[object, object], list[Tensor]] = {}
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        by_type.setdefault((parameter.device, parameter.grad.dtype), []).append(parameter.grad)
    for gradients in by_type.values():
        buffer = torch.cat([gradient.reshape(-1) for gradient in gradients]).div_(count)
        dist.all_reduce(buffer)
        start = 0
        for gradient in gradients:
            gradient.copy_(buffer[start : start + gradient.numel()].view_as(gradient))
            start += gradient.numel()
