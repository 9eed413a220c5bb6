"""The loss and gradients of a step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from bytemill.lm.device import autocast
from bytemill.lm.training.distributed import (
    average_gradients,
    divide_batch,
    gradients_exchanged,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from bytemill.lm.training.run import Run


def loss_function(run: Run) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Return the function that computes the loss of a batch; with DDP, its gradients are averaged over processes."""
    if run.processes.count > 1 and run.config.training.strategy == "ddp":
        return average_gradients(run.model, run.model.loss, run.device)
    return run.model.loss


def accumulate_gradients(
    run: Run, compute_loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
) -> tuple[float, int, int]:
    """Accumulate the gradients of a step, and return the mean loss and the number of tokens and of their bytes.

    With several processes, each computes its share of the step; the gradients and the result are those of the step.
    """
    n_passes, n_sequences = divide_batch(run.config.training, run.processes.count)
    loss = torch.zeros((), device=run.device)
    n_bytes = torch.zeros((), dtype=torch.int64, device=run.device)
    n_tokens = 0
    for index in range(n_passes):
        inputs, targets = run.batches.take(n_sequences, run.device)
        with gradients_exchanged(run.model, compute_loss, now=index == n_passes - 1):
            with autocast(run.device, run.dtype):
                share = compute_loss(inputs, targets) / n_passes
            scaled = share if run.scale is None else share * run.scale.value
            scaled.backward()  # pyright: ignore[reportUnknownMemberType]
        loss += share.detach()
        n_bytes += run.byte_counts[targets].sum()
        n_tokens += targets.numel()
    if run.scale is not None:
        run.scale.unscale(run.model.parameters())
    sums = run.processes.sum([float(loss), n_tokens, int(n_bytes)])
    return sums[0] / run.processes.count, int(sums[1]), int(sums[2])
