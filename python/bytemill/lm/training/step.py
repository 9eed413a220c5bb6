"""The loss and gradients of a step."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch

from bytemill.lm.device import autocast

if TYPE_CHECKING:
    from collections.abc import Callable

    from bytemill.lm.training.run import Run


def loss_function(run: Run) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    if not run.config.training.compile:
        return run.model.loss
    return cast("Callable[[torch.Tensor, torch.Tensor], torch.Tensor]", torch.compile(run.model.loss))


def accumulate_gradients(
    run: Run, compute_loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
) -> tuple[float, int, int]:
    """Accumulate the gradients of a step, and return the mean loss and the number of tokens and of their bytes."""
    n_batches = run.config.training.accumulation
    loss = torch.zeros((), device=run.device)
    n_bytes = torch.zeros((), dtype=torch.int64, device=run.device)
    n_tokens = 0
    for _ in range(n_batches):
        inputs, targets = run.batches.take(run.config.training.batch_size, run.device)
        with autocast(run.device, run.dtype):
            share = compute_loss(inputs, targets) / n_batches
        share.backward()  # pyright: ignore[reportUnknownMemberType]
        loss += share.detach()
        n_bytes += run.byte_counts[targets].sum()
        n_tokens += targets.numel()
    return float(loss), n_tokens, int(n_bytes)
