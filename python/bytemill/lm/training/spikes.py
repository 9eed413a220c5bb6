"""Loss spikes: steps whose loss or gradient norm is far above its running median."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bytemill.lm.training.config import OptimizerConfig

_WINDOW, _MINIMUM = 100, 20


@dataclass
class SpikeDetector:
    """Losses and gradient norms of the last 100 steps, from which their medians are computed.

    Spikes enter the medians too, so a lasting change is no longer a spike after half a window.
    """

    losses: list[float] = field(default_factory=list[float])
    norms: list[float] = field(default_factory=list[float])

    def add(self, loss: float, norm: float, options: OptimizerConfig) -> dict[str, float] | None:
        """Add a step whose loss and gradient norm are finite.

        Returns:
            The values of a spike and the medians of the steps before it; None if there is no spike, or fewer than 20
            steps before this one.
        """
        spike = None
        if len(self.losses) >= _MINIMUM:
            usual_loss, usual_norm = median(self.losses), median(self.norms)
            if (options.spike_loss and loss > options.spike_loss * usual_loss) or (
                options.spike_norm and norm > options.spike_norm * usual_norm
            ):
                spike = {
                    "loss": loss,
                    "median_loss": usual_loss,
                    "grad_norm": norm,
                    "median_grad_norm": usual_norm,
                }
        self.losses = [*self.losses[1 - _WINDOW :], loss]
        self.norms = [*self.norms[1 - _WINDOW :], norm]
        return spike
