"""Parameters that are gathered and reduced together: a flat buffer of each process's share; see `fully_sharded`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import Parameter

from bytemill.lm.tensors import is_sharded, local

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.distributed.device_mesh import DeviceMesh
    from torch.nn import Module


@dataclass
class _Part:
    """One parameter of a unit."""

    owners: list[tuple[Module, str]]
    """Modules that have it, and its name there."""
    shard: Parameter
    """A DTensor, in the flat buffer."""
    whole: Parameter
    memory: Tensor
    """That of `whole`, with the rows that pad it; writing to it does not count as a change of `whole`."""
    share: slice
    """Position of each process's rows in its flat buffer."""


class ShardUnit:
    """Parameters of modules, of which each process holds some rows.

    Args:
        modules: The modules; each parameter is replaced by its shard.
        mesh: The processes.
        compute_dtype: Type of the whole parameters; by default that of the shards.

    Raises:
        ValueError: A parameter is a shard already, or there are several types.
    """

    def __init__(self, modules: list[Module], mesh: DeviceMesh, compute_dtype: torch.dtype | None) -> None:
        self._mesh, self._count, self._rank = mesh, mesh.size(), mesh.get_local_rank()
        self.is_in_backward = False
        self._is_whole = False
        self._message: tuple[Any, Tensor, Tensor] | None = None
        self._reduction: tuple[Any, Tensor, Tensor] | None = None
        owners: dict[Parameter, list[tuple[Module, str]]] = {}
        for module in modules:
            for name, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
                if is_sharded(parameter):
                    raise ValueError(f"{name} of {type(module).__name__} is a parameter of two units")
                owners.setdefault(parameter, []).append((module, name))
        if len({parameter.dtype for parameter in owners}) > 1:
            raise ValueError(f"the parameters of a {type(modules[0]).__name__} have several types")
        sizes = [-(-len(each) // self._count) * (each.numel() // len(each)) for each in owners]
        like = next(iter(owners), torch.empty(0))
        self._flat = torch.zeros(sum(sizes), dtype=like.dtype, device=like.device)
        self._dtype = compute_dtype or like.dtype
        starts = [sum(sizes[:number]) for number in range(len(sizes))]
        self._parts = [
            self._divide(parameter, own, slice(start, start + size))
            for (parameter, own), start, size in zip(owners.items(), starts, sizes, strict=True)
        ]
        self._trained = [part for part in self._parts if part.shard.requires_grad]
        self._missing: set[Tensor] = set()
        self.free()

    def _divide(self, parameter: Parameter, owners: list[tuple[Module, str]], share: slice) -> _Part:
        n_rows = -(-len(parameter) // self._count)
        own = parameter.detach()[self._rank * n_rows : (self._rank + 1) * n_rows]
        rows = self._flat[share][: own.numel()].view(own.shape).copy_(own)
        shard = Parameter(self._as_shard(rows, parameter), requires_grad=parameter.requires_grad)
        memory = parameter.new_empty(self._count * n_rows, *parameter.shape[1:], dtype=self._dtype)
        gathered = Parameter(memory[: len(parameter)], requires_grad=parameter.requires_grad)
        return _Part(owners, shard, gathered, memory.data, share)

    def _as_shard(self, rows: Tensor, like: Tensor) -> Tensor:
        from torch.distributed.tensor import DTensor, Shard

        return DTensor.from_local(
            rows, self._mesh, [Shard(0)], run_check=False, shape=like.shape, stride=like.stride()
        )

    @property
    def shards(self) -> list[Parameter]:
        """The shards of all parameters."""
        return [part.shard for part in self._parts]

    def on_gradients(self, function: Callable[[], None]) -> None:
        """Call a function when a backward pass has completed the gradients of all parameters."""

        def is_complete(parameter: Tensor) -> None:
            self._missing.discard(parameter)
            # A frozen parameter may still be needed by another's backward pass.
            if not self._missing and len(self._trained) == len(self._parts):
                function()

        for part in self._trained:
            part.whole.register_post_accumulate_grad_hook(is_complete)  # pyright: ignore[reportUnknownMemberType]

    def start_pass(self) -> None:
        """Expect the gradients of all parameters."""
        self._missing = {part.whole for part in self._trained}

    def put_into_modules(self, *, is_whole: bool) -> None:
        """Let the modules use the whole parameters, or the shards."""
        for part in self._parts:
            for module, name in part.owners:
                module._parameters[name] = part.whole if is_whole else part.shard  # pyright: ignore[reportPrivateUsage]

    def start_gathering(self) -> None:
        """Begin to gather the whole parameters, without waiting for them."""
        if self._is_whole or self._message is not None or not self._parts:
            return
        own = self._flat.to(self._dtype)
        every = own.new_empty(self._count * len(own))
        self._message = (dist.all_gather_into_tensor(every, own, async_op=True), every, own)

    @torch.no_grad()
    def gather(self) -> None:
        """Gather the whole parameters."""
        self.start_gathering()
        if self._message is None:
            return
        message, every, _ = self._message
        message.wait()
        every = every.view(self._count, -1)
        for part in self._parts:
            part.whole.untyped_storage().resize_(part.memory.numel() * part.memory.element_size())
            part.memory.view(self._count, -1).copy_(every[:, part.share])
        self._message, self._is_whole = None, True

    def free(self) -> None:
        """Free the whole parameters, also those that are being gathered; the modules have shards."""
        self.put_into_modules(is_whole=False)
        if self._message is not None:
            self._message[0].wait()
        self._message, self._is_whole = None, False
        for part in self._parts:
            part.whole.untyped_storage().resize_(0)

    @torch.no_grad()
    def start_reducing(self) -> None:
        """Begin to average the gradients, of which each process gets its share."""
        if not self._trained:
            return
        sums = torch.zeros(self._count, len(self._flat), dtype=self._flat.dtype, device=self._flat.device)
        for part in self._trained:
            if part.whole.grad is not None:
                rows = part.whole.grad.reshape(len(part.whole), -1)
                padding = rows.new_zeros(len(part.memory) - len(rows), rows.shape[1])
                rows = torch.cat((rows, padding))
                sums[:, part.share] = rows.view(self._count, -1)
                part.whole.grad = None
        own = torch.empty_like(self._flat)
        message = dist.reduce_scatter_tensor(own, sums.div_(self._count).view(-1), async_op=True)
        self._reduction = (message, own, sums)

    def finish(self) -> None:
        """Wait for the gradients, and give them to the shards; free the whole parameters."""
        self.free()
        self.is_in_backward = False
        if self._reduction is None:
            self.start_reducing()
        if self._reduction is None:
            return
        message, own, _ = self._reduction
        message.wait()
        self._reduction = None
        for part in self._trained:
            rows = local(part.shard.detach())
            gradient = self._as_shard(own[part.share][: rows.numel()].view(rows.shape), part.shard)
            part.shard.grad = gradient if part.shard.grad is None else part.shard.grad + gradient
