"""Distribute a run over processes: the batch, the model, and its gradients.

Each process computes the loss of its share of the batch. With the strategy ddp, every process has the whole model, and
the gradients are averaged. With fsdp, every process holds a part of each parameter, its gradient and its moments; a
block is gathered while it is computed, and each process receives its part of the averaged gradients.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

import torch
from torch.nn import Module

from bytemill.lm.model import TransformerLM
from bytemill.lm.sharded_tensors import is_sharded, whole

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from bytemill.lm.processes import Processes
    from bytemill.lm.training.run import Run

    LossFunction = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
    """Inputs and targets -> the loss to minimize, and without gradient the part of it that is cross-entropy."""


DistributedDataParallel = torch.nn.parallel.DistributedDataParallel


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


def allow_compiled_shapes(n_shapes: int) -> None:
    """Let torch compile code for this many shapes; beyond its limit (8) it would stop to compile without a word."""
    config: Any = import_module("torch._dynamo.config")
    config.cache_size_limit = max(config.cache_size_limit, n_shapes)


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
