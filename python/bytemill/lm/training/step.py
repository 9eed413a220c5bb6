"""The loss and gradients of a step, and the batch of one that was not finite."""

from __future__ import annotations

import io
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch

from bytemill.lm.device import autocast
from bytemill.lm.training.batch_reader import pass_sizes, sequences_at
from bytemill.lm.training.distributed import average_gradients, gradients_exchanged
from bytemill.system.atomic_files import write_bytes

if TYPE_CHECKING:
    from pathlib import Path

    from bytemill.lm.training.distributed import LossFunction
    from bytemill.lm.training.run import Run


def loss_function(run: Run) -> LossFunction:
    """Return the function that computes the losses of a batch; with DDP, its gradients are averaged over processes."""
    compute_losses = partial(
        run.model.losses,
        z_loss=run.config.optimizer.z_loss,
        documents=run.documents,
        is_padded=run.batches.padding_share > 0,
    )
    if run.processes.count > 1 and run.config.training.strategy == "ddp":
        return average_gradients(run.model, compute_losses, run.device)
    return compute_losses


def accumulate_gradients(run: Run, compute_losses: LossFunction) -> tuple[float, int, int]:
    """Accumulate the gradients of a step.

    With several processes, each computes its share of the step; the gradients and the result are those of the step.

    Returns:
        The mean cross-entropy, the number of tokens and the number of their bytes.
    """
    passes = pass_sizes(run.config.training, run.processes.count, run.step)
    n_all = run.batches.n_targets(run.batches.position, sum(passes) * run.processes.count)
    total = torch.zeros((), device=run.device)
    n_bytes = torch.zeros((), dtype=torch.int64, device=run.device)
    n_tokens = 0
    for index, n_sequences in enumerate(passes):
        first = run.batches.position + run.processes.rank * n_sequences
        n_own = run.batches.n_targets(first, n_sequences)
        inputs, targets = run.reader.take(n_sequences, run.step)
        with gradients_exchanged(run.model, compute_losses, now=index == len(passes) - 1):
            with autocast(run.device, run.dtype):
                loss, cross_entropy = compute_losses(inputs, targets)
            # Gradients are averaged over the processes. Without padding, the divisor of equal passes is their number.
            divisor = n_all / (n_own * run.processes.count)
            share = loss / divisor
            scaled = share if run.scale is None else share * run.scale.value
            scaled.backward()  # pyright: ignore[reportUnknownMemberType]
        total += cross_entropy / divisor
        own = targets >= 0 if n_own < targets.numel() else ...
        n_bytes += run.byte_counts.of(inputs[own], targets[own]).sum()
        n_tokens += n_own
    if run.scale is not None:
        run.scale.unscale(run.model.parameters())
    sums = run.processes.sum([float(total), n_tokens, int(n_bytes)])
    return sums[0] / run.processes.count, int(sums[1]), int(sums[2])


def save_bad_batch(run: Run) -> Path:
    """Write the sequences of the last step, of all processes, as an .npz file in the run folder.

    All processes must call this; the first one writes.

    The file holds `step`, `inputs` and `targets` of shape (n_sequences, context_length), `sequences` (their numbers in
    the order of the run) and `offsets` (of their first ids in the training data).

    Raises:
        OutputError: The file cannot be written.
    """
    path = run.folder.path / f"bad_batch_step_{run.step:08d}.npz"
    if run.processes.is_first:
        write_bytes(path, _last_step(run))
    run.processes.wait()  # for the file to exist
    return path


def _last_step(run: Run) -> bytes:
    n = sequences_at(run.step - 1, run.config.training)
    first = run.batches.position - n
    windows = run.batches.windows(first, n).numpy()
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer,
        step=np.array(run.step),
        inputs=windows[:, :-1],
        targets=windows[:, 1:],
        sequences=np.arange(first, first + n),
        offsets=np.array(run.batches.starts(first, n)),
    )
    return buffer.getvalue()
