"""An optimizer that steps another one in a way of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bytemill.lm.optim.base import StepByGroup

if TYPE_CHECKING:
    from torch.optim import Optimizer


class WrappedOptimizer(StepByGroup):
    """Optimizer whose parameter groups and state are those of another one, so that schedules and checkpoints fit both.

    Args:
        inner: The other optimizer.
    """

    def __init__(self, inner: Optimizer) -> None:  # groups and state are not made here
        self.inner: Any = inner

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Groups of all parameters."""
        return self.inner.param_groups

    @property
    def state(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        """State of the parameters that this process steps."""
        return self.inner.state

    @property
    def defaults(self) -> dict[str, Any]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Default settings of a group."""
        return self.inner.defaults

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters."""
        self.inner.add_param_group(param_group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all parameters."""
        self.inner.zero_grad(set_to_none=set_to_none)

    def begin_step(self, step: int) -> None:
        self.inner.begin_step(step)

    def state_dict(self) -> dict[str, Any]:
        """Return groups and state, with the numbers of all parameters."""
        return self.inner.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.inner.load_state_dict(state_dict)
