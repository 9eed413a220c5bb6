"""The gated delta rule (Yang et al. 2024), in the layer of Qwen3-Next.

A state S stores values under keys. Each token takes back what the state returns for its key, in the share β, and the
state decays by a = exp(g):

    Sₜ = aₜ Sₜ₋₁ + kₜ (βₜ (vₜ − (aₜ Sₜ₋₁)ᵀ kₜ))ᵀ,    yₜ = Sₜᵀ qₜ / √d_k

Keys and queries have the norm 1. What the tokens of a chunk write depends on each other: the written values U solve the
triangular system (I + tril(β K Kᵀ ⊙ decay, −1)) U = β (V − decay K S), which is the chunked form.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from bytemill.errors import ModelConfigError
from bytemill.lm.mixers.mamba import initial_decay
from bytemill.lm.mixers.scan import decays, read_and_write
from bytemill.lm.mixers.state import (
    RecurrentMixer,
    ShortConvolution,
    StateCache,
    chunks,
    divided,
    in_full_precision,
    in_heads,
    softplus,
    without_padding,
)
from bytemill.lm.model import Linear, RMSNorm, silu
from bytemill.lm.tensors import widened

if TYPE_CHECKING:
    from bytemill.lm.model import LayerCache
    from bytemill.lm.model_config import ModelConfig

_EPS = 1e-6


def unit(x: Tensor) -> Tensor:
    """Divide each vector by its norm."""
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + _EPS)


def chunked_delta(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_decay: Tensor,
    beta: Tensor,
    *,
    state: Tensor,
    chunk: int,
    document_starts: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute all tokens, a chunk at a time.

    Args:
        q: Queries (batch, n_heads, n_tokens, d_k).
        k: Keys, of the same shape.
        v: Values (batch, n_heads, n_tokens, d_v).
        log_decay: (batch, n_heads, n_tokens), at most 0.
        beta: Share that is taken back and written, of the same shape.
        state: The state before the first token, (batch, n_heads, d_k, d_v).
        chunk: Number of tokens of a chunk.
        document_starts: (batch, n_tokens); the state is empty before the start of a document.

    Returns:
        The results, of the shape of the values, and the state after the last token.
    """
    solve: Any = cast("Any", torch.linalg).solve_triangular
    results: list[Tensor] = []
    for own in chunks(q.shape[2], chunk):
        starts = None if document_starts is None else document_starts[:, own]
        between, carried = decays(log_decay[:, :, own], starts, own.start)
        q_own, k_own, share = q[:, :, own], k[:, :, own], beta[:, :, own, None]
        before = carried[..., None] * (k_own @ state)  # what the state returns without the chunk
        system = share * (k_own @ k_own.mT) * between
        written = solve(system, share * (v[:, :, own] - before), upper=False, unitriangular=True)
        result, state = read_and_write(q_own, k_own, written, state, between=between, carried=carried)
        results.append(result)
    return torch.cat(results, dim=2), state


def recurrent_delta(
    q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, beta: Tensor, *, state: Tensor
) -> tuple[Tensor, Tensor]:
    """Compute one token after another; arguments and results are those of `chunked_delta`."""
    results: list[Tensor] = []
    for t in range(q.shape[2]):
        state = log_decay[:, :, t, None, None].exp() * state
        key = k[:, :, t, :, None]
        written = beta[:, :, t, None] * (v[:, :, t] - (key * state).sum(-2))
        state = state + key * written[:, :, None, :]
        results.append((q[:, :, t, :, None] * state).sum(-2))
    return torch.stack(results, dim=2), state


class GatedDelta(RecurrentMixer):
    """A layer of the gated delta rule: (batch, n_tokens, d_model) -> the same shape. It takes no position encoding.

    Args:
        config: Shape of the model.
        device: Device of the weights.
        dtype: Type of the weights.
    """

    def __init__(
        self,
        config: ModelConfig,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.chunk = config.delta.chunk
        self.n_key_heads, self.n_heads, self.d_key, self.d_value = heads_of(config)
        d, d_k, d_v = config.d_model, self.n_key_heads * self.d_key, self.n_heads * self.d_value
        bias = config.bias
        self.q_proj = Linear(d, d_k, bias, device=device, dtype=dtype)
        self.k_proj = Linear(d, d_k, bias, device=device, dtype=dtype)
        self.v_proj = Linear(d, d_v, bias, device=device, dtype=dtype)
        self.gate_proj = Linear(d, d_v, bias, device=device, dtype=dtype)
        self.beta_proj = Linear(d, self.n_heads, bias, device=device, dtype=dtype)
        self.decay_proj = Linear(d, self.n_heads, bias, device=device, dtype=dtype)
        self.convolution = ShortConvolution(
            2 * d_k + d_v, config.delta.convolution, device=device, dtype=dtype
        )
        self.log_rate, self.step_bias = initial_decay(self.n_heads, device, dtype)
        self.norm = RMSNorm(self.d_value, config.norm_eps, device=device, dtype=dtype)
        self.output_proj = Linear(d_v, d, bias, device=device, dtype=dtype)

    @staticmethod
    def new_cache(
        config: ModelConfig, batch_size: int, device: torch.device | str | None, dtype: torch.dtype
    ) -> LayerCache:
        """Return an empty state of a layer."""
        n_key_heads, n_heads, d_key, d_value = heads_of(config)
        n_channels = 2 * n_key_heads * d_key + n_heads * d_value
        shapes = {
            "state": (n_heads, d_key, d_value),
            "convolution": (config.delta.convolution - 1, n_channels),
        }
        return StateCache(batch_size, shapes, device, dtype)

    def mix(
        self, x: Tensor, real: Tensor | None, cache: StateCache | None, document_starts: Tensor | None
    ) -> Tensor:
        """Mix the tokens of (batch, n_tokens, d_model); `real` is False for padding."""
        projected = [self.q_proj(x), self.k_proj(x), self.v_proj(x)]
        gate, beta, step = self.gate_proj(x), self.beta_proj(x), self.decay_proj(x)
        with in_full_precision(x.device):
            inner = without_padding(torch.cat(projected, dim=-1), real)
            inner = silu(self.convolution(inner, document_starts, cache))
            d_k, d_v = self.n_key_heads * self.d_key, self.n_heads * self.d_value
            q, k, v = divided(inner, (d_k, d_k, d_v))
            # Without a share, a token of padding writes nothing.
            beta = without_padding(torch.sigmoid(widened(beta)), real).mT
            log_decay = -widened(self.log_rate).exp()[:, None] * softplus(widened(step) + self.step_bias).mT
            q, k = (unit(in_heads(each, self.n_key_heads)) for each in (q, k))
            # Groups of value heads share a head of queries and keys.
            n_shared = self.n_heads // self.n_key_heads
            q, k = (each.repeat_interleave(n_shared, dim=1) for each in (q / math.sqrt(self.d_key), k))
            v = in_heads(v, self.n_heads)
            shape = (len(x), self.n_heads, self.d_key, self.d_value)
            state = v.new_zeros(shape) if cache is None else cache["state"]
            if cache is not None and x.shape[1] == 1:
                y, state = recurrent_delta(q, k, v, log_decay, beta, state=state)
            else:
                options: dict[str, Any] = {"chunk": self.chunk, "document_starts": document_starts}
                y, state = chunked_delta(q, k, v, log_decay, beta, state=state, **options)
            if cache is not None:
                cache["state"] = state
            y = self.norm(y) * silu(in_heads(widened(gate), self.n_heads))
            y = y.transpose(1, 2).flatten(2)
        return self.output_proj(y.to(x.dtype))

    @staticmethod
    def check(config: ModelConfig) -> None:
        """Raise ModelConfigError if the heads do not divide each other."""
        n_key_heads, n_heads, _, _ = heads_of(config)
        if n_heads % n_key_heads:
            raise ModelConfigError(
                f"delta.value_heads {n_heads} is not a multiple of delta.key_heads {n_key_heads}",
                hint="choose a multiple; delta.key_heads is num_heads by default",
            )

    @staticmethod
    def matrices(config: ModelConfig) -> int:
        """Return the number of parameters in its matrices."""
        n_key_heads, n_heads, d_key, d_value = heads_of(config)
        return config.d_model * (2 * n_key_heads * d_key + 3 * n_heads * d_value + 2 * n_heads)

    @staticmethod
    def vectors(config: ModelConfig) -> int:
        """Return the number of its other parameters."""
        n_key_heads, n_heads, d_key, d_value = heads_of(config)
        d_k, d_v = n_key_heads * d_key, n_heads * d_value
        biases = 2 * d_k + 2 * d_v + 2 * n_heads + config.d_model if config.bias else 0
        return config.delta.convolution * (2 * d_k + d_v) + 2 * n_heads + d_value + biases

    @staticmethod
    def flops(config: ModelConfig, n_tokens: int) -> dict[str, int]:
        """Return the FLOPs of a forward pass over one sequence, by step; without the triangular systems."""
        _, n_heads, d_k, d_v = heads_of(config)
        lengths = [own.stop - own.start for own in chunks(n_tokens, config.delta.chunk)]
        return {
            "delta rule projections": 2 * n_tokens * GatedDelta.matrices(config),
            "delta rule": n_heads * sum(2 * n * n * (2 * d_k + d_v) + 6 * n * d_k * d_v for n in lengths),
        }


def heads_of(config: ModelConfig) -> tuple[int, int, int, int]:
    """Return the numbers of key and value heads, and their widths."""
    own = config.delta
    n_key_heads = own.key_heads or config.num_heads
    return (
        n_key_heads,
        own.value_heads or n_key_heads,
        own.key_dim or config.d_head,
        own.value_dim or config.d_head,
    )
