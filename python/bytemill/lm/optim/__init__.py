"""Optimizers, parameter groups and gradient clipping."""

from bytemill.lm.optim.adamw import AdamW
from bytemill.lm.optim.base import SGD, clip_gradients, muon_groups, parameter_groups
from bytemill.lm.optim.muon import Muon, warm_momentum
from bytemill.lm.optim.soap import SOAP

__all__ = [
    "SGD",
    "SOAP",
    "AdamW",
    "Muon",
    "clip_gradients",
    "muon_groups",
    "parameter_groups",
    "warm_momentum",
]
