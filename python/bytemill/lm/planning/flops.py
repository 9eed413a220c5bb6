"""FLOPs of a model: its matrix products, 2 m n p for (m × n) times (n × p).

Everything else (norms, softmax, activations, the optimizer) grows with the width instead of its square and is ignored,
as in `torch.utils.flop_counter`. Attention counts in full, although kernels may skip its masked half.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bytemill.lm.model_config import FEED_FORWARD_MATRICES
from bytemill.lm.planning.parameters import check_known

if TYPE_CHECKING:
    from bytemill.lm.model_config import ModelConfig


def forward_flops(config: ModelConfig, batch_size: int = 1, n_tokens: int | None = None) -> dict[str, int]:
    """Return the FLOPs of a forward pass, by part.

    Args:
        config: Shape of the model.
        batch_size: Number of sequences.
        n_tokens: Tokens per sequence; by default the context length.

    Raises:
        ModelConfigError: A part of the model is unknown.
    """
    n_tokens = config.context_length if n_tokens is None else n_tokens
    d, n_layers = config.d_model, config.num_layers
    d_q, d_kv = config.num_heads * config.d_head, config.n_kv_heads * config.d_head
    tokens = batch_size * n_tokens
    check_known(config)
    return {
        "queries, keys, values": n_layers * 2 * tokens * d * (d_q + 2 * d_kv),
        "attention scores": n_layers * 2 * tokens * n_tokens * d_q,
        "weighted values": n_layers * 2 * tokens * n_tokens * d_q,
        "attention output": n_layers * 2 * tokens * d_q * d,
        "feed-forward": n_layers * 2 * tokens * FEED_FORWARD_MATRICES[config.feed_forward] * d * config.d_ff,
        "output layer": 2 * tokens * d * config.vocab_size,
    }


def step_flops(config: ModelConfig, batch_size: int = 1, n_tokens: int | None = None) -> dict[str, int]:
    """Return the FLOPs of a training step, by part; the backward pass has two products per forward product."""
    return {part: 3 * flops for part, flops in forward_flops(config, batch_size, n_tokens).items()}


def flops_per_token(
    config: ModelConfig, context_length: int | None = None, *, backward: bool = True
) -> float:
    """Return the FLOPs per token.

    Args:
        config: Shape of the model.
        context_length: Tokens per sequence; by default the context length of the model.
        backward: Include the backward pass.

    >>> from bytemill.lm import preset
    >>> round(flops_per_token(preset("tinystories")) / 1e6)
    112
    """
    n_tokens = config.context_length if context_length is None else context_length
    flops = (step_flops if backward else forward_flops)(config, 1, n_tokens)
    return sum(flops.values()) / n_tokens
