"""Scale of the loss for products in float16, whose gradients below 6e-8 would become 0 (Micikevicius et al. 2018)."""

# pyright: reportPrivateUsage=false, reportPrivateImportUsage=false
# torch._foreach_… have no public names; torch's own optimizers use them.

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor

_LARGEST = 2.0**24


@dataclass
class LossScale:
    """A power of two that halves when a gradient overflows, and doubles after `growth_steps` finite steps."""

    value: float = 2.0**16
    n_finite: int = 0
    """Finite steps since the last change."""
    growth_steps: int = 2000

    @torch.no_grad()
    def unscale(self, parameters: Iterable[Tensor]) -> None:
        """Divide the gradients by the scale, in place."""
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        if gradients:
            torch._foreach_mul_(gradients, 1 / self.value)

    def update(self, *, is_finite: bool) -> bool:
        """Adapt the scale after a step.

        Returns:
            Whether the step was lost to the scale alone: the gradients may be finite with a smaller one.
        """
        if not is_finite:
            can_shrink = self.value > 1
            self.value, self.n_finite = max(1.0, self.value / 2), 0
            return can_shrink
        self.n_finite += 1
        if self.n_finite >= self.growth_steps:
            self.value, self.n_finite = min(2 * self.value, _LARGEST), 0
        return False
