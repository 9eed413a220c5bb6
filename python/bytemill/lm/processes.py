"""The processes of a training run, and what they tell each other.

Each process has a rank. `torchrun` and `bytemill lm train --devices` set the variables RANK, WORLD_SIZE, LOCAL_RANK and
LOCAL_WORLD_SIZE in the environment. Without them there is one process, and no process group is made.

Distribute a run over processes: the batch, the model, and its gradients.

Each process computes the loss of its share of the batch. With the strategy ddp, every process has the whole model, and
the gradients are averaged. With fsdp, every process holds a part of each parameter, its gradient and its moments; a
block is gathered while it is computed, and each process receives its part of the averaged gradients.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import get_error_handler
from torch.nn import Module

from bytemill.errors import ProcessFailedError, RunConfigError
from bytemill.lm.device import pick_device
from bytemill.lm.model import TransformerLM
from bytemill.lm.tensors import is_sharded, whole

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from types import FrameType

    from torch import Tensor

    LossFunction = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
    """Inputs and targets -> the loss to minimize, and without gradient the part of it that is cross-entropy."""


T = TypeVar("T")

RENDEZVOUS = "BYTEMILL_RENDEZVOUS"
"""Variable with the address at which the processes meet; by default torchrun's MASTER_ADDR and MASTER_PORT."""
_ANSWER_SECONDS = 5.0
"""Time for the others to say that they have waited too long as well."""
_TIMED_OUT = re.compile(r"Timed out waiting")
"""Messages of collective operations that one side never began."""
_LOST = re.compile(r"gloo|NCCL|Connection (?:closed|reset) by peer|Socket closed|Broken pipe")
"""Messages of collective operations whose other side is gone."""
_LOOPBACK = re.compile(r"localhost|127\.\d+\.\d+\.\d+|::1")


@dataclass(frozen=True)
class Processes:
    """Rank and number of the processes; every method is called by all of them, in the same order."""

    rank: int = 0
    count: int = 1
    local_rank: int = 0
    """Rank among the processes of this machine."""
    local_count: int = 1

    @property
    def is_first(self) -> bool:
        """True in the process that alone writes and reports."""
        return self.rank == 0

    def sum(self, values: Sequence[float]) -> list[float]:
        """Return the sum over the processes of each value."""
        if self.count == 1:
            return list(values)
        sums = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(sums)
        return [float(each) for each in sums]

    def any(self, flag: bool) -> bool:
        """Return True if the flag is set in any process."""
        return self.sum([float(flag)])[0] > 0

    def wait(self) -> None:
        """Return after all processes have called this."""
        self.any(False)

    def share(self, value: T) -> T:
        """Return the value of the first process."""
        if self.count == 1:
            return value
        values = [value]
        dist.broadcast_object_list(values)
        return values[0]

    def gather(self, value: T) -> list[T]:
        """Return the values of all processes by rank; an empty list in all but the first."""
        if self.count == 1:
            return [value]
        values: list[T] = [value] * self.count
        dist.gather_object(value, values if self.is_first else None)
        return values if self.is_first else []

    def gather_everywhere(self, value: T) -> list[T]:
        """Return the values of all processes by rank, in every process."""
        if self.count == 1:
            return [value]
        values: list[T] = [value] * self.count
        dist.all_gather_object(values, value)
        return values

    def send_tensor(self, x: torch.Tensor, rank: int) -> None:
        """Copy `x` of the process `rank` into `x` of all others."""
        if self.count > 1:
            dist.broadcast(x, rank)

    def device(self, name: str) -> torch.device:
        """Return the device of this process; see `pick_device` for the names.

        Raises:
            RunConfigError: The device is unknown or not available, or this machine has too few GPUs.
        """
        if self.count == 1:
            return pick_device(name)
        if name == "auto":
            name = "cuda" if torch.cuda.is_available() else "cpu"
        if name not in ("cpu", "cuda"):
            raise RunConfigError(
                f"device {name} is one device, but the run has {self.count} processes",
                hint="choose --training.device cpu, cuda or auto",
            )
        device = pick_device(name)
        if device.type == "cpu":
            return device
        if self.local_count > (n_gpus := torch.cuda.device_count()):
            raise RunConfigError(
                f"there are {self.local_count} processes on this machine, but only {n_gpus} GPU{'s'[: n_gpus != 1]}",
                hint=f"start at most {n_gpus}, or choose --training.device cpu",
            )
        return torch.device("cuda", self.local_rank)


@contextmanager
def join_processes(device: str, timeout_seconds: int) -> Generator[Processes]:
    """Join the other processes of the run, and leave them after the block.

    Args:
        device: Name of the device; see `Processes.device`.
        timeout_seconds: Time to wait for a process that does not answer.

    Raises:
        RunConfigError: As `Processes.device`.
        ProcessFailedError: The connection to another process was lost, or it did not answer.
    """
    processes = processes_from_environment()
    if processes.count == 1:
        yield processes
        return
    try:
        _connect(processes, processes.device(device), timedelta(seconds=timeout_seconds))
        yield processes
    except KeyboardInterrupt:  # all processes stop after the same step
        dist.destroy_process_group()
        raise
    except Exception as error:
        if "TORCHELASTIC_ERROR_FILE" in os.environ:  # torchrun prints the traceback of the first error
            get_error_handler().record_exception(error)
        if isinstance(error, RuntimeError) and _TIMED_OUT.search(str(error)):
            raise ProcessFailedError(
                f"{_silent(processes)} did not answer for {timeout_seconds:,} s",
                hint="see what it does, or wait longer for it: --training.process-timeout SECONDS",
            ) from error
        if isinstance(error, dist.DistError) or (
            isinstance(error, RuntimeError) and _LOST.search(str(error))
        ):
            raise ProcessFailedError(
                f"process {processes.rank} of {processes.count} lost the connection to another process",
                hint="the first error of the other processes names the cause",
            ) from error
        raise
    else:  # after an error, this would wait for the other processes
        dist.destroy_process_group()


def _silent(processes: Processes) -> str:
    """Name the processes that do not say, as this one and others do, that they have waited too long."""
    others = [rank for rank in range(processes.count) if rank != processes.rank]
    try:
        store = cast("Any", dist.distributed_c10d)._get_default_store()
        store.set(f"timed_out_{processes.rank}", "")
        end = time.monotonic() + _ANSWER_SECONDS
        while others and time.monotonic() < end:
            time.sleep(0.1)
            others = [rank for rank in others if not store.check([f"timed_out_{rank}"])]
    except (RuntimeError, ValueError):  # the process that keeps the store is gone
        others = []
    ranks = ", ".join(map(str, others))
    return f"process{'es'[: 2 * (len(others) > 1)]} {ranks or '(unknown)'} of {processes.count}"


def _connect(processes: Processes, device: torch.device, timeout: timedelta) -> None:
    """Make the process group: gloo for tensors on the CPU, NCCL on CUDA."""
    if device.type == "cuda":
        torch.cuda.set_device(device)
    address = os.environ.get(RENDEZVOUS, "env://")
    if address != "env://" or _LOOPBACK.fullmatch(os.environ.get("MASTER_ADDR", "")):
        for library in ("GLOO", "NCCL"):
            os.environ.setdefault(f"{library}_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo")
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
        init_method=address,
        rank=processes.rank,
        world_size=processes.count,
        timeout=timeout,
    )


def processes_from_environment() -> Processes:
    """Return the rank of this process and the number of processes, as a launcher has set them."""
    if not {"RANK", "WORLD_SIZE"} <= os.environ.keys():
        return Processes()
    rank, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    return Processes(
        rank=rank,
        count=count,
        local_rank=int(os.environ.get("LOCAL_RANK", rank)),
        local_count=int(os.environ.get("LOCAL_WORLD_SIZE", count)),
    )


class StopRequest:
    """Flag that is set when one of the processes of a run is asked to stop."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self.requested = False
        """True if this process was asked to stop."""

    def requested_anywhere(self) -> bool:
        """Return True if any process was asked to stop: the same answer in all of them."""
        return self._processes.any(self.requested)


@contextmanager
def stop_signals(processes: Processes | None = None) -> Generator[StopRequest]:
    """Inside the block, the first SIGINT or SIGTERM sets `requested`, and the second raises KeyboardInterrupt.

    With several processes, further signals are ignored: a terminal and a launcher may both pass on one request.
    Only the main thread can handle signals; in other threads nothing changes.
    """
    processes = processes or Processes()
    stop = StopRequest(processes)
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def request_stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 (required by signal.signal)
        if stop.requested and processes.count == 1:
            raise KeyboardInterrupt
        stop.requested = True

    previous = {number: signal.signal(number, request_stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            # None is a handler that was not installed by Python and cannot be restored.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


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
    model.prepare_to_compile()
    for block in model.layers:
        cast("Any", block).compile()


class AveragedGradients(Module):
    """Function of a model whose gradients are averaged over the processes while they are computed (DDP)."""

    def __init__(self, model: TransformerLM, function: Callable[..., Any]) -> None:
        super().__init__()
        self.model = model
        self.function = function
        # Read by DDP: buffers are tables, the same in every process.
        self._ddp_params_and_buffers_to_ignore = [name for name, _ in self.named_buffers()]

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)


def average_gradients(
    model: TransformerLM, function: Callable[..., Any], device: torch.device
) -> Callable[..., Any]:
    """Return `function`, with gradients of the model averaged over the processes."""
    return DistributedDataParallel(
        AveragedGradients(model, function),
        device_ids=[device] if device.type == "cuda" else None,
        gradient_as_bucket_view=True,
    )


def gradients_exchanged(
    model: TransformerLM, function: Callable[..., Any], *, now: bool
) -> AbstractContextManager[None]:
    """Exchange gradients after the backward passes in the block, or only accumulate them in this process."""
    if isinstance(function, DistributedDataParallel):
        return nullcontext() if now else cast("Any", function).no_sync()
    if hasattr(model, "set_requires_gradient_sync"):
        cast("Any", model).set_requires_gradient_sync(now)
    return nullcontext()


def whole_model(model: TransformerLM) -> TransformerLM:
    """Return the model with all its parameters, for use outside training: itself, or a copy if it is sharded.

    All processes must call this.
    """
    if not is_sharded(next(model.parameters())):
        return model
    copy = TransformerLM(model.config, seed=0, device="meta").use_kernels(model.kernels)
    copy.narrow_residual = model.narrow_residual
    copy.load_state_dict(whole_weights(model, whole), assign=True)
    for name, buffer in model.named_buffers():
        owner, _, own_name = name.rpartition(".")
        setattr(copy.get_submodule(owner), own_name, buffer)
    return copy


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
