"""What the optimizers share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim import Optimizer

if TYPE_CHECKING:
    from collections.abc import Callable


def _unwrapped(method: Any) -> Any:
    """torch's own method without the wrapper that keeps torch.compile from tracing it.

    The wrapper imports the compiler at its first call: 2–6 seconds for every process that makes an optimizer. What is
    wrapped is the method itself, unchanged. It matters only to who compiles a function that calls it: these methods
    would be traced like any other Python then. Ours are called outside of what is compiled, which is the loss.
    """
    return getattr(method, "__wrapped__", method)


_load_state_dict = _unwrapped(Optimizer.load_state_dict)


class StepByGroup(Optimizer):
    """An optimizer that treats one group of parameters after the other, with moments of a type of their own."""

    add_param_group = _unwrapped(Optimizer.add_param_group)
    zero_grad = _unwrapped(Optimizer.zero_grad)
    state_dict = _unwrapped(Optimizer.state_dict)

    def step_group(self, group: dict[str, Any]) -> None:
        """One step for the parameters of a group that have a gradient."""
        raise NotImplementedError

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """One step; with a closure, which computes loss and gradients first, the loss."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            self.step_group(group)
        return loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Copies a saved state, bit for bit."""
        _load_state_dict(self, state_dict)
        # torch has cast moments to the type of their weights: those of bfloat16 weights would lose 16 bits.
        saved = [index for group in state_dict["param_groups"] for index in group["params"]]
        own = [parameter for group in self.param_groups for parameter in group["params"]]
        for index, parameter in zip(saved, own, strict=True):
            for name, value in state_dict["state"].get(index, {}).items():
                if isinstance(value, Tensor):
                    self.state[parameter][name] = value.detach().to(parameter.device, copy=True)
