"""Small models of each mixer."""

from typing import Any

import torch

from bytemill.lm import ModelConfig, TransformerLM
from tests.lm.conftest import sizes

SMALL: dict[str, Any] = sizes(50, 40, 24, 2, 4, 40)
SHAPES: dict[str, dict[str, Any]] = {
    "mla": {"mixer": "mla", "mla": {"q_rank": 10}},
    "mla without ranks": {"mixer": "mla", "position": "none", "bias": True},
    "linear": {"mixer": "linear", "linear": {"chunk": 7}, "bias": True},
    "delta": {"mixer": "delta", "delta": {"chunk": 7, "key_heads": 2, "value_heads": 6, "value_dim": 5}},
    "mamba": {"mixer": "mamba", "mamba": {"chunk": 7, "head_dim": 8, "groups": 3, "state": 6}},
    "hyena": {"mixer": "hyena", "hyena": {"order": 3, "filter_width": 16}, "bias": True},
    "values": {"mixer": ["values", "values:5"], "attention": {"num_kv_heads": 2}},
    "mixed": {"mixer": ["mamba", "window:5"], "mamba": {"convolution": 1}},
    "delta and full": {"mixer": ["delta", "full:nope"], "delta": {"convolution": 2}, "bias": True},
}


def model_of(name: str) -> TransformerLM:
    """A model with random numbers in all its parameters."""
    model = TransformerLM(ModelConfig(**SMALL, **SHAPES[name]), seed=1)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():  # biases of a new model are 0, and norms 1
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return model.eval()
