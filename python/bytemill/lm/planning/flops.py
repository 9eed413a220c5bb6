"""How much arithmetic a model does: the matrix products, at 2 m n p for (m × n) times (n × p).

All else (norms, softmax, activations, the optimizer) grows with the width, not its square, and is left out, as in
`torch.utils.flop_counter`. Attention counts whole: half of its weights are masked, and a kernel may skip them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bytemill.lm.model_config import ModelConfig


def forward_flops(config: ModelConfig, batch_size: int = 1, n_tokens: int | None = None) -> dict[str, int]:
    """Part -> FLOPs of reading a batch; `n_tokens` a sequence, by default the whole context."""
    n_tokens = config.context_length if n_tokens is None else n_tokens
    d, d_kv, n_layers = config.d_model, config.n_kv_heads * config.d_head, config.num_layers
    tokens = batch_size * n_tokens
    n_matrices = 3 if config.feed_forward == "swiglu" else 2
    return {
        "queries, keys, values": n_layers * 2 * tokens * d * (d + 2 * d_kv),
        "attention scores": n_layers * 2 * tokens * n_tokens * d,
        "weighted values": n_layers * 2 * tokens * n_tokens * d,
        "attention output": n_layers * 2 * tokens * d * d,
        "feed-forward": n_layers * 2 * tokens * n_matrices * d * config.d_ff,
        "output layer": 2 * tokens * d * config.vocab_size,
    }


def step_flops(config: ModelConfig, batch_size: int = 1, n_tokens: int | None = None) -> dict[str, int]:
    """Part -> FLOPs of a training step: the backward pass has two products for each of the forward pass."""
    return {part: 3 * flops for part, flops in forward_flops(config, batch_size, n_tokens).items()}


def flops_per_token(
    config: ModelConfig, context_length: int | None = None, *, backward: bool = True
) -> float:
    """FLOPs for one token of sequences of that length, of a training step or of the forward pass alone.

    >>> from bytemill.lm import preset
    >>> round(flops_per_token(preset("tinystories")) / 1e6)
    112
    """
    n_tokens = config.context_length if context_length is None else context_length
    flops = (step_flops if backward else forward_flops)(config, 1, n_tokens)
    return sum(flops.values()) / n_tokens
