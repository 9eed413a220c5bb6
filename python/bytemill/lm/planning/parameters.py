"""Number of parameters, by part."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bytemill.lm.model_config import ModelConfig


def parameters_by_part(config: ModelConfig) -> dict[str, int]:
    """Return the number of parameters by part; a tied output layer counts 0.

    >>> from bytemill.lm import preset
    >>> parameters_by_part(preset("gpt2-xl"))["attention"]
    491827200
    """
    d, d_kv, d_ff, n_layers = (
        config.d_model,
        config.n_kv_heads * config.d_head,
        config.d_ff,
        config.num_layers,
    )
    attention = 2 * d * d + 2 * d * d_kv  # queries and output, keys and values
    feed_forward = (3 if config.feed_forward == "swiglu" else 2) * d * d_ff
    if config.bias:
        attention += 2 * d + 2 * d_kv
        feed_forward += (2 if config.feed_forward == "swiglu" else 1) * d_ff + d
    norm = d if config.norm == "rms" else 2 * d
    return {
        "token embeddings": config.vocab_size * d,
        "position embeddings": config.context_length * d if config.position == "learned" else 0,
        "attention": n_layers * attention,
        "feed-forward": n_layers * feed_forward,
        "norms": (2 * n_layers + (config.norm_position == "pre")) * norm,
        "output layer": 0 if config.tied_embeddings else config.vocab_size * d,
    }


def n_parameters(config: ModelConfig) -> int:
    """Return the total number of parameters.

    >>> from bytemill.lm import preset
    >>> f"{n_parameters(preset('gpt2-xl')):,}"
    '1,557,611,200'
    """
    return sum(parameters_by_part(config).values())
