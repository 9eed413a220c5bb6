"""Keep the optimizer's state in the host's memory, and that of a few parameters at a time on the device.

Messages per step: the buckets of `bucketed`. Bytes sent by each process: 2 (n − 1) / n · B. The whole state crosses the
bus to the host twice: for AdamW 16 bytes per weight. Each process holds all weights and gradients on the device, and
the state in pinned memory of the host. On the CPU nothing moves, and the steps are those of the optimizer itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from bytemill.lm.parallel.bucketed import BucketedParallel
from bytemill.lm.parallel.wrapped_optimizer import WrappedOptimizer

if TYPE_CHECKING:
    from collections.abc import Callable

    from bytemill.lm.optim.base import StepByGroup


class OffloadParallel(BucketedParallel):
    """All-reduce gradients in buckets; the optimizer's state is on the host."""

    def wrap_optimizer(self, optimizer: StepByGroup) -> StepByGroup:
        return HostOptimizer(optimizer, n_together=self.count)


class HostOptimizer(WrappedOptimizer):
    """Optimizer whose state is on the host between the updates of its parameters.

    Args:
        inner: The optimizer.
        n_together: Parameters whose state is on the device at once; Muon divides as many among the processes.
    """

    def __init__(self, inner: StepByGroup, n_together: int = 1) -> None:
        super().__init__(inner)
        self._n_together = n_together
        self._on_host: dict[tuple[Tensor, str], Tensor] = {}

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Update all parameters, a few at a time; see `StepByGroup.step`."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            for first in range(0, len(parameters), self._n_together):
                some = parameters[first : first + self._n_together]
                for parameter in some:
                    self._move_to_device(parameter)
                self.inner.step_group({**group, "params": some})
                for parameter in some:
                    self._move_to_host(parameter)
        if self._on_host:
            torch.cuda.synchronize()  # a checkpoint reads what was copied to the host
        return loss

    def _move_to_device(self, parameter: Tensor) -> None:
        for name, value in _tensors(self.state[parameter]):
            self.state[parameter][name] = value.to(parameter.device, non_blocking=True)

    def _move_to_host(self, parameter: Tensor) -> None:
        for name, value in _tensors(self.state[parameter]):
            if value.device.type != "cuda":
                continue
            host = self._on_host.get((parameter, name))
            if host is None:
                host = torch.empty_like(value, device="cpu", pin_memory=True)
                self._on_host[parameter, name] = host
            self.state[parameter][name] = host.copy_(value, non_blocking=True)


def _tensors(state: dict[str, Any]) -> list[tuple[str, Tensor]]:
    return [(name, value) for name, value in state.items() if isinstance(value, Tensor)]
