"""The simplest strategy: after the backward pass, average one gradient after the other.

Messages per step: P. Bytes sent by each process: 2 (n − 1) / n · B. No message overlaps with computation, and each
waits for the one before. Each process holds all weights, gradients and optimizer state.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from bytemill.lm.parallel.base import DataParallel


class NaiveParallel(DataParallel):
    """All-reduce the gradient of each parameter after the backward pass."""

    @torch.no_grad()
    def finish(self) -> None:
        if self.count == 1:
            return
        for parameter in self.trained:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            parameter.grad.div_(self.count)
            dist.all_reduce(parameter.grad)
