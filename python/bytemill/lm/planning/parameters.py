"""Number of parameters, by part."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bytemill.errors import ModelConfigError
from bytemill.lm.model_config import FEED_FORWARD_MATRICES

if TYPE_CHECKING:
    from bytemill.lm.model_config import ModelConfig


def check_known(config: ModelConfig) -> None:
    """Raise ModelConfigError if a part of the model is unknown here, so that its numbers would be wrong."""
    unknown = config.unknown_options()
    if unknown:
        raise ModelConfigError(
            f"the parameters, FLOPs and memory of {', '.join(unknown)} are unknown",
            hint="count them in bytemill.lm.planning",
        )


def parameters_by_part(config: ModelConfig) -> dict[str, int]:
    """Return the number of parameters by part; a tied output layer counts 0.

    >>> from bytemill.lm import preset
    >>> parameters_by_part(preset("gpt2-xl"))["attention"]
    491827200

    Raises:
        ModelConfigError: A part of the model is unknown.
    """
    check_known(config)
    d, n_layers = config.d_model, config.num_layers
    d_q, d_kv = config.num_heads * config.d_head, config.n_kv_heads * config.d_head
    attention, feed_forward = block_matrices(config)
    if config.bias or config.qkv_bias:
        attention += d_q + 2 * d_kv
    if config.bias:
        attention += d
        feed_forward += (FEED_FORWARD_MATRICES[config.feed_forward] - 1) * config.d_ff + d
    if config.qk_norm:
        attention += 2 * config.d_head
    norm = 2 * d if config.norm == "layer" and config.norm_bias else d
    return {
        "token embeddings": config.vocab_size * d,
        "position embeddings": config.context_length * d if config.position == "learned" else 0,
        "attention": n_layers * attention,
        "feed-forward": n_layers * feed_forward,
        "norms": (2 * n_layers + (config.norm_position == "pre")) * norm,
        "output layer": 0 if config.tied_embeddings else config.vocab_size * d,
    }


def block_matrices(config: ModelConfig) -> tuple[int, int]:
    """Return the number of weights in the matrices of a block: attention, feed-forward."""
    d, d_q, d_kv = config.d_model, config.num_heads * config.d_head, config.n_kv_heads * config.d_head
    check_known(config)
    return 2 * d * d_q + 2 * d * d_kv, FEED_FORWARD_MATRICES[config.feed_forward] * d * config.d_ff


def n_parameters(config: ModelConfig) -> int:
    """Return the total number of parameters.

    >>> from bytemill.lm import preset
    >>> f"{n_parameters(preset('gpt2-xl')):,}"
    '1,557,611,200'
    """
    return sum(parameters_by_part(config).values())
