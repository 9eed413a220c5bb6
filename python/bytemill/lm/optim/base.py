"""Base class of the optimizers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim import Optimizer

if TYPE_CHECKING:
    from collections.abc import Callable


def _unwrapped(method: Any) -> Any:
    """Return torch's method without the wrapper that keeps torch.compile from tracing it.

    The wrapper imports the compiler at its first call, which takes 2–6 seconds. It only matters inside a compiled
    function, and here only the loss is compiled.
    """
    return getattr(method, "__wrapped__", method)


_load_state_dict = _unwrapped(Optimizer.load_state_dict)


class StepByGroup(Optimizer):
    """Optimizer that updates one parameter group after the other, with moments of their own type."""

    add_param_group = _unwrapped(Optimizer.add_param_group)
    zero_grad = _unwrapped(Optimizer.zero_grad)
    state_dict = _unwrapped(Optimizer.state_dict)

    def step_group(self, group: dict[str, Any]) -> None:
        """Update the parameters of a group that have a gradient."""
        raise NotImplementedError

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Update all parameters.

        Args:
            closure: Computes the loss and the gradients before the update.

        Returns:
            The result of `closure`, or None.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            self.step_group(group)
        return loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a saved state, bit for bit."""
        _load_state_dict(self, state_dict)
        # torch casts moments to the type of their weights, so that moments of bfloat16 weights would lose 16 bits.
        saved = [index for group in state_dict["param_groups"] for index in group["params"]]
        own = [parameter for group in self.param_groups for parameter in group["params"]]
        for index, parameter in zip(saved, own, strict=True):
            for name, value in state_dict["state"].get(index, {}).items():
                if isinstance(value, Tensor):
                    self.state[parameter][name] = value.detach().to(parameter.device, copy=True)
