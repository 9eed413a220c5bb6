"""GPT-2 of torch.nn's own parts, as nanoGPT builds it: what `gpu.py` compares our training with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

if TYPE_CHECKING:
    from bytemill.lm import ModelConfig


class Block(nn.Module):
    """A pre-norm block: queries, keys and values by one product, SDPA, GELU by tanh."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        d_model = config.d_model
        self.n_heads = config.num_heads
        self.ln1, self.ln2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.qkv, self.out = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)
        self.up, self.down = nn.Linear(d_model, config.d_ff), nn.Linear(config.d_ff, d_model)

    def forward(self, x: Tensor) -> Tensor:
        batch, n_tokens, d_model = x.shape
        heads = self.qkv(self.ln1(x)).view(batch, n_tokens, 3, self.n_heads, -1).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(*heads.unbind(), is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, n_tokens, d_model))
        return x + self.down(functional.gelu(self.up(self.ln2(x)), approximate="tanh"))


class TorchGPT2(nn.Module):
    """GPT-2 with learned positions and tied embeddings."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.tokens = nn.Embedding(config.vocab_size, config.d_model)
        self.positions = nn.Embedding(config.context_length, config.d_model)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.num_layers))
        self.ln_final = nn.LayerNorm(config.d_model)
        self.head = nn.Linear(config.d_model, config.vocab_size, bias=False)
        self.head.weight = self.tokens.weight

    @torch.no_grad()
    def start_as(self, model: Any) -> None:
        """Copy the weights of a `TransformerLM` of the same shape."""
        self.tokens.weight.copy_(model.token_embeddings.weight)
        self.positions.weight.copy_(model.position_embeddings.weight)
        blocks: Any = self.blocks
        for mine, theirs in zip(blocks, model.layers, strict=True):
            attention = theirs.attn
            for name in ("weight", "bias"):
                parts = [
                    getattr(layer, name) for layer in (attention.q_proj, attention.k_proj, attention.v_proj)
                ]
                getattr(mine.qkv, name).copy_(torch.cat(parts))
            pairs = {mine.out: attention.output_proj, mine.up: theirs.ffn.w1, mine.down: theirs.ffn.w2}
            for own, other in (pairs | {mine.ln1: theirs.ln1, mine.ln2: theirs.ln2}).items():
                copy(own, other)
        copy(self.ln_final, model.ln_final)

    def loss(self, ids: Tensor, targets: Tensor) -> Tensor:
        x = self.tokens(ids) + self.positions.weight[: ids.shape[-1]]
        for block in self.blocks:
            x = block(x)
        return functional.cross_entropy(self.head(self.ln_final(x)).flatten(0, 1), targets.flatten())


def copy(own: Any, other: Any) -> None:
    own.weight.copy_(other.weight)
    own.bias.copy_(other.bias)
