"""Divide weights, gradients and optimizer state; gather the weights of a unit while it is computed (ZeRO-3; FSDP).

Messages per step of a passes: for each unit 2 a all-gathers and 1 reduce-scatter; a only for a unit with the rest of a
model. Bytes sent by each process: (2 a + 1) (n − 1) / n · B, hidden behind the computation of the unit before. Each
process holds 1 / n of weights, gradients and state, the whole weights of two units, and with several passes all
gradients until the last one.

Each parameter is divided by rows, as `torch.chunk` does, and the shares of a unit lie one after the other in a flat
buffer, so that one message gathers them all. A shard is a DTensor, which only records of which tensor it is a part. For
the passes, whole parameters replace them, whose memory is freed after each use: what the backward pass has saved of
them has its content again once they are gathered again.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from bytemill.lm.parallel.base import DataParallel
from bytemill.lm.parallel.flat import average_in_one_buffer
from bytemill.lm.parallel.shard_unit import ShardUnit
from bytemill.lm.tensors import whole

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Self

    from torch.nn import Module

    from bytemill.lm.model import TransformerLM


class FullyShardedParallel(DataParallel):
    """Gather each unit before its forward and backward pass, and reduce its gradients to shards after it.

    The parameters of the module are shards from now on, so optimizers are made afterwards.

    Args:
        module: The module to train.
        units: Modules of it that are gathered one at a time, in the order of their computation, and return one tensor.
            By default those that hold a matrix themselves.
        divides_rest: Divide other parameters too, gathered during the whole pass; otherwise every process holds them.
        compute_dtype: Type of the gathered weights of units; by default that of the shards.

    Raises:
        ValueError: Units share a parameter, or the types in one differ.
    """

    def __init__(
        self,
        module: Module,
        units: Sequence[Module] | None = None,
        *,
        divides_rest: bool = False,
        compute_dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(module)
        self._units: list[ShardUnit] = []
        self._rest: ShardUnit | None = None
        self._all_units = self._units
        if self.count == 1:
            return
        from torch.distributed.device_mesh import init_device_mesh  # its import takes seconds

        mesh = init_device_mesh(next(module.parameters()).device.type, (self.count,))
        if units is None:
            units = [
                one for one in module.modules() if any(p.ndim > 1 for p in one.parameters(recurse=False))
            ]
        for number, unit in enumerate(units):
            self._units.append(ShardUnit(list(unit.modules()), mesh, compute_dtype))
            unit.register_forward_pre_hook(partial(self._before_forward, number))
            unit.register_forward_hook(partial(self._after_forward, number))
        if divides_rest:
            inside = {one for unit in units for one in unit.modules()}
            self._rest = ShardUnit([one for one in module.modules() if one not in inside], mesh, None)
            self._all_units = [*self._units, self._rest]
        for unit in self._all_units:
            unit.on_gradients(partial(self._after_backward, unit))
        divided = {id(shard) for unit in self._all_units for shard in unit.shards}
        self._replicated = [p for p in module.parameters() if p.requires_grad and id(p) not in divided]

    @classmethod
    def of_model(cls, model: TransformerLM, *, bucket_mb: float, dtype: torch.dtype) -> Self:
        del bucket_mb
        narrow = None if dtype == torch.float32 else dtype
        return cls(model, list(model.layers), divides_rest=True, compute_dtype=narrow)

    def call(self, function: Callable[..., Any], *inputs: Any, **options: Any) -> Any:
        if self._rest is None:
            return super().call(function, *inputs, **options)
        self._rest.start_pass()
        self._rest.gather()
        self._rest.put_into_modules(is_whole=True)
        try:
            return function(*inputs, **options)
        finally:
            self._rest.put_into_modules(is_whole=False)
            if not torch.is_grad_enabled():
                self._rest.free()

    def _before_forward(self, number: int, _module: Module, _inputs: Any) -> None:
        unit = self._units[number]
        if not unit.is_in_backward:  # which computes it again if activations are checkpointed
            unit.start_pass()
            unit.start_gathering()
            for after in self._units[number + 1 : number + 2]:
                after.start_gathering()
        unit.gather()
        unit.put_into_modules(is_whole=True)

    def _after_forward(self, number: int, module: Module, _inputs: Any, output: Any) -> None:
        unit = self._units[number]
        if unit.is_in_backward:
            return
        unit.free()
        if not isinstance(output, Tensor):
            raise TypeError(f"{type(module).__name__} is a unit, but returns no tensor")
        if output.requires_grad:
            output.register_hook(partial(self._before_backward, number))  # pyright: ignore[reportUnknownMemberType]

    def _before_backward(self, number: int, _gradient: Tensor) -> None:
        (unit := self._units[number]).start_gathering()
        unit.is_in_backward = True
        for before in self._units[max(0, number - 1) : number]:
            before.start_gathering()
        unit.gather()

    def _after_backward(self, unit: ShardUnit) -> None:
        unit.free()
        unit.is_in_backward = False
        if self.is_exchanging:
            unit.start_reducing()

    @torch.no_grad()
    def finish(self) -> None:
        if self.count == 1:
            return
        for unit in self._all_units:
            unit.finish()
        if self._replicated:
            average_in_one_buffer(self._replicated, self.count)

    def whole_parameters(self) -> dict[str, Tensor]:
        """Return all parameters by name, gathered; all processes must call this."""
        return {name: whole(parameter.detach()) for name, parameter in self.module.named_parameters()}
