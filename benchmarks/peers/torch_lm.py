"""What our language model is compared with: a model of the same shape made of torch.nn's own parts alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

if TYPE_CHECKING:
    from bytemill.lm import ModelConfig


class TorchBlock(nn.Module):
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
        q, k = turned(heads[0], cos, sin), turned(heads[1], cos, sin)
        mixed = functional.scaled_dot_product_attention(q, k, heads[2], is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, n_tokens, d_model))
        y = self.ln2(x)
        return x + self.w2(functional.silu(self.w1(y)) * self.w3(y))


def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding on halves, as most models have it; ours is on neighbours, which is another order of rows."""
    left, right = x.chunk(2, -1)
    return x * cos + torch.cat((-right, left), -1) * sin


def halved(rows: Tensor, n_heads: int) -> Tensor:
    """Rows of a head in the order of `turned`: the first of each pair of neighbours, then the second."""
    pairs = rows.view(n_heads, -1, 2, rows.shape[-1])
    return torch.cat([pairs[:, :, 0], pairs[:, :, 1]], dim=1).reshape(rows.shape)


class TorchLM(nn.Module):
    """The shape of our presets with rotary embedding."""

    cos: Tensor
    sin: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.embeddings = nn.Embedding(config.vocab_size, config.d_model)
        self.blocks = nn.ModuleList(TorchBlock(config) for _ in range(config.num_layers))
        self.ln_final = nn.RMSNorm(config.d_model, eps=config.norm_eps)
        self.head = nn.Linear(config.d_model, config.vocab_size, bias=False)
        frequencies = config.rope.theta ** (-torch.arange(0, config.d_head, 2) / config.d_head)
        angles = torch.outer(torch.arange(config.context_length), frequencies).repeat(1, 2)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    @torch.no_grad()
    def start_as(self, model: Any) -> None:
        """Take the weights of our `TransformerLM`: what is computed is then the same, whatever the order of rows."""
        self.embeddings.weight.copy_(model.token_embeddings.weight)
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
        x = self.embeddings(ids)
        for block in self.blocks:
            x = block(x, self.cos[: ids.shape[-1]], self.sin[: ids.shape[-1]])
        return functional.cross_entropy(self.head(self.ln_final(x)).flatten(0, 1), targets.flatten())
