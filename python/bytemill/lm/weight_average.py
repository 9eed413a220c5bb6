"""Exponential moving average of a model's weights."""

# pyright: reportPrivateUsage=false, reportPrivateImportUsage=false
# torch._foreach_… have no public names; torch's own optimizers use them.

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from bytemill.lm.sharded_tensors import local

if TYPE_CHECKING:
    from collections.abc import Generator

    from torch import Tensor
    from torch.nn import Module


class WeightAverage:
    """Average θ̄ ← d θ̄ + (1 − d) θ of the weights θ, updated after each step (Polyak & Juditsky 1992).

    At update t = 1, 2, …, d = min(decay, (1 + t) / (10 + t)), so that the initial weights are soon forgotten. This is
    the rule of TensorFlow's `ExponentialMovingAverage` with `num_updates`.

    Args:
        model: The model; its weights are the first average.
        decay: Largest decay d.
    """

    def __init__(self, model: Module, decay: float) -> None:
        self.model = model
        self.decay = decay
        self.n_updates = 0
        """Number of updates so far."""
        self.tensors = [weights.clone() for weights in self._weights()]
        """The average of each parameter; of a sharded one, the part of this process."""

    @torch.no_grad()
    def update(self) -> None:
        """Add the current weights to the average."""
        self.n_updates += 1
        decay = min(self.decay, (1 + self.n_updates) / (10 + self.n_updates))
        torch._foreach_lerp_(self.tensors, self._weights(), 1 - decay)

    @contextmanager
    def in_model(self) -> Generator[None]:
        """Put the average into the model inside the block, and the weights back at its end."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    @torch.no_grad()
    def restart(self, n_updates: int) -> None:
        """Take the current weights of the model as the average after `n_updates` updates."""
        self.n_updates = n_updates
        for tensor, weights in zip(self.tensors, self._weights(), strict=True):
            tensor.copy_(weights)

    @torch.no_grad()
    def _exchange(self) -> None:
        """Exchange average and weights, bit for bit; one tensor at a time, to need little memory."""
        for tensor, weights in zip(self.tensors, self._weights(), strict=True):
            copy = weights.clone()
            weights.copy_(tensor)
            tensor.copy_(copy)

    def _weights(self) -> list[Tensor]:
        return [local(parameter.detach()) for parameter in self.model.parameters()]
