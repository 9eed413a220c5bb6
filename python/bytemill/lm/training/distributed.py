"""Distribute a run over processes: the batch, the model, and its gradients.

Each process computes the loss of its share of the batch. With the strategy ddp, every process has the whole model, and
the gradients are averaged. With fsdp, every process holds a part of each parameter, its gradient and its moments; a
block is gathered while it is computed, and each process receives its part of the averaged gradients.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, cast

import torch
from torch.nn import Module

from bytemill.errors import RunConfigError
from bytemill.lm.model import TransformerLM
from bytemill.lm.sharded_tensors import is_sharded, whole
from bytemill.lm.training.batch_ramp import sequences_at

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from bytemill.lm.processes import Processes
    from bytemill.lm.training.config import TrainingConfig
    from bytemill.lm.training.run import Run

    LossFunction = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
    """Inputs and targets -> the loss to minimize, and without gradient the part of it that is cross-entropy."""


DistributedDataParallel = torch.nn.parallel.DistributedDataParallel


def divide_batch(training: TrainingConfig, n_processes: int, step: int | None = None) -> tuple[int, int]:
    """Return the forward passes of each process in a step, and the sequences per pass.

    All passes have the same size, at most `batch_size`.

    Args:
        training: Settings of the batch.
        n_processes: Number of processes; see `check_division`.
        step: Number of the step, from 0; by default one after the batch ramp.

    >>> from bytemill.lm.training.config import TrainingConfig
    >>> divide_batch(TrainingConfig(batch_size=32, accumulation=3), 2)
    (2, 24)
    """
    n_own = sequences_at(training.batch_ramp_steps if step is None else step, training) // n_processes
    n_passes = next(n for n in range(1, n_own + 1) if n_own % n == 0 and n_own // n <= training.batch_size)
    return n_passes, n_own // n_passes


def check_division(training: TrainingConfig, n_processes: int) -> None:
    """Raise RunConfigError if the sequences of a step cannot be divided evenly among the processes."""
    if training.batch_ramp_start % n_processes:  # divides the sequences of every step; 0 without a ramp
        raise RunConfigError(
            f"training.batch_ramp_start is {training.batch_ramp_start:,}, which cannot be divided evenly among "
            f"{n_processes} processes",
            hint=f"start {_divisors(training.batch_ramp_start)}, or change --training.batch-ramp-start",
        )
    n_sequences = training.batch_size * training.accumulation
    if n_sequences % n_processes:
        raise RunConfigError(
            f"the {n_sequences:,} sequences of a step (training.batch_size {training.batch_size:,} × "
            f"training.accumulation {training.accumulation:,}) cannot be divided evenly among {n_processes} processes",
            hint=f"start {_divisors(n_sequences)}, or change --training.batch-size",
        )


def _divisors(n_sequences: int) -> str:
    """Describe the numbers of processes that divide `n_sequences`."""
    *smaller, largest = [str(n) for n in range(1, min(n_sequences, 64) + 1) if n_sequences % n == 0]
    return f"{', '.join(smaller)} or {largest} processes" if smaller else "1 process"


def shard_model(model: TransformerLM, processes: Processes, device: torch.device, dtype: torch.dtype) -> None:
    """Shard the parameters over the processes, in place (FSDP2): each block is a unit, and so is the rest.

    With `dtype` in half precision, blocks are gathered in it; gradients are summed in float32. Embeddings, the last
    norm and the output layer are gathered in float32, so that the residual stream is float32, as in one process.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method

    mesh = init_device_mesh(device.type, (processes.count,))
    narrow = None if dtype == torch.float32 else dtype
    policy = MixedPrecisionPolicy(
        param_dtype=narrow, reduce_dtype=torch.float32 if narrow else None, cast_forward_inputs=False
    )
    for block in model.layers:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh)
    register_fsdp_forward_method(model, "losses")  # gathers the parameters, as `forward` does


def compile_blocks(model: TransformerLM) -> None:
    """Compile each block; the gathering of the parameters between them cannot be compiled."""
    for block in model.layers:
        cast("Any", block).compile()


class AveragedGradients(Module):
    """Loss of a model whose gradients are averaged over the processes while they are computed (DDP)."""

    def __init__(self, model: TransformerLM, compute_losses: LossFunction) -> None:
        super().__init__()
        self.model = model
        self.compute_losses = compute_losses
        # Read by DDP: buffers are tables, the same in every process.
        self._ddp_params_and_buffers_to_ignore = [name for name, _ in self.named_buffers()]

    def forward(self, *batch: Tensor) -> tuple[Tensor, Tensor]:
        return self.compute_losses(*batch)


def average_gradients(
    model: TransformerLM, compute_losses: LossFunction, device: torch.device
) -> LossFunction:
    """Return `compute_losses`, with gradients of the model averaged over the processes."""
    return DistributedDataParallel(
        AveragedGradients(model, compute_losses),
        device_ids=[device] if device.type == "cuda" else None,
        gradient_as_bucket_view=True,
    )


def gradients_exchanged(
    model: TransformerLM, compute_losses: LossFunction, *, now: bool
) -> AbstractContextManager[None]:
    """Exchange gradients after the backward passes in the block, or only accumulate them in this process."""
    if isinstance(compute_losses, DistributedDataParallel):
        return nullcontext() if now else cast("Any", compute_losses).no_sync()
    if hasattr(model, "set_requires_gradient_sync"):
        cast("Any", model).set_requires_gradient_sync(now)
    return nullcontext()


def whole_model(run: Run) -> TransformerLM:
    """Return the model with all its parameters, for use outside training: itself, or a copy if it is sharded.

    All processes must call this.
    """
    if not is_sharded(next(run.model.parameters())):
        return run.model
    model = TransformerLM(run.config.model, seed=0, device="meta").use_kernels(run.model.kernels)
    model.load_state_dict(whole_weights(run.model, whole), assign=True)
    for name, buffer in run.model.named_buffers():
        owner, _, own_name = name.rpartition(".")
        setattr(model.get_submodule(owner), own_name, buffer)
    return model


def whole_weights(model: Module, gather: Callable[[Tensor], Tensor | None]) -> dict[str, Any]:
    """Return the state dict of a model with gathered parameters; a shared one is one tensor with several names.

    All processes must call this.

    Args:
        model: The model.
        gather: Called with each parameter.
    """
    parameters = dict(model.named_parameters(remove_duplicate=False))
    gathered = {id(parameter): gather(parameter.detach()) for parameter in model.parameters()}
    return {
        name: gathered[id(parameters[name])] if name in parameters else tensor
        for name, tensor in model.state_dict().items()
    }
