"""The loss and gradients of a step."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from bytemill.lm.device import autocast
from bytemill.lm.training.distributed import (
    average_gradients,
    divide_batch,
    gradients_exchanged,
)

if TYPE_CHECKING:
    from bytemill.lm.training.distributed import LossFunction
    from bytemill.lm.training.run import Run


def loss_function(run: Run) -> LossFunction:
    """Return the function that computes the losses of a batch; with DDP, its gradients are averaged over processes."""
    compute_losses = partial(run.model.losses, z_loss=run.config.optimizer.z_loss, documents=run.documents)
    if run.processes.count > 1 and run.config.training.strategy == "ddp":
        return average_gradients(run.model, compute_losses, run.device)
    return compute_losses


def accumulate_gradients(run: Run, compute_losses: LossFunction) -> tuple[float, int, int]:
    """Accumulate the gradients of a step.

    With several processes, each computes its share of the step; the gradients and the result are those of the step.

    Returns:
        The mean cross-entropy, the number of tokens and the number of their bytes.
    """
    n_passes, n_sequences = divide_batch(run.config.training, run.processes.count, run.step)
    total = torch.zeros((), device=run.device)
    n_bytes = torch.zeros((), dtype=torch.int64, device=run.device)
    n_tokens = 0
    for index in range(n_passes):
        inputs, targets = run.reader.take(n_sequences, run.step)
        with gradients_exchanged(run.model, compute_losses, now=index == n_passes - 1):
            with autocast(run.device, run.dtype):
                loss, cross_entropy = compute_losses(inputs, targets)
            share = loss / n_passes
            scaled = share if run.scale is None else share * run.scale.value
            scaled.backward()  # pyright: ignore[reportUnknownMemberType]
        total += cross_entropy / n_passes
        n_bytes += run.byte_counts[targets].sum()
        n_tokens += targets.numel()
    if run.scale is not None:
        run.scale.unscale(run.model.parameters())
    sums = run.processes.sum([float(total), n_tokens, int(n_bytes)])
    return sums[0] / run.processes.count, int(sums[1]), int(sums[2])
