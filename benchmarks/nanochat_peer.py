"""A model of the shape of nanochat's, of torch.nn's own parts: what `gpu.py` compares the nanochat presets with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

if TYPE_CHECKING:
    from bytemill.lm import ModelConfig


def unit(x: Tensor) -> Tensor:
    """RMSNorm without weights."""
    return functional.rms_norm(x, (x.shape[-1],))


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate pairs made of the two halves of each head."""
    left, right = x.chunk(2, dim=-1)
    return torch.cat((left * cos + right * sin, right * cos - left * sin), dim=-1)


class Block(nn.Module):
    """QK-norm after the rotation, squared ReLU, no biases."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        d_model = config.d_model
        self.n_heads = config.num_heads
        self.q, self.k, self.v, self.out = (nn.Linear(d_model, d_model, bias=False) for _ in range(4))
        self.up, self.down = (
            nn.Linear(d_model, config.d_ff, bias=False),
            nn.Linear(config.d_ff, d_model, bias=False),
        )

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        y = unit(x)
        shape = (*y.shape[:2], self.n_heads, -1)
        q, k, v = (layer(y).view(shape) for layer in (self.q, self.k, self.v))
        q, k = unit(rotated(q, cos, sin)), unit(rotated(k, cos, sin))
        heads = (part.transpose(1, 2) for part in (q, k, v))
        mixed = functional.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(x.shape))
        return x + self.down(functional.relu(self.up(unit(x))).square())


class TorchNanochat(nn.Module):
    """Token embeddings in bfloat16, which make the residual stream bfloat16, untied output layer, capped logits."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.cap = config.logit_soft_cap
        self.tokens = nn.Embedding(config.vocab_size, config.d_model).bfloat16()
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.num_layers))
        self.head = nn.Linear(config.d_model, config.vocab_size, bias=False)
        d_head = config.d_model // config.num_heads
        frequencies = 10_000.0 ** (-torch.arange(0, d_head, 2) / d_head)
        angles = torch.outer(torch.arange(config.context_length), frequencies)[:, None]
        self.register_buffer("cos", angles.cos().bfloat16(), persistent=False)
        self.register_buffer("sin", angles.sin().bfloat16(), persistent=False)

    def loss(self, ids: Tensor, targets: Tensor) -> Tensor:
        n_tokens = ids.shape[-1]
        x = unit(self.tokens(ids))
        for block in self.blocks:
            x = block(x, self.cos[:n_tokens], self.sin[:n_tokens])
        logits = self.head(unit(x)).float()
        if self.cap is not None:
            logits = self.cap * torch.tanh(logits / self.cap)
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
