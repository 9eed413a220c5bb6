"""Models of torch.nn's own parts that `gpu.py` trains beside ours: GPT-2, nanochat's shape, Llama's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import Buffer, functional

if TYPE_CHECKING:
    from bytemill.lm import ModelConfig


class GPT2Block(nn.Module):
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
        self.blocks = nn.ModuleList(GPT2Block(config) for _ in range(config.num_layers))
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


def unit(x: Tensor) -> Tensor:
    """RMSNorm without weights."""
    return functional.rms_norm(x, (x.shape[-1],))


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate pairs made of the two halves of each head."""
    left, right = x.chunk(2, dim=-1)
    return torch.cat((left * cos + right * sin, right * cos - left * sin), dim=-1)


class NanochatBlock(nn.Module):
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
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(x.shape))
        return x + self.down(functional.relu(self.up(unit(x))).square())


class TorchNanochat(nn.Module):
    """Token embeddings in bfloat16, which make the residual stream bfloat16, untied output layer, capped logits."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.cap = config.logit_soft_cap
        self.tokens = nn.Embedding(config.vocab_size, config.d_model).bfloat16()
        self.blocks = nn.ModuleList(NanochatBlock(config) for _ in range(config.num_layers))
        self.head = nn.Linear(config.d_model, config.vocab_size, bias=False)
        d_head = config.d_model // config.num_heads
        frequencies = 10_000.0 ** (-torch.arange(0, d_head, 2) / d_head)
        angles = torch.outer(torch.arange(config.context_length), frequencies)[:, None]
        self.cos, self.sin = (
            Buffer(table.bfloat16(), persistent=False) for table in (angles.cos(), angles.sin())
        )

    def loss(self, ids: Tensor, targets: Tensor) -> Tensor:
        n_tokens = ids.shape[-1]
        x = unit(self.tokens(ids))
        for block in self.blocks:
            x = block(x, self.cos[:n_tokens], self.sin[:n_tokens])
        logits = self.head(unit(x)).float()
        if self.cap is not None:
            logits = self.cap * torch.tanh(logits / self.cap)
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


class LlamaBlock(nn.Module):
    """A pre-norm block: queries, keys and values by one product, attention by torch's kernel, SwiGLU."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        d_model = config.d_model
        self.n_heads = config.num_heads
        self.ln1, self.ln2 = (nn.RMSNorm(d_model, eps=config.norm_eps) for _ in range(2))
        self.qkv = nn.Linear(d_model, 3 * d_model, bias=False)
        self.out = nn.Linear(d_model, d_model, bias=False)
        self.w1, self.w3 = (nn.Linear(d_model, config.d_ff, bias=False) for _ in range(2))
        self.w2 = nn.Linear(config.d_ff, d_model, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, n_tokens, d_model = x.shape
        heads = self.qkv(self.ln1(x)).view(batch, n_tokens, 3, self.n_heads, -1).permute(2, 0, 3, 1, 4)
        q, k = rotated(heads[0], cos, -sin), rotated(heads[1], cos, -sin)
        mixed = functional.scaled_dot_product_attention(q, k, heads[2], is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, n_tokens, d_model))
        y = self.ln2(x)
        return x + self.w2(functional.silu(self.w1(y)) * self.w3(y))


def halved(rows: Tensor, n_heads: int) -> Tensor:
    """Rows of a head in the order of `rotated`, from ours, where a pair that rotates together are neighbours."""
    pairs = rows.view(n_heads, -1, 2, rows.shape[-1])
    return torch.cat([pairs[:, :, 0], pairs[:, :, 1]], dim=1).reshape(rows.shape)


class TorchLlama(nn.Module):
    """The shape of our presets with rotary embedding."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.tokens = nn.Embedding(config.vocab_size, config.d_model)
        self.blocks = nn.ModuleList(LlamaBlock(config) for _ in range(config.num_layers))
        self.ln_final = nn.RMSNorm(config.d_model, eps=config.norm_eps)
        self.head = nn.Linear(config.d_model, config.vocab_size, bias=False)
        frequencies = config.rope.theta ** (-torch.arange(0, config.d_head, 2) / config.d_head)
        angles = torch.outer(torch.arange(config.context_length), frequencies)
        self.cos, self.sin = (Buffer(table, persistent=False) for table in (angles.cos(), angles.sin()))

    @torch.no_grad()
    def start_as(self, model: Any) -> None:
        """Take the weights of our `TransformerLM`: what is computed is then the same, whatever the order of rows."""
        self.tokens.weight.copy_(model.token_embeddings.weight)
        self.ln_final.weight.copy_(model.ln_final.weight)
        self.head.weight.copy_(model.lm_head.weight)
        blocks: Any = self.blocks
        for mine, theirs in zip(blocks, model.layers, strict=True):
            attention, ffn = theirs.attn, theirs.ffn
            q, k = (halved(rows.weight, mine.n_heads) for rows in (attention.q_proj, attention.k_proj))
            mine.qkv.weight.copy_(torch.cat([q, k, attention.v_proj.weight]))
            mine.out.weight.copy_(attention.output_proj.weight)
            for name in ("w1", "w2", "w3"):
                getattr(mine, name).weight.copy_(getattr(ffn, name).weight)
            mine.ln1.weight.copy_(theirs.ln1.weight)
            mine.ln2.weight.copy_(theirs.ln2.weight)

    def loss(self, ids: Tensor, targets: Tensor) -> Tensor:
        x = self.tokens(ids)
        for block in self.blocks:
            x = block(x, self.cos[: ids.shape[-1]], self.sin[: ids.shape[-1]])
        return functional.cross_entropy(self.head(self.ln_final(x)).flatten(0, 1), targets.flatten())
