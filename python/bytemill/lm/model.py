"""The Transformer language model."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Self, cast

import torch
from torch import Tensor
from torch.nn import Module, ModuleList

from bytemill.lm.activation_checkpointing import Checkpointed
from bytemill.lm.activations import soft_capped
from bytemill.lm.attention import MultiHeadSelfAttention, causal_mask
from bytemill.lm.initialization import initialize_as_gpt2
from bytemill.lm.kernels.choice import SCRATCH, Kernels, choose_kernels
from bytemill.lm.layers import Dropout, Embedding, FeedForward, LayerNorm, Linear, RMSNorm, SwiGLU
from bytemill.lm.loss import mean_losses
from bytemill.lm.model_config import ModelConfig
from bytemill.lm.rotary import RotaryEmbedding, llama3_frequencies, rotary_frequencies, sinusoids

if TYPE_CHECKING:
    from collections.abc import Callable

    from bytemill.lm.document_mask import DocumentMask
    from bytemill.lm.kernels.names import KernelName
    from bytemill.lm.kv_cache import KVCache, LayerCache
    from bytemill.lm.planning.memory import CheckpointingName

__all__ = ["ModelConfig", "TransformerBlock", "TransformerLM"]


class TransformerBlock(Module):
    """Attention and a feed-forward network, each added to the stream: (..., n_tokens, d_model) -> the same shape.

    A norm precedes each of the two (Xiong et al. 2020), or follows each addition (Vaswani et al. 2017).

    Args:
        config: Shape of the model.
        rope: Rotary embedding shared by the blocks of a model; by default a new one, if the configuration has one.
        device: Device of the weights.
        dtype: Type of the weights.
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
            head_dim=config.head_dim,
            qkv_bias=config.qkv_bias,
            qk_norm_eps=config.norm_eps if config.qk_norm else None,
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
        document_starts: Tensor | None = None,
    ) -> Tensor:
        """Compute the block; the arguments are those of `MultiHeadSelfAttention.forward`."""
        y = self.ln1(x) if self.pre_norm else x
        y = self.attn(y, token_positions, mask=mask, cache=cache, document_starts=document_starts)
        if self.pre_norm:
            x = x + self.dropout(y)
            return x + self.dropout(self.ffn(self.ln2(x)))
        x = self.ln1(x + self.dropout(y))
        return self.ln2(x + self.dropout(self.ffn(x)))


class TransformerLM(Module):
    """Decoder-only Transformer: ids (..., n_tokens) -> logits of the next id (..., n_tokens, vocab_size).

    Args:
        config: Shape of the model.
        seed: Seed of the initial weights; by default torch's global generator, which is unchanged if a seed is set.
        device: Device of the weights.
        dtype: Type of the weights.
    """

    kernels: Kernels = SCRATCH

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
        self._training_blocks: list[Callable[..., Tensor]] = []  # in place of the layers
        if seed is None:
            self._build(device, dtype)
        else:
            with torch.random.fork_rng():  # pyright: ignore[reportUnknownMemberType]
                torch.manual_seed(seed)  # pyright: ignore[reportUnknownMemberType]
                self._build(device, dtype)

    def _build(self, device: torch.device | str | None, dtype: torch.dtype | None) -> None:
        config = self.config
        # As rows of the output layer, vectors of norm √d_model would give initial logits of that size.
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
        if config.norm_position == "pre":  # with post-norm, the last block ends with a norm
            self.ln_final = _norm(config, device, dtype)
        self.lm_head = Linear(config.d_model, config.vocab_size, False, device=device, dtype=dtype)
        if config.tied_embeddings:
            self.lm_head.weight = self.token_embeddings.weight
        if config.initialization == "gpt2":
            initialize_as_gpt2(self, config.num_layers)

    def forward(self, ids: Tensor, cache: KVCache | None = None, *, last_only: bool = False) -> Tensor:
        """Compute the logits of the next id at each position.

        Args:
            ids: (..., n_tokens); with a cache (batch, n_tokens).
            cache: Keys and values of the preceding tokens; those of `ids` are appended.
            last_only: Compute only the logits after the last id, (..., 1, vocab_size).

        Raises:
            ValueError: There are more positions than the context length.
        """
        x = self.hidden(ids, cache)
        return self.logits(x[..., -1:, :] if last_only else x)

    def loss(self, ids: Tensor, targets: Tensor, z_loss: float = 0.0) -> Tensor:
        """Compute `cross_entropy(model(ids), targets, z_loss)`; kernels other than scratch never store all logits."""
        return self.losses(ids, targets, z_loss)[0]

    def losses(
        self,
        ids: Tensor,
        targets: Tensor,
        z_loss: float = 0.0,
        documents: DocumentMask | None = None,
        *,
        is_padded: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Return `loss(ids, targets, z_loss)`, and without gradient the part of it that is cross-entropy.

        Args:
            ids: Ids (..., n_tokens).
            targets: Their targets, of the same shape.
            z_loss: See `loss.cross_entropy`.
            documents: Tokens attend to their own document alone.
            is_padded: Some targets are negative; they do not count.
        """
        x, losses = self.hidden(ids, documents=documents), self.kernels.losses
        if is_padded:
            x, targets = x[targets >= 0], targets[targets >= 0]
        if losses is not None:
            return losses(x, self.lm_head.weight, targets, z_loss, soft_cap=self.config.logit_soft_cap)
        return mean_losses(self.logits(x), targets, z_loss)

    def logits(self, hidden: Tensor) -> Tensor:
        """Compute the output layer: (..., d_model) -> (..., vocab_size)."""
        logits, cap = self.lm_head(hidden), self.config.logit_soft_cap
        return logits if cap is None else soft_capped(logits, cap)

    def use_kernels(self, kernels: Kernels | KernelName) -> Self:
        """Choose the implementation of each part; a new model uses the textbook.

        Args:
            kernels: The implementations, or the name of a choice for the device of the weights.

        Returns:
            The model.
        """
        if not isinstance(kernels, Kernels):
            kernels = choose_kernels(kernels, self.lm_head.weight.device)
        for module in self.modules():
            if hasattr(module, "kernels"):
                cast("Any", module).kernels = kernels
        return self

    def checkpoint_activations(self, name: CheckpointingName) -> None:
        """Save less of each block for the backward pass of training, and compute the rest again.

        Args:
            name: What to save; see `activation_checkpointing`.
        """
        has_dropout = self.config.dropout > 0
        self._training_blocks = (
            []
            if name == "none"
            else [Checkpointed(layer, name, has_dropout=has_dropout) for layer in self.layers]
        )

    def compile_blocks(self, **options: Any) -> None:
        """Compile the blocks for training, with `torch.compile`: once, since all run the same code.

        Call this after `checkpoint_activations`.

        Args:
            options: Arguments of `torch.compile`.
        """
        if self.lm_head.weight.device.type == "cpu":
            # What is cheap to compute again is not stored for the backward pass, such as gates, norms and scores. With
            # activation checkpointing the choice is made, and torch before 2.15 fails to combine the two.
            config: Any = import_module("torch._functorch.config")
            config.activation_memory_budget = 1.0 if self._training_blocks else 0.6
        self._training_blocks = [
            cast("Any", torch.compile(block, dynamic=False, **options))
            for block in self._training_blocks or self.layers
        ]

    def hidden(
        self, ids: Tensor, cache: KVCache | None = None, documents: DocumentMask | None = None
    ) -> Tensor:
        """Compute the input of the output layer: ids (..., n_tokens) -> (..., n_tokens, d_model).

        Args:
            ids: See `forward`.
            cache: See `forward`.
            documents: Tokens attend to their own document alone; not with a cache.
        """
        n_before = 0 if cache is None else cache.n_positions
        n_positions = n_before + ids.shape[-1]
        if n_positions > self.config.context_length:
            raise ValueError(
                f"{n_positions} positions exceed the context length of {self.config.context_length} tokens"
            )
        positions = torch.arange(n_before, n_positions, device=ids.device)
        if cache is not None:
            x = self._hidden_with_cache(ids, positions, cache)
        else:
            starts = None
            if documents is not None:
                starts = documents.starts(ids)
                positions = positions - starts if documents.reset_positions else positions
            x = self._embed(ids, positions)
            # Other shapes than those of training, such as a growing cache, would compile the blocks again.
            for block in (self._training_blocks if self.training else None) or self.layers:
                x = block(x) if documents is None else block(x, positions, document_starts=starts)
        return self.ln_final(x) if self.config.norm_position == "pre" else x

    def _hidden_with_cache(self, ids: Tensor, positions: Tensor, cache: KVCache) -> Tensor:
        """Return the result of the last block, and append keys and values to the cache."""
        n_before, n_tokens, mask = cache.n_positions, ids.shape[-1], None
        if cache.n_padding is not None:
            # (batch, n_tokens), counted from the first real token of each row
            positions = (positions - cache.n_padding.to(ids.device)[:, None]).clamp_min(0)
        # One query attends to all cached keys, and needs a mask only for padding.
        if (n_before and n_tokens > 1) or cache.n_padding is not None:
            n_padding = None if cache.n_padding is None else (cache.n_padding - cache.n_dropped).clamp_min(0)
            n_keys = n_before - cache.n_dropped + n_tokens
            window = self.config.sliding_window
            mask = causal_mask(n_tokens, n_keys, window, n_padding=n_padding, device=ids.device)
        x = self._embed(ids, positions)
        for layer, layer_cache in zip(self.layers, cache.layers, strict=True):
            x = layer(x, positions, mask=mask, cache=layer_cache)
        cache.advance_to(n_before + n_tokens)
        return x

    def _embed(self, ids: Tensor, positions: Tensor) -> Tensor:
        """Return token and position embeddings (..., n_tokens, d_model)."""
        x = self.token_embeddings(ids)
        if self.config.position == "learned":
            x = x + self.position_embeddings(positions)
        elif self.config.position == "sinusoidal":
            x = x + cast("Tensor", self.sinusoids)[positions].to(x.dtype)
        return self.dropout(x)

    def n_parameters(self, *, non_embedding: bool = False) -> int:
        """Return the number of parameters; a shared tensor counts once.

        Args:
            non_embedding: Exclude token and position embeddings, but not an untied output layer.
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
    frequencies = rotary_frequencies(config.rope_theta, config.d_rotary)
    if config.rope_scaling == "linear":
        frequencies = frequencies / config.rope_factor
    elif config.rope_scaling == "llama3":
        frequencies = llama3_frequencies(
            frequencies,
            config.rope_factor,
            config.rope_low_freq_factor,
            config.rope_high_freq_factor,
            config.rope_original_context,
        )
    unrotated = frequencies.new_zeros((config.d_head - config.d_rotary) // 2)
    frequencies = torch.cat((frequencies, unrotated))
    return RotaryEmbedding(
        config.rope_theta, config.d_head, config.context_length, device, frequencies=frequencies
    )


def _norm(config: ModelConfig, device: torch.device | str | None, dtype: torch.dtype | None) -> Module:
    if config.norm == "rms":
        return RMSNorm(config.d_model, config.norm_eps, device=device, dtype=dtype)
    return LayerNorm(config.d_model, config.norm_eps, config.norm_bias, device=device, dtype=dtype)


def _feed_forward(
    config: ModelConfig, device: torch.device | str | None, dtype: torch.dtype | None
) -> Module:
    if config.feed_forward == "swiglu":
        return SwiGLU(config.d_model, config.d_ff, config.bias, device=device, dtype=dtype)
    return FeedForward(
        config.d_model, config.d_ff, config.feed_forward, bias=config.bias, device=device, dtype=dtype
    )
