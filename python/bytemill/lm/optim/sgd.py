"""Stochastic gradient descent."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from bytemill.lm.optim.base import StepByGroup, check_not_negative
from bytemill.lm.sharded_tensors import local

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor


class SGD(StepByGroup):
    """Stochastic gradient descent: θ ← θ − α / √(t + 1) · g at step t = 0, 1, …

    Args:
        params: Parameters, or parameter groups.
        lr: Learning rate α.
        decay: Divide the learning rate by √(t + 1).
    """

    def __init__(
        self, params: Iterable[Tensor] | Iterable[dict[str, Any]], lr: float = 1e-3, *, decay: bool = True
    ) -> None:
        check_not_negative(lr=lr)
        super().__init__(params, {"lr": lr, "decay": decay})

    def step_group(self, group: dict[str, Any]) -> None:
        for parameter in group["params"]:
            if parameter.grad is None:
                continue
            state = self.state[parameter]
            t: int = state.get("t", 0)
            rate = group["lr"] / math.sqrt(t + 1) if group["decay"] else group["lr"]
            local(parameter).sub_(local(parameter.grad), alpha=rate)
            state["t"] = t + 1
