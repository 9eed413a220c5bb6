"""Linear attention (Katharopoulos et al. 2020): softmax replaced by a product of features.

    yₜ = Σⱼ≤ₜ (φ(qₜ) · φ(kⱼ)) vⱼ / Σⱼ≤ₜ φ(qₜ) · φ(kⱼ),    φ(x) = elu(x) + 1

Both sums are recurrences of one matrix: the values get a column of ones, whose sum is the divisor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor

from bytemill.lm.mixers.scan import chunked_scan, recurrent_scan, scan_flops
from bytemill.lm.mixers.state import RecurrentMixer, StateCache, in_full_precision, in_heads
from bytemill.lm.model import Linear
from bytemill.lm.tensors import widened

if TYPE_CHECKING:
    from bytemill.lm.model import LayerCache, RotaryEmbedding
    from bytemill.lm.model_config import ModelConfig

_EPS = 1e-6


def elu_plus_one(x: Tensor) -> Tensor:
    """Compute elu(x) + 1: x + 1 above 0, and exp(x) below."""
    return x.clamp_min(0) + x.clamp_max(0).exp()


class LinearAttention(RecurrentMixer):
    """Multi-head linear attention: (batch, n_tokens, d_model) -> the same shape.

    It takes no position encoding.

    Args:
        d_model: Width of the input.
        num_heads: Number of heads.
        d_head: Width of a head.
        chunk: Number of tokens that are computed at once.
        bias: Add a bias to the projections.
        device: Device of the weights.
        dtype: Type of the weights.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        d_head: int,
        *,
        chunk: int = 64,
        bias: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.n_heads, self.d_head, self.chunk = num_heads, d_head, chunk
        width = num_heads * d_head
        self.q_proj = Linear(d_model, width, bias, device=device, dtype=dtype)
        self.k_proj = Linear(d_model, width, bias, device=device, dtype=dtype)
        self.v_proj = Linear(d_model, width, bias, device=device, dtype=dtype)
        self.output_proj = Linear(width, d_model, bias, device=device, dtype=dtype)

    @classmethod
    def of(
        cls,
        config: ModelConfig,
        rope: RotaryEmbedding | None = None,  # noqa: ARG003
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> Self:
        """Build the mixer of a model."""
        return cls(
            config.d_model,
            config.num_heads,
            config.d_head,
            chunk=config.linear.chunk,
            bias=config.bias,
            device=device,
            dtype=dtype,
        )

    @staticmethod
    def new_cache(
        config: ModelConfig, batch_size: int, device: torch.device | str | None, dtype: torch.dtype
    ) -> LayerCache:
        """Return an empty state of a layer."""
        shape = (config.num_heads, config.d_head, config.d_head + 1)
        return StateCache(batch_size, {"sums": shape}, device, dtype)

    def mix(
        self, x: Tensor, real: Tensor | None, cache: StateCache | None, document_starts: Tensor | None
    ) -> Tensor:
        """Mix the tokens of (batch, n_tokens, d_model); `real` is False for padding."""
        q, k, v = (
            in_heads(widened(layer(x)), self.n_heads) for layer in (self.q_proj, self.k_proj, self.v_proj)
        )
        with in_full_precision(x.device):
            q, k = elu_plus_one(q), elu_plus_one(k)
            if real is not None:
                k = k.masked_fill(~real[:, None, :, None], 0)
            v = torch.cat((v, torch.ones_like(v[..., :1])), dim=-1)
            no_decay = q.new_zeros(q.shape[:3])
            state = (
                q.new_zeros(*q.shape[:2], self.d_head, self.d_head + 1) if cache is None else cache["sums"]
            )
            if cache is not None and x.shape[1] == 1:
                sums, state = recurrent_scan(q, k, v, no_decay, state)
            else:
                sums, state = chunked_scan(
                    q, k, v, no_decay, state, chunk=self.chunk, document_starts=document_starts
                )
            if cache is not None:
                cache["sums"] = state
            mixed = sums[..., :-1] / (sums[..., -1:] + _EPS)
        return self.output_proj(mixed.transpose(1, 2).flatten(2).to(x.dtype))

    @staticmethod
    def matrices(config: ModelConfig) -> int:
        """Return the number of parameters in its matrices."""
        return 4 * config.d_model * config.num_heads * config.d_head

    @staticmethod
    def vectors(config: ModelConfig) -> int:
        """Return the number of its other parameters."""
        return 3 * config.num_heads * config.d_head + config.d_model if config.bias else 0

    @staticmethod
    def flops(config: ModelConfig, n_tokens: int) -> dict[str, int]:
        """Return the FLOPs of a forward pass over one sequence, by step."""
        heads, d = config.num_heads, config.d_head
        return {
            "linear attention projections": 2 * n_tokens * LinearAttention.matrices(config),
            "linear attention": scan_flops(n_tokens, config.linear.chunk, heads, d, d + 1),
        }
