"""The loads of experts in training: tokens per expert, and biases of routers that balance them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch

from bytemill.lm.feed_forwards.experts import MixtureOfExperts
from bytemill.lm.tensors import shard_like

if TYPE_CHECKING:
    from torch.nn import Module

    from bytemill.lm.processes import Processes


def take_loads(model: Module, processes: Processes) -> list[list[int]]:
    """Return the tokens of each expert by layer, of all passes and processes since the last call.

    Routers with a bias are balanced: the bias of an expert with more tokens than the mean decreases by `moe.bias_rate`,
    that of one with fewer increases (Wang et al. 2024). All processes must call this.
    """
    loads: list[list[int]] = []
    for layer in model.modules():
        if isinstance(layer, MixtureOfExperts) and layer.total_counts is not None:
            own_counts: list[float] = cast("Any", layer.total_counts).tolist()
            counts = processes.sum(own_counts)
            layer.total_counts = None
            loads.append([int(count) for count in counts])
            if layer.options.balance == "bias":
                own = torch.tensor(counts, dtype=torch.float64)
                change = layer.options.bias_rate * torch.sign(own.mean() - own)
                bias = layer.router_bias.detach()  # with divided weights, of which this process has some rows
                bias.add_(shard_like(change.to(bias.device, bias.dtype), bias))
    return loads


def imbalance(loads: list[list[int]]) -> float:
    """Return the mean over layers of the largest load as a multiple of the mean load.

    >>> imbalance([[10, 10], [15, 5]])
    1.25
    """
    return sum(max(own) * len(own) / max(1, sum(own)) for own in loads) / len(loads)
