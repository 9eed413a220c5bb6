"""The Transformer language model."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor
from torch.nn import Module, ModuleList

from bytemill.lm.attention import MultiHeadSelfAttention, causal_mask
from bytemill.lm.layers import Dropout, Embedding, FeedForward, LayerNorm, Linear, RMSNorm, SwiGLU
from bytemill.lm.linear_loss import linear_cross_entropy
from bytemill.lm.loss import cross_entropy
from bytemill.lm.model_config import ModelConfig
from bytemill.lm.rotary import RotaryEmbedding, sinusoids

if TYPE_CHECKING:
    from bytemill.lm.kv_cache import KVCache, LayerCache

__all__ = ["ModelConfig", "TransformerBlock", "TransformerLM"]


class TransformerBlock(Module):
    """Attention, then a feed-forward network, each added to the stream: (..., n_tokens, d_model) -> the same.

    The norm stands before each of the two (Xiong et al. 2020), or after each addition (Vaswani et al. 2017).
    `rope` is shared by the blocks of a model; a block on its own makes one if its configuration asks for it.
    """

    def __init__(
        self,
        config: ModelConfig,
        rope: RotaryEmbedding | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        rope = _rotary_embedding(config, device) if rope is None else rope
        self.pre_norm = config.norm_position == "pre"
        self.ln1 = _norm(config, device, dtype)
        self.attn = MultiHeadSelfAttention(
            config.d_model,
            config.num_heads,
            rope,
            num_kv_heads=config.num_kv_heads,
            sliding_window=config.sliding_window,
            dropout=config.dropout,
            bias=config.bias,
            attention=config.attention,
            device=device,
            dtype=dtype,
        )
        self.ln2 = _norm(config, device, dtype)
        self.ffn = _feed_forward(config, device, dtype)
        self.dropout = Dropout(config.dropout)

    def forward(
        self,
        x: Tensor,
        token_positions: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        cache: LayerCache | None = None,
    ) -> Tensor:
        """The arguments are those of `MultiHeadSelfAttention`."""
        if self.pre_norm:
            x = x + self.dropout(self.attn(self.ln1(x), token_positions, mask=mask, cache=cache))
            return x + self.dropout(self.ffn(self.ln2(x)))
        x = self.ln1(x + self.dropout(self.attn(x, token_positions, mask=mask, cache=cache)))
        return self.ln2(x + self.dropout(self.ffn(x)))


class TransformerLM(Module):
    """A decoder-only Transformer: (..., n_tokens) of ids -> (..., n_tokens, vocab_size) of logits for the next id.

    Weights are drawn from torch's generator; with `seed` they depend on it alone, and that generator is left as it was.
    """

    def __init__(
        self,
        config: ModelConfig,
        *,
        seed: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        if seed is None:
            self._make_parts(device, dtype)
        else:
            with torch.random.fork_rng():  # pyright: ignore[reportUnknownMemberType]
                torch.manual_seed(seed)  # pyright: ignore[reportUnknownMemberType]
                self._make_parts(device, dtype)

    def _make_parts(self, device: torch.device | str | None, dtype: torch.dtype | None) -> None:
        config = self.config
        # As rows of the output layer, vectors of norm √d_model would make logits of that size at the start.
        std = 0.02 if config.tied_embeddings else 1.0
        self.token_embeddings = Embedding(config.vocab_size, config.d_model, std, device=device, dtype=dtype)
        if config.position == "learned":
            self.position_embeddings = Embedding(
                config.context_length, config.d_model, std, device=device, dtype=dtype
            )
        if config.position == "sinusoidal":
            table = sinusoids(config.context_length, config.d_model).to(device)
            self.register_buffer("sinusoids", table, persistent=False)
        self.dropout = Dropout(config.dropout)
        rope = _rotary_embedding(config, device)
        self.layers = ModuleList(
            TransformerBlock(config, rope, device, dtype) for _ in range(config.num_layers)
        )
        if config.norm_position == "pre":  # after the last block's own norm another would be one too many
            self.ln_final = _norm(config, device, dtype)
        self.lm_head = Linear(config.d_model, config.vocab_size, False, device=device, dtype=dtype)
        if config.tied_embeddings:
            self.lm_head.weight = self.token_embeddings.weight

    def forward(self, ids: Tensor, cache: KVCache | None = None, *, last_only: bool = False) -> Tensor:
        """Logits of the next token after each id; with `last_only`, after the last one alone: (..., 1, vocab_size).

        With a cache, `ids` (batch, n_tokens) stand behind those that it holds, and are added to it.

        Raises:
            ValueError: more positions than the context has.
        """
        x = self.hidden(ids, cache)
        return self.lm_head(x[..., -1:, :] if last_only else x)

    def loss(self, ids: Tensor, targets: Tensor) -> Tensor:
        """`cross_entropy(model(ids), targets)`, with the logits made block by block and never held: for training."""
        x = self.hidden(ids)
        if torch.compiler.is_compiling():  # which fuses the plain way itself
            return cross_entropy(self.lm_head(x), targets)
        return linear_cross_entropy(x, self.lm_head.weight, targets)

    def hidden(self, ids: Tensor, cache: KVCache | None = None) -> Tensor:
        """What the output layer reads: (..., n_tokens) of ids -> (..., n_tokens, d_model)."""
        n_before = 0 if cache is None else cache.n_positions
        n_positions = n_before + ids.shape[-1]
        if n_positions > self.config.context_length:
            raise ValueError(
                f"{n_positions} positions are more than the context of {self.config.context_length} tokens has"
            )
        positions = torch.arange(n_before, n_positions, device=ids.device)
        mask = None
        if cache is not None:
            if cache.n_padding is not None:
                # (batch, n_tokens), counted from each row's first real token
                positions = (positions - cache.n_padding.to(ids.device)[:, None]).clamp_min(0)
            if n_before or cache.n_padding is not None:
                mask = causal_mask(
                    ids.shape[-1], n_positions, self.config.sliding_window, cache.n_padding, ids.device
                )
        x = self._embed(ids, positions)
        for index, layer in enumerate(self.layers):
            x = layer(x) if cache is None else layer(x, positions, mask=mask, cache=cache.layers[index])
        if cache is not None:
            cache.advance_to(n_positions)
        return self.ln_final(x) if self.config.norm_position == "pre" else x

    def _embed(self, ids: Tensor, positions: Tensor) -> Tensor:
        """(..., n_tokens, d_model)."""
        x = self.token_embeddings(ids)
        if self.config.position == "learned":
            x = x + self.position_embeddings(positions)
        elif self.config.position == "sinusoidal":
            x = x + cast("Tensor", self.sinusoids)[positions].to(x.dtype)
        return self.dropout(x)

    def n_parameters(self, *, non_embedding: bool = False) -> int:
        """How many numbers are trained; a tensor under two names counts once.

        `non_embedding` leaves out the token and position embeddings, but not an output layer of its own.
        """
        n_parameters = sum(parameter.numel() for parameter in self.parameters())
        if non_embedding:
            n_parameters -= self.token_embeddings.weight.numel()
            if self.config.position == "learned":
                n_parameters -= self.position_embeddings.weight.numel()
        return n_parameters


def _rotary_embedding(config: ModelConfig, device: torch.device | str | None) -> RotaryEmbedding | None:
    if config.position != "rotary":
        return None
    return RotaryEmbedding(config.rope_theta, config.d_head, config.context_length, device)


def _norm(config: ModelConfig, device: torch.device | str | None, dtype: torch.dtype | None) -> Module:
    if config.norm == "rms":
        return RMSNorm(config.d_model, config.norm_eps, device=device, dtype=dtype)
    return LayerNorm(config.d_model, config.norm_eps, device=device, dtype=dtype)


def _feed_forward(
    config: ModelConfig, device: torch.device | str | None, dtype: torch.dtype | None
) -> Module:
    if config.feed_forward == "swiglu":
        return SwiGLU(config.d_model, config.d_ff, config.bias, device=device, dtype=dtype)
    return FeedForward(
        config.d_model, config.d_ff, config.feed_forward, bias=config.bias, device=device, dtype=dtype
    )
