"""Divide the optimizer: each process steps whole parameters of its own (ZeRO-1; Rajbhandari et al. 2020).

Messages per step: the buckets of `bucketed`, and P broadcasts. Bytes sent by each process: 2 (n − 1) / n · B for the
gradients, and the bytes of its own parameters, about W / n of all W bytes of weights, to each of the others. Each
process holds all weights and gradients, and of the optimizer's state at most total / n + that of the largest parameter.

Parameters are dealt out by size, the largest first, each to the process that has least. Such a list schedule exceeds
the mean by less than one parameter (Graham 1969).
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

from bytemill.lm.optim.base import StepByGroup
from bytemill.lm.parallel.bucketed import BucketedParallel
from bytemill.lm.parallel.wrapped_optimizer import WrappedOptimizer

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable
    from typing import Self

    from torch.optim import Optimizer


class ShardedOptimizerParallel(BucketedParallel):
    """All-reduce gradients in buckets; each process steps its own parameters, and sends them to the others."""

    divides_steps = True

    def wrap_optimizer(self, optimizer: StepByGroup) -> StepByGroup:
        return ShardedOptimizer.of(optimizer)


class ShardedOptimizer(WrappedOptimizer):
    """Optimizer of which each process steps some parameters, and keeps their state alone.

    Gradients must be equal in all processes.

    Args:
        params: Parameters, or parameter groups; the same in every process.
        optimizer_cls: Class of the optimizer.
        options: Its other arguments.
    """

    divides_state = True

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        optimizer_cls: type[Optimizer] | Callable[..., Optimizer],
        **options: Any,
    ) -> None:
        self._divide(optimizer_cls(params, **options))

    @classmethod
    def of(cls, optimizer: Optimizer) -> Self:
        """Divide an optimizer that has not stepped yet."""
        made = cls.__new__(cls)
        made._divide(optimizer)
        return made

    def _divide(self, optimizer: Optimizer) -> None:
        super().__init__(optimizer)
        is_alone = not dist.is_initialized()
        self.rank, count = (0, 1) if is_alone else (dist.get_rank(), dist.get_world_size())
        self._loads = [0] * count
        self._owners: dict[Tensor, int] = {}
        self._deal_out(optimizer.param_groups)
        for parameter in [
            each for each in optimizer.state if not self.owns(each)
        ]:  # some classes make it at once
            del optimizer.state[parameter]

    def _deal_out(self, groups: list[dict[str, Any]]) -> None:
        sizes: dict[Tensor, int] = {}
        for group in groups:
            n_moments = self.inner.n_moments(group) if isinstance(self.inner, StepByGroup) else 1
            for parameter in group["params"]:
                sizes[parameter] = parameter.numel() * parameter.element_size() * max(1, n_moments)
        for parameter in sorted(sizes, key=lambda each: -sizes[each]):  # stable: the same in all processes
            owner = self._loads.index(min(self._loads))
            self._owners[parameter] = owner
            self._loads[owner] += sizes[parameter]

    def owns(self, parameter: Tensor) -> bool:
        return self._owners[parameter] == self.rank

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group, and deal out its parameters."""
        super().add_param_group(param_group)
        self._deal_out(self.param_groups[-1:])

    @contextmanager
    def _own_parameters(self) -> Generator[None]:
        """Inside the block, the groups have this process's parameters alone."""
        groups, before = self.param_groups, [group["params"] for group in self.param_groups]
        for group in groups:
            group["params"] = [parameter for parameter in group["params"] if self.owns(parameter)]
        try:
            yield
        finally:
            for group, parameters in zip(groups, before, strict=True):
                group["params"] = parameters

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Step this process's parameters, and receive the others; see `StepByGroup.step`."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with self._own_parameters():
            self.inner.step()
        self._exchange()
        return loss

    @property
    def can_skip(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether the divided optimizer can skip a step."""
        return self.inner.can_skip

    @torch.no_grad()
    def step_if_finite(self, norm: Tensor) -> None:
        with self._own_parameters():
            self.inner.step_if_finite(norm)
        self.zero_grad(set_to_none=True)
        self._exchange()

    def forget_step(self) -> None:
        self.inner.forget_step()

    def _exchange(self) -> None:
        """Send each parameter from its owner to all others."""
        if len(self._loads) == 1:
            return
        messages = [
            dist.broadcast(parameter.detach(), self._owners[parameter], async_op=True)
            for group in self.param_groups
            for parameter in group["params"]
            if parameter.requires_grad
        ]
        for message in messages:
            message.wait()  # pyright: ignore[reportOptionalMemberAccess]
