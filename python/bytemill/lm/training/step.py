"""The loss and gradients of a step."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch

from bytemill.lm.device import autocast
from bytemill.lm.training.distributed import (
    average_gradients,
    compile_blocks,
    divide_batch,
    gradients_exchanged,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from bytemill.lm.training.run import Run


def loss_function(run: Run) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Return the function that computes the loss of a batch, compiled and distributed as the settings say."""
    training, compute_loss = run.config.training, run.model.loss
    is_distributed = run.processes.count > 1
    if training.compile and is_distributed and training.strategy == "fsdp":
        compile_blocks(run.model)
    elif training.compile:
        compute_loss = cast(
            "Callable[[torch.Tensor, torch.Tensor], torch.Tensor]", torch.compile(run.model.loss)
        )
    if is_distributed and training.strategy == "ddp":
        return average_gradients(run.model, compute_loss, run.device)
    return compute_loss


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
            share.backward()  # pyright: ignore[reportUnknownMemberType]
        loss += share.detach()
        n_bytes += run.byte_counts[targets].sum()
        n_tokens += targets.numel()
    sums = run.processes.sum([float(loss), n_tokens, int(n_bytes)])
    return sums[0] / run.processes.count, int(sums[1]), int(sums[2])
