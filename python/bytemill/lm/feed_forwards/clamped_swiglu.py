"""The gated network of gpt-oss's experts, whose inner numbers are bounded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from bytemill.lm.model import SwiGLU
from bytemill.lm.tensors import narrowed

if TYPE_CHECKING:
    from torch import Tensor

ALPHA = 1.702
"""Slope of the gate: x · σ(1.702 x) approximates GELU."""
LIMIT = 7.0
"""Upper bound of the gate, and bound of the absolute values that it gates."""


class ClampedSwiGLU(SwiGLU):
    """Feed-forward network W₂ (g σ(α g) ⊙ (u + 1)), with g = min(W₁ x, 7) and u = W₃ x clamped to ±7 (OpenAI 2025)."""

    def forward(self, x: Tensor) -> Tensor:
        x = narrowed(x)
        gate = self.w1(x).clamp_max(LIMIT)
        up = self.w3(x).clamp(-LIMIT, LIMIT)
        return self.w2(gate * torch.sigmoid(ALPHA * gate) * (up + 1))
