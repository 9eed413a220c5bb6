"""Triton kernels: norms, cross-entropy and causal attention, forward and backward, and decoding steps.

Each but the decoding steps is a custom operator with a formula for its backward pass, so `torch.compile` calls it
without breaking the graph. Reference implementations: `layers.rms_norm`, `layers.layer_norm`, `loss.cross_entropy`,
`attention.scaled_dot_product_attention`, `kernels.decoding`. Tests compare values and gradients with them, on a GPU or
by Triton's interpreter on the CPU.

Importing this package needs Triton, which torch installs on Linux.
"""

from bytemill.lm.kernels.triton import decoding
from bytemill.lm.kernels.triton.attention import causal_attention
from bytemill.lm.kernels.triton.layers import linear_losses, losses_and_gradients, normalized

__all__ = ["causal_attention", "decoding", "linear_losses", "losses_and_gradients", "normalized"]
