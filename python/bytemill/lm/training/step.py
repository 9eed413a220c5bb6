"""The loss and gradients of a step."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, cast

import torch

from bytemill.lm.device import autocast
from bytemill.lm.training.batch_ramp import batch_sizes, sequences_at

if TYPE_CHECKING:
    from bytemill.lm.training.run import Run

LossFunction: TypeAlias = Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
"""Inputs and targets -> the loss to minimize, and without gradient the part of it that is cross-entropy."""


def loss_function(run: Run) -> LossFunction:
    """Return the function that computes the training loss of a batch, and the part of it that is cross-entropy."""
    compute = torch.compile(run.model.losses) if run.config.training.compile else run.model.losses
    return cast("LossFunction", partial(compute, z_loss=run.config.optimizer.z_loss))


def accumulate_gradients(run: Run, compute_losses: LossFunction) -> tuple[float, int, int]:
    """Accumulate the gradients of a step.

    Returns:
        The mean cross-entropy, the number of tokens and the number of their bytes.
    """
    n_sequences = sequences_at(run.step, run.config.training)
    total = torch.zeros((), device=run.device)
    n_bytes = torch.zeros((), dtype=torch.int64, device=run.device)
    n_tokens = 0
    for batch_size in batch_sizes(n_sequences, run.config.training.batch_size):
        inputs, targets = run.batches.take(batch_size, run.device)
        share = batch_size / n_sequences
        with autocast(run.device, run.dtype):
            loss, cross_entropy = compute_losses(inputs, targets)
        (loss * share).backward()  # pyright: ignore[reportUnknownMemberType]
        total += cross_entropy * share
        n_bytes += run.byte_counts[targets].sum()
        n_tokens += targets.numel()
    return float(total), n_tokens, int(n_bytes)
