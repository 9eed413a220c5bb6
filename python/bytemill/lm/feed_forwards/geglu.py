"""GeGLU: a gated feed-forward network whose gate is GELU, as in Gemma."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bytemill.lm.model import SwiGLU, gelu
from bytemill.lm.tensors import narrowed

if TYPE_CHECKING:
    from torch import Tensor


class GeGLU(SwiGLU):
    """Feed-forward network W₂ (gelu(W₁ x) ⊙ W₃ x), with the tanh approximation of GELU (Shazeer 2020)."""

    def forward(self, x: Tensor) -> Tensor:
        x = narrowed(x)
        gate, own = self.w1(x), self.kernels.activations.get("gelu")
        return self.w2((gelu(gate, "tanh") if own is None else own(gate)) * self.w3(x))
