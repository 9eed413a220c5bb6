"""The Transformer language model, from its layers to the whole, in reading order.

Every part is computed as its textbook formula says, by operations on tensors. Only `Module`, `ModuleList` and
`Parameter` come from torch.nn. A `Kernels` object replaces parts by faster ones with the same results
(`TransformerLM.use_kernels`). `...` in a shape stands for batch dimensions.
"""

from __future__ import annotations

import math
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, Self, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import Module, ModuleList, Parameter
from torch.utils import checkpoint as torch_checkpoint
from torch.utils.checkpoint import CheckpointPolicy

from bytemill.errors import ModelConfigError
from bytemill.lm.kernels.choice import SCRATCH, Kernels, choose_kernels
from bytemill.lm.kernels.common_order import common_order
from bytemill.lm.loss import mean_losses
from bytemill.lm.model_config import FEED_FORWARDS, NORMS, ModelConfig, swiglu_width
from bytemill.lm.residual import FORMS
from bytemill.lm.rotary_scaling import rotary_frequencies, scaled_frequencies
from bytemill.lm.tensors import narrowed, widened

if TYPE_CHECKING:
    from collections.abc import Callable

    from bytemill.lm.batches import Documents
    from bytemill.lm.model_config import Activation, KernelName
    from bytemill.lm.planning import CheckpointingName


__all__ = [
    "Dropout",
    "Embedding",
    "FeedForward",
    "KVCache",
    "LayerCache",
    "LayerNorm",
    "Linear",
    "ModelConfig",
    "MultiHeadSelfAttention",
    "RMSNorm",
    "RotaryEmbedding",
    "SwiGLU",
    "TransformerBlock",
    "TransformerLM",
    "swiglu_width",
]


def silu(x: Tensor) -> Tensor:
    """Compute x · σ(x) (Hendrycks & Gimpel 2016, there "SiL")."""
    return x * torch.sigmoid(x)


def gelu(x: Tensor, approximate: Literal["none", "tanh"] = "none") -> Tensor:
    """Compute x · Φ(x), with Φ the normal distribution function, or the tanh approximation of GPT-2.

    Computed in float32 or wider; the result has the type of `x`.
    """
    wide = widened(x)
    if approximate == "tanh":
        curve = torch.tanh(math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3))
    else:
        curve = torch.erf(wide * math.sqrt(0.5))
    return (0.5 * wide * (1 + curve)).to(x.dtype)


def relu(x: Tensor) -> Tensor:
    """Compute max(x, 0)."""
    return x.clamp_min(0)


def relu_squared(x: Tensor) -> Tensor:
    """Compute max(x, 0)² (So et al. 2021)."""
    return relu(x).square()


def soft_capped(x: Tensor, cap: float) -> Tensor:
    """Compute cap · tanh(x / cap), between −cap and cap, in float32 or wider; the result has the type of `x`."""
    return (cap * torch.tanh(widened(x) / cap)).to(x.dtype)


def softmax(x: Tensor, dim: int) -> Tensor:
    """Compute exp(x) / Σ exp(x) along `dim`, in float32 or wider; the result has the type of `x`.

    The maximum is subtracted first, so that no exponential overflows. Where all numbers are −∞, the result is 0
    (`torch.softmax` gives NaN).
    """
    if torch.compiler.is_compiling():  # torch 2.11 compiles _Softmax to code with other gradients
        wide = widened(x)
        weights = (wide - _maximum(wide.detach(), dim)).exp()
        total = weights.sum(dim, keepdim=True)
        return (weights / (total + (total == 0))).to(x.dtype)
    result: Tensor = _Softmax.apply(x, dim)  # pyright: ignore[reportUnknownMemberType, reportAssignmentType]
    return result


def _maximum(x: Tensor, dim: int) -> Tensor:
    # If all numbers are −∞: −∞ − (−∞) is NaN, but −∞ − (the lowest finite number) is −∞.
    return x.amax(dim, keepdim=True).clamp_min_(torch.finfo(x.dtype).min)


class _Softmax(torch.autograd.Function):
    """Softmax in one buffer; only the result is saved for the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int) -> Tensor:
        wide = widened(x)
        weights = (wide - _maximum(wide, dim)).exp_()
        # The maximum adds exp(0) = 1, so the sum is below 1 only if all numbers are −∞.
        weights.div_(weights.sum(dim, keepdim=True).clamp_min_(1))
        weights = weights.to(x.dtype)
        ctx.save_for_backward(weights)
        ctx.dim = dim
        return weights

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        (weights,) = ctx.saved_tensors
        # dxᵢ = wᵢ (gᵢ − Σⱼ gⱼ wⱼ)
        product = gradient * weights
        total = product.sum(ctx.dim, keepdim=True)
        return product.sub_(weights * total), None


def truncated_normal(
    *shape: int, std: float, device: torch.device | str | None = None, dtype: torch.dtype | None = None
) -> Tensor:
    """Sample from a normal distribution of mean 0, truncated at ±3 standard deviations, with torch's generator.

    Inverse transform sampling: uniform between Φ(−3) and Φ(3), where 2Φ(x) − 1 = erf(x/√2).

    Args:
        shape: Shape of the result.
        std: Standard deviation before truncation.
        device: Device of the result.
        dtype: Type of the result; by default torch's default type.
    """
    numbers = torch.empty(shape, device=device, dtype=torch.float32)
    # On the device "meta" there are no values, and these operations would import torch's compiler (2 to 8 seconds).
    if not numbers.is_meta:
        edge = math.erf(3 / math.sqrt(2))
        numbers.uniform_(-edge, edge).erfinv_().mul_(math.sqrt(2) * std)
        # Rounding may exceed the bounds slightly.
        numbers.clamp_(-3 * std, 3 * std)
    return numbers.to(dtype or torch.get_default_dtype())


def initialize_as_gpt2(model: Module, num_layers: int) -> None:
    """Replace the matrices and embeddings of a model by those of GPT-2, normal with σ = 0.02 (Radford et al. 2019).

    The matrices whose results are added to the residual stream have σ = 0.02 / √(2 · num_layers), since there are two
    of them in a block. Biases stay 0 and the weights of norms 1. The distribution is not truncated. GPT-2's position
    embeddings have σ = 0.01 in its first code; here σ = 0.02, as in the later reimplementations.

    Args:
        model: A `TransformerLM`.
        num_layers: Number of its blocks.
    """
    for name, parameter in model.named_parameters():
        if parameter.ndim < 2 or parameter.is_meta:
            continue
        is_output = name.endswith(("attn.output_proj.weight", ".w2.weight"))
        parameter.detach().normal_(0, 0.02 / math.sqrt(2 * num_layers) if is_output else 0.02)


class Linear(Module):
    """Compute y = W x (+ b): (..., d_in) -> (..., d_out).

    The initial weights are normal with σ² = 2 / (d_in + d_out), truncated at ±3σ; the initial bias is 0.

    Args:
        d_in: Width of the input.
        d_out: Width of the output; `weight` has shape (d_out, d_in).
        bias: Add a bias.
        device: Device of the weights.
        dtype: Type of the weights.
    """

    kernels: Kernels = SCRATCH

    def __init__(
        self,
        d_in: int,
        d_out: int,
        bias: bool = False,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        std = math.sqrt(2 / (d_in + d_out))
        self.weight = Parameter(truncated_normal(d_out, d_in, std=std, device=device, dtype=dtype))
        self.bias = Parameter(torch.zeros(d_out, device=device, dtype=dtype)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        if self.kernels.linear is not None:
            return self.kernels.linear(x, self.weight, self.bias)
        y = x @ self.weight.mT
        return y if self.bias is None else y + self.bias.to(y.dtype)


class Embedding(Module):
    """Look up a vector for each id: (...) of integers -> (..., d_model).

    Args:
        num_embeddings: Number of ids.
        d_model: Width of the vectors.
        std: Standard deviation σ of the initial weights, which are normal and truncated at ±3σ.
        device: Device of the weights.
        dtype: Type of the weights.
    """

    kernels: Kernels = SCRATCH

    def __init__(
        self,
        num_embeddings: int,
        d_model: int,
        std: float = 1.0,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.weight = Parameter(
            truncated_normal(num_embeddings, d_model, std=std, device=device, dtype=dtype)
        )

    def forward(self, ids: Tensor) -> Tensor:
        if self.kernels.embedding is not None:
            return self.kernels.embedding(self.weight, ids)
        # Equal to weight[ids], whose gradients are summed by several threads in any order.
        return self.weight.index_select(0, ids.reshape(-1)).view(*ids.shape, self.weight.shape[1])


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Compute x / √(mean(x²) + eps) · weight over the last dimension, in float32; the result has the type of `x`."""
    wide = widened(x)
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (wide * scale * weight).to(x.dtype)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor | None, eps: float) -> Tensor:
    """Compute (x − mean) / √(variance + eps) · weight + bias over the last dimension, in float32."""
    wide = widened(x)
    centred = wide - wide.mean(-1, keepdim=True)
    scale = torch.rsqrt(centred.square().mean(-1, keepdim=True) + eps)
    y = centred * scale * weight
    return (y if bias is None else y + bias).to(x.dtype)


def gated(gate: Tensor, x: Tensor) -> Tensor:
    """Compute silu(gate) ⊙ x."""
    return silu(gate) * x


class RMSNorm(Module):
    """RMSNorm (Zhang & Sennrich 2019): x / √(mean(x²) + eps) · weight over the last dimension, in float32."""

    kernels: Kernels = SCRATCH

    def __init__(
        self,
        d_model: int,
        eps: float = 1e-5,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.eps = eps
        self.weight = Parameter(torch.ones(d_model, device=device, dtype=dtype))

    @classmethod
    def of(
        cls,
        config: ModelConfig,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> Self:
        """Build the norm of a model."""
        return cls(config.d_model, config.norm_eps, device=device, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        if self.kernels.norm is not None:
            return self.kernels.norm(x, self.weight, None, self.eps, centred=False)
        return rms_norm(x, self.weight, self.eps)


class LayerNorm(Module):
    """LayerNorm (Ba et al. 2016): (x − mean) / √(variance + eps) · weight + bias, in float32."""

    kernels: Kernels = SCRATCH

    def __init__(
        self,
        d_model: int,
        eps: float = 1e-5,
        bias: bool = True,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.eps = eps
        self.weight = Parameter(torch.ones(d_model, device=device, dtype=dtype))
        self.bias = Parameter(torch.zeros(d_model, device=device, dtype=dtype)) if bias else None

    @classmethod
    def of(
        cls,
        config: ModelConfig,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> Self:
        """Build the norm of a model."""
        return cls(config.d_model, config.norm_eps, config.norm_bias, device=device, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        if self.kernels.norm is not None:
            return self.kernels.norm(x, self.weight, self.bias, self.eps, centred=True)
        return layer_norm(x, self.weight, self.bias, self.eps)


class Dropout(Module):
    """Dropout: in training mode, zero each number with probability `p` and divide the others by 1 − p."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        kept = torch.rand(x.shape, device=x.device) >= self.p
        return x * kept / (1 - self.p)


class SwiGLU(Module):
    """Feed-forward network W₂ (silu(W₁ x) ⊙ W₃ x), of width d_model (Shazeer 2020).

    `d_ff` is `swiglu_width(d_model)` by default.
    """

    kernels: Kernels = SCRATCH

    def __init__(
        self,
        d_model: int,
        d_ff: int | None = None,
        bias: bool = False,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        d_ff = swiglu_width(d_model) if d_ff is None else d_ff
        self.w1 = Linear(d_model, d_ff, bias, device=device, dtype=dtype)
        self.w2 = Linear(d_ff, d_model, bias, device=device, dtype=dtype)
        self.w3 = Linear(d_model, d_ff, bias, device=device, dtype=dtype)

    @classmethod
    def of(
        cls,
        config: ModelConfig,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> Self:
        """Build the network of a model."""
        return cls(config.d_model, config.d_ff, config.bias, device=device, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        x = narrowed(x)
        return self.w2((self.kernels.gated or gated)(self.w1(x), self.w3(x)))


def _tanh_gelu(x: Tensor) -> Tensor:
    return gelu(x, "tanh")


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": _tanh_gelu,
    "gelu_exact": gelu,
    "relu": relu,
    "relu2": relu_squared,
}
"""Activation functions of `FeedForward` by the name in `ModelConfig.feed_forward`; "gelu" is GPT-2's, with tanh."""


class FeedForward(Module):
    """Feed-forward network W₂ f(W₁ x), of width d_model, with f from `ACTIVATIONS`."""

    kernels: Kernels = SCRATCH

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        activation: Activation = "gelu",
        *,
        bias: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.activation = activation
        self._function = ACTIVATIONS[activation]
        self.w1 = Linear(d_model, d_ff, bias, device=device, dtype=dtype)
        self.w2 = Linear(d_ff, d_model, bias, device=device, dtype=dtype)

    @classmethod
    def of(
        cls,
        config: ModelConfig,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> Self:
        """Build the network of a model."""
        return cls(
            config.d_model,
            config.d_ff,
            cast("Any", config.feed_forward),
            bias=config.bias,
            device=device,
            dtype=dtype,
        )

    def forward(self, x: Tensor) -> Tensor:
        function = self.kernels.activations.get(self.activation, self._function)
        return self.w2(function(self.w1(narrowed(x))))


class RotaryEmbedding(Module):
    """Rotate each pair (x₂ᵢ, x₂ᵢ₊₁) by the angle position · θ^(−2i/d_k) (Su et al. 2021).

    The product of a query and a key then depends on their distance only. The lookup tables are not part of the state
    dict, and stay float32 when the model is cast.

    Args:
        theta: Base θ of the wavelengths.
        d_k: Width of the vectors, an even number.
        max_seq_len: Number of positions.
        device: Device of the tables.
        frequencies: Replaces θ^(−2i/d_k), the radians per position of each pair; (d_k / 2,) on the CPU.
            A pair of frequency 0 is not rotated.
        magnitude: Factor of the rotated pairs.
    """

    kernels: Kernels = SCRATCH
    rotations: Tensor  # (max_seq_len, d_k / 2, 2): cos and sin

    def __init__(
        self,
        theta: float,
        d_k: int,
        max_seq_len: int,
        device: torch.device | str | None = None,
        *,
        frequencies: Tensor | None = None,
        magnitude: float = 1.0,
    ) -> None:
        super().__init__()
        self.d_k, self.max_seq_len, self.magnitude = d_k, max_seq_len, magnitude
        self.frequencies = rotary_frequencies(theta, d_k) if frequencies is None else frequencies
        self._make_tables(device)

    def forward(self, x: Tensor, token_positions: Tensor | None = None) -> Tensor:
        """Rotate queries or keys.

        Args:
            x: (..., n_tokens, d_k).
            token_positions: (n_tokens,), or broadcastable to (..., n_tokens); by default 0, 1, 2, …
        """
        rotations = (
            self.rotations[: x.shape[-2]] if token_positions is None else self.rotations[token_positions]
        )
        if self.kernels.rotary is not None and x.dtype != torch.float64:
            return self.kernels.rotary(x, rotations)
        cos, sin = rotations.unbind(-1)
        even, odd = x[..., 0::2], x[..., 1::2]
        rotated = torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1)
        return rotated.flatten(-2).to(x.dtype)

    def _make_tables(self, device: torch.device | str | None) -> None:
        angles = _angles(self.frequencies, self.max_seq_len)
        rotations = torch.stack((angles.cos(), angles.sin()), dim=-1)
        rotations = (rotations * (1 + (self.magnitude - 1) * (self.frequencies != 0))[:, None]).float()
        self.register_buffer("rotations", rotations.to(device), persistent=False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> RotaryEmbedding:
        super()._apply(fn, recurse)  # pyright: ignore[reportUnknownMemberType]
        # bfloat16 cannot tell positions above 256 apart, so the tables are computed again after a cast.
        self._make_tables(self.rotations.device)
        return self


def sinusoids(n_positions: int, d_model: int, theta: float = 10_000.0) -> Tensor:
    """Return (n_positions, d_model): alternating sin and cos of position · θ^(−2i/d_model) (Vaswani et al. 2017)."""
    angles = _angles(rotary_frequencies(theta, d_model), n_positions)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)


def _angles(frequencies: Tensor, n_positions: int) -> Tensor:
    """Return (n_positions, n_frequencies) in float32: models of other programs are trained with its roundings."""
    return torch.outer(torch.arange(n_positions, dtype=torch.float32, device="cpu"), frequencies.float())


def scaled_dot_product_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, dropout: Module | None = None
) -> Tensor:
    """Compute softmax(q kᵀ / √d_k) v (Vaswani et al. 2017).

    Args:
        q: Queries (..., n_queries, d_k).
        k: Keys (..., n_keys, d_k).
        v: Values (..., n_keys, d_v).
        mask: Boolean, broadcastable to (..., n_queries, n_keys); True where a query may attend to a key.
        dropout: Applied to the attention weights.

    Returns:
        (..., n_queries, d_v); zeros for a query that may attend to no key.
    """
    scores = (q / math.sqrt(q.shape[-1])) @ k.mT
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    weights = softmax(scores, dim=-1)
    if dropout is not None:
        weights = dropout(weights)
    return weights @ v


def causal_mask(
    n_queries: int,
    n_keys: int,
    window: int | None = None,
    *,
    n_padding: Tensor | None = None,
    document_starts: Tensor | None = None,
    device: torch.device | str | None = None,
) -> Tensor:
    """Return the causal mask: True where a query may attend to a key, which is itself or an earlier token.

    Args:
        n_queries: Number of queries; they are the last of the keys.
        n_keys: Number of keys.
        window: Attend only to the token itself and the window − 1 tokens before it.
        n_padding: (batch,), number of keys to hide at the start of each row.
        document_starts: (batch, n_queries), first key of the document of each query, which attends to none before it.
        device: Device of the mask.

    Returns:
        (n_queries, n_keys), or with `n_padding` or `document_starts` (batch, 1, n_queries, n_keys).

    >>> causal_mask(2, 3, window=2).int().tolist()
    [[1, 1, 0], [0, 1, 1]]
    """
    keys = torch.arange(n_keys, device=device)
    queries = torch.arange(n_keys - n_queries, n_keys, device=device)[:, None]
    mask = keys <= queries
    if window is not None:
        mask = mask & (keys > queries - window)
    if n_padding is not None:
        mask = mask & (keys >= n_padding.to(keys.device)[:, None, None, None])
    if document_starts is not None:
        mask = mask & (keys >= document_starts[:, None, :, None])
    return mask


class MultiHeadSelfAttention(Module):
    """Causal multi-head self-attention (Vaswani et al. 2017): (..., n_tokens, d_model) -> the same shape.

    Args:
        d_model: Width of the input.
        num_heads: Number of query heads.
        rope: Rotary embedding of queries and keys.
        num_kv_heads: Number of key and value heads, shared by groups of query heads (Ainslie et al. 2023).
        sliding_window: Number of most recent tokens that a token attends to, itself included.
        dropout: Dropout rate of the attention weights.
        bias: Add a bias to the projections.
        head_dim: Width of a head; by default d_model / num_heads.
        qkv_bias: Add a bias to queries, keys and values, also without `bias`.
        qk_norm_eps: Normalize each head of queries and keys with RMSNorm, with this eps (Dehghani et al. 2023).
        device: Device of the weights.
        dtype: Type of the weights.

    Raises:
        ModelConfigError: The numbers do not divide each other.
    """

    kernels: Kernels = SCRATCH
    takes_kernels = True
    """Whether the kernels of attention compute its result."""

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        rope: RotaryEmbedding | None = None,
        *,
        num_kv_heads: int | None = None,
        sliding_window: int | None = None,
        dropout: float = 0.0,
        bias: bool = False,
        head_dim: int | None = None,
        qkv_bias: bool = False,
        qk_norm_eps: float | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.n_heads = num_heads
        self.n_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        if (head_dim is None and d_model % num_heads) or num_heads % self.n_kv_heads:
            raise ModelConfigError(
                f"d_model {d_model}, num_heads {num_heads} and num_kv_heads {self.n_kv_heads} do not divide each other",
                hint="num_heads must divide d_model, and num_kv_heads must divide num_heads",
            )
        self.d_head = d_model // num_heads if head_dim is None else head_dim
        self.window = sliding_window
        self.rope = rope
        d_q, d_kv = self.n_heads * self.d_head, self.n_kv_heads * self.d_head
        self.q_proj = Linear(d_model, d_q, bias or qkv_bias, device=device, dtype=dtype)
        self.k_proj = Linear(d_model, d_kv, bias or qkv_bias, device=device, dtype=dtype)
        self.v_proj = Linear(d_model, d_kv, bias or qkv_bias, device=device, dtype=dtype)
        self.output_proj = Linear(d_q, d_model, bias, device=device, dtype=dtype)
        self.has_qk_norm = qk_norm_eps is not None
        if qk_norm_eps is not None:
            self.q_norm = RMSNorm(self.d_head, qk_norm_eps, device=device, dtype=dtype)
            self.k_norm = RMSNorm(self.d_head, qk_norm_eps, device=device, dtype=dtype)
        self.dropout = Dropout(dropout)

    @classmethod
    def of(
        cls,
        config: ModelConfig,
        rope: RotaryEmbedding | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> Self:
        """Build the attention of a model."""
        if config.attention.has_options:
            return cast(
                "Self",
                import_module("bytemill.lm.attention_options").OptionalAttention.of(
                    config, rope, device, dtype
                ),
            )
        return cls.from_config(config, rope, device, dtype)

    @classmethod
    def from_config(
        cls,
        config: ModelConfig,
        rope: RotaryEmbedding | None,
        device: torch.device | str | None,
        dtype: torch.dtype | None,
    ) -> Self:
        """Build an attention of this class."""
        return cls(
            config.d_model,
            config.num_heads,
            rope,
            num_kv_heads=config.attention.num_kv_heads,
            sliding_window=config.attention.sliding_window,
            dropout=config.dropout,
            bias=config.bias,
            head_dim=config.attention.head_dim,
            qkv_bias=config.attention.qkv_bias,
            qk_norm_eps=config.norm_eps if config.attention.qk_norm else None,
            device=device,
            dtype=dtype,
        )

    @staticmethod
    def new_cache(
        config: ModelConfig, batch_size: int, device: torch.device | str | None, dtype: torch.dtype
    ) -> LayerCache:
        """Return an empty cache of a layer."""
        n_kept = window_capacity(config)
        kind, capacity = (LayerCache, config.context_length) if n_kept is None else (WindowCache, n_kept)
        return kind((batch_size, config.n_kv_heads, capacity, config.d_head), device, dtype)

    def forward(
        self,
        x: Tensor,
        token_positions: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        cache: LayerCache | None = None,
        document_starts: Any = None,
        added_values: Tensor | None = None,
    ) -> Tensor:
        """Attend.

        Args:
            x: (..., n_tokens, d_model).
            token_positions: (n_tokens,) or (..., n_tokens), for the rotary embedding; by default 0, 1, 2, …
            mask: Replaces the causal mask.
            cache: Keys and values of earlier tokens; those of `x` are appended.
            document_starts: (..., n_tokens), position of the first token of each token's document; it attends to none
                before that. Or the result of `Kernels.document_mask` for them.
            added_values: (..., n_tokens, n_kv_heads · d_head), added to the values.
        """
        *batch, n_tokens, d_model = x.shape
        x = narrowed(x.reshape(math.prod(batch), n_tokens, d_model))
        layers = (self.q_proj, self.k_proj, self.v_proj)
        joined = self.kernels.joined if self.n_heads == self.n_kv_heads else None
        q, k, v = [layer(x) for layer in layers] if joined is None else joined(x, layers)
        if added_values is not None:
            v = v + added_values.reshape(v.shape).to(v.dtype)
        q, k, v = (
            self._heads(q, self.n_heads),
            self._heads(k, self.n_kv_heads),
            self._heads(v, self.n_kv_heads),
        )
        if self.has_qk_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))  # (batch, n_heads, n_tokens, d_head)
        if self.rope is not None:
            if token_positions is not None and token_positions.ndim > 1:
                # (..., n_tokens) -> (batch, 1, n_tokens): equal for all heads.
                token_positions = token_positions.expand(*batch, n_tokens).reshape(-1, 1, n_tokens)
            q, k = self.rope(q, token_positions), self.rope(k, token_positions)
        if cache is not None:
            k, v = cache.append(k, v)
        if isinstance(document_starts, Tensor):
            document_starts = document_starts.expand(*batch, n_tokens).reshape(-1, n_tokens)
        mixed = self._attend(q, k, v, mask, document_starts)
        return self.output_proj(mixed.transpose(1, 2).reshape(*batch, n_tokens, -1))

    def _heads(self, x: Tensor, n_heads: int) -> Tensor:
        """(batch, n_tokens, n_heads · d_head) -> (batch, n_tokens, n_heads, d_head)."""
        return x.view(*x.shape[:-1], n_heads, self.d_head)

    def _attend(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, document_starts: Any = None
    ) -> Tensor:
        """Return (batch, n_heads, n_queries, d_head)."""
        n_queries, n_keys = q.shape[-2], k.shape[-2]
        is_causal = mask is None and n_queries == n_keys
        dropout = self.dropout.p if self.training else 0.0
        if is_causal and not dropout and self.kernels.attention is not None:
            return self.kernels.attention(q, k, v, self.window, document_starts)
        attend = self.kernels.masked_attention
        if attend is not None and is_causal and self.window is None and document_starts is None:
            return attend(q, k, v, dropout=dropout, causal=True)
        if mask is None and n_queries > 1:
            mask = causal_mask(
                n_queries, n_keys, self.window, document_starts=document_starts, device=q.device
            )
        if attend is not None:
            return attend(q, k, v, mask, dropout)
        return self._textbook(q, k, v, mask)

    def _textbook(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """Compute `scaled_dot_product_attention`; the queries of a group of heads become rows of one matrix."""
        n_groups = self.n_heads // self.n_kv_heads
        rows = q.reshape(len(q), self.n_kv_heads, -1, self.d_head)
        if mask is not None and mask.shape[-2] > 1:
            mask = mask.repeat(*[1] * (mask.ndim - 2), n_groups, 1)
        return scaled_dot_product_attention(rows, k, v, mask, self.dropout).reshape(q.shape)


def window_capacity(config: ModelConfig) -> int | None:
    """Return how many positions the sliding window of a block keeps in the cache; None if it keeps all."""
    window = config.attention.sliding_window
    return None if window is None or window > config.context_length else window - 1


class KVCache:
    """Keys and values of all layers, or the states of recurrent ones, for a batch of sequences that grow together.

    Rows of different length are padded on the left. Positions count from the first real token of a row. With a sliding
    window, only the positions that later tokens attend to are kept.

    Args:
        config: Shape of the model.
        batch_size: Number of sequences.
        device: Device of the cache.
        dtype: Type of the cache.
        n_padding: (batch_size,), number of padding positions at the start of each row; by default 0.
    """

    def __init__(
        self,
        config: ModelConfig,
        batch_size: int,
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.float32,
        n_padding: Tensor | None = None,
    ) -> None:
        self.batch_size = batch_size
        self.layers: list[LayerCache] = [
            layer.part.load().new_cache(layer.config, batch_size, device, dtype) for layer in config.layers
        ]
        self.n_padding: Tensor | None = None
        self.n_positions = 0
        """Number of cached positions, including padding."""
        self.reset(n_padding)

    def reset(self, n_padding: Tensor | None = None) -> None:
        """Clear the cache for new sequences.

        Args:
            n_padding: See `KVCache`.

        Raises:
            ValueError: `n_padding` has another shape than (batch_size,).
        """
        if n_padding is not None and n_padding.shape != (self.batch_size,):
            raise ValueError(
                f"n_padding has shape {tuple(n_padding.shape)}, but the batch size is {self.batch_size}"
            )
        self.n_padding = n_padding
        self.advance_to(0)

    def keep_rows(self, rows: list[int]) -> None:
        """Keep only these sequences, in this order."""
        self.batch_size = len(rows)
        if self.n_padding is not None:
            self.n_padding = self.n_padding[rows]
        for layer in self.layers:
            layer.keep_rows(rows)

    def align(self, n_positions: int) -> None:
        """Set the number of positions: what all sequences begin with, is cut off or becomes more padding.

        Args:
            n_positions: No fewer than a sequence has without its padding.
        """
        self.n_padding = (self._padding() + (n_positions - self.n_positions)).clamp_min(0)
        for layer in self.layers:
            layer.align(n_positions)
        self.n_positions = n_positions

    def put(self, rows: list[int], source: KVCache) -> None:
        """Replace sequences by all those of another cache, in this order; their last tokens become the last ones here.

        Args:
            rows: The sequences to replace.
            source: A cache of the same model with at most as many positions.
        """
        padding = self._padding().clone()
        padding[rows] = source._padding() + (self.n_positions - source.n_positions)
        self.n_padding = padding if bool(padding.any()) else None
        for layer, own in zip(self.layers, source.layers, strict=True):
            layer.put(rows, own)

    def _padding(self) -> Tensor:
        return torch.zeros(self.batch_size, dtype=torch.int64) if self.n_padding is None else self.n_padding

    def mask(self, layer: LayerCache, n_tokens: int, window: int | None, device: torch.device) -> Tensor:
        """Return the causal mask of new tokens in a layer, (n_tokens, n_keys) or (batch, 1, n_tokens, n_keys)."""
        n_padding = None if self.n_padding is None else (self.n_padding - layer.n_dropped).clamp_min(0)
        n_keys = self.n_positions - layer.n_dropped + n_tokens
        return causal_mask(n_tokens, n_keys, window, n_padding=n_padding, device=device)

    def advance_to(self, n_positions: int) -> None:
        """Set the number of cached positions; the next ones are written after them."""
        self.n_positions = n_positions
        for layer in self.layers:
            layer.n_positions = n_positions


class LayerCache:
    """Keys and values of one layer, each of shape (batch_size, n_kv_heads, capacity, d_head)."""

    def __init__(
        self, shape: tuple[int, int, int, int], device: torch.device | str | None, dtype: torch.dtype
    ) -> None:
        self.keys = torch.empty(shape, device=device, dtype=dtype)  # read up to `n_positions` only
        self.values = torch.empty(shape, device=device, dtype=dtype)
        self.n_positions = 0

    @property
    def n_dropped(self) -> int:
        """Number of positions that are no longer kept."""
        return max(0, self.n_positions - self.keys.shape[2])

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Append keys and values of new positions, and return those of all kept ones, in the type of the new ones."""
        end = self.n_positions + keys.shape[-2]
        self.keys[:, :, self.n_positions : end] = keys
        self.values[:, :, self.n_positions : end] = values
        return self.keys[:, :, :end].to(keys.dtype), self.values[:, :, :end].to(values.dtype)

    def keep_rows(self, rows: list[int]) -> None:
        """Keep only these sequences, in this order."""
        self.keys, self.values = self.keys[rows], self.values[rows]

    @property
    def by_position(self) -> list[Tensor]:
        """The tensors whose last but one dimension has a place for each kept position."""
        return [self.keys, self.values]

    def align(self, n_positions: int) -> None:
        """Set the number of positions, of which the last ones stay; see `KVCache.align`."""
        move_positions(self.by_position, self.n_positions, n_positions)
        self.n_positions = n_positions

    def put(self, rows: list[int], source: LayerCache) -> None:
        """Replace sequences by all those of another cache; see `KVCache.put`."""
        for cached, new in zip(self.by_position, source.by_position, strict=True):
            here, there = (min(n, cached.shape[-2]) for n in (self.n_positions, source.n_positions))
            cached[rows, ..., : here - there, :] = 0
            cached[rows, ..., here - there : here, :] = new[..., :there, :].to(cached.dtype)


def move_positions(tensors: list[Tensor], n_before: int, n_after: int) -> None:
    """Move the last positions so that they end at another number; zeros, which are finite, come before them."""
    for cached in tensors:
        before, after = (min(n, cached.shape[-2]) for n in (n_before, n_after))
        moved = cached[..., max(0, before - after) : before, :].clone()
        cached[..., : after - moved.shape[-2], :] = 0
        cached[..., after - moved.shape[-2] : after, :] = moved


class WindowCache(LayerCache):
    """Keys and values of the last positions of one layer, which are all that a sliding window needs."""

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Append keys and values of new positions, and return them with the kept ones before them."""
        return self._append(self.keys, keys), self._append(self.values, values)

    def _append(self, cached: Tensor, new: Tensor) -> Tensor:
        capacity = cached.shape[2]
        joined = torch.cat((cached[:, :, : min(self.n_positions, capacity)].to(new.dtype), new), dim=2)
        n_kept = min(joined.shape[2], capacity)
        cached[:, :, :n_kept] = joined[:, :, joined.shape[2] - n_kept :]
        return joined


class TransformerBlock(Module):
    """A mixer and a feed-forward network, each added to the stream: (..., n_tokens, d_model) -> the same shape.

    A norm precedes each of the two (Xiong et al. 2020), or follows each addition (Vaswani et al. 2017). The other forms
    are in `residual.FORMS`.

    Args:
        config: Settings of the block: those of the model, or `config` of one of its layers.
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
        norm, place = NORMS[config.norm].load(), {"device": device, "dtype": dtype}
        self.ln1 = norm.of(config, **place)
        self.attn = config.layers[0].part.load().of(config.layers[0].config, rope, **place)
        self.ln2 = norm.of(config, **place)
        self.ffn = FEED_FORWARDS[config.feed_forward].load().of(config, **place)
        if config.norm_position == "sandwich":
            self.ln1_out, self.ln2_out = norm.of(config, **place), norm.of(config, **place)
        self.dropout = Dropout(config.dropout)
        self.form = FORMS.get("parallel" if config.residual == "parallel" else config.norm_position)
        self.takes_ids: bool = getattr(self.attn, "takes_ids", False)

    def forward(
        self,
        x: Tensor,
        token_positions: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        cache: LayerCache | None = None,
        document_starts: Any = None,
        ids: Tensor | None = None,
    ) -> Tensor:
        """Compute the block; the arguments are those of `MultiHeadSelfAttention.forward`, and the ids of the tokens."""
        options = {"mask": mask, "cache": cache, "document_starts": document_starts}
        if self.takes_ids:
            options["ids"] = ids
        if self.form is not None:
            return self.form(self, x, lambda y: self.attn(y, token_positions, **options))
        y = self.ln1(x) if self.pre_norm else x
        y = self.attn(y, token_positions, **options)
        if self.pre_norm:
            x = x + self.dropout(y)
            return x + self.dropout(self.ffn(self.ln2(x)))
        x = self.ln1(x + self.dropout(y))
        return self.ln2(x + self.dropout(self.ffn(x)))


def _rotary_embedding(config: ModelConfig, device: torch.device | str | None) -> RotaryEmbedding | None:
    if config.position != "rotary":
        return None
    frequencies, magnitude = scaled_frequencies(config)
    unrotated = frequencies.new_zeros((config.d_head - config.d_rotary) // 2)
    frequencies = torch.cat((frequencies, unrotated))
    return RotaryEmbedding(
        config.rope.theta,
        config.d_head,
        config.context_length,
        device,
        frequencies=frequencies,
        magnitude=magnitude,
    )


_torch = cast("Any", torch_checkpoint)
_SAVED = {
    "aten::mm",
    "aten::addmm",
    "aten::_scaled_dot_product_flash_attention",
    "aten::_scaled_dot_product_flash_attention_for_cpu",
    "aten::_scaled_dot_product_efficient_attention",
    "aten::_scaled_dot_product_cudnn_attention",
    "bytemill::product",
    "mkldnn::_linear_pointwise",
}
"""The linear layers and torch's attention. Blockwise attention consists of many small products that are overwritten, so
it is computed again."""


class Checkpointed(Module):
    """A block that saves less of itself for the backward pass, which computes the rest again (Chen et al. 2016).

    Results and gradients are those of the block. It saves its input. Just before its backward pass, its forward pass
    runs once more: completely ("full"), or without the matrix products and the attention, whose results are saved too
    ("selective"; Korthikanti et al. 2022).

    Args:
        block: The block. Its parameters are not parameters of this module.
        name: What to save.
        has_dropout: Restore the state of the random generators when the block is computed again.
    """

    def __init__(self, block: Module, name: CheckpointingName, *, has_dropout: bool) -> None:
        super().__init__()
        self._block = (block,)  # a tuple hides it from `parameters`
        self._options: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": has_dropout}
        if name == "selective":
            self._options["context_fn"] = partial(_torch.create_selective_checkpoint_contexts, _policy)

    def forward(self, x: Tensor, token_positions: Tensor | None = None, **options: Any) -> Tensor:
        return _torch.checkpoint(self._block[0], x, token_positions, **options, **self._options)


def _policy(_context: Any, operation: Any, *_: Any, **__: Any) -> CheckpointPolicy:
    is_saved = operation.name().partition(".")[0] in _SAVED
    return CheckpointPolicy.MUST_SAVE if is_saved else CheckpointPolicy.PREFER_RECOMPUTE


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
        self.narrow_residual = False
        """Keep the residual stream in the type of matrix products; by default in that of the weights."""
        self._training_blocks: list[Callable[..., Tensor]] = []  # in place of the layers
        self._training_ends: tuple[Callable[..., Tensor], ...] = ()  # in place of `_embed` and the last norm
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
        configs = [layer.config for layer in config.layers]
        ropes = {(own.position, own.rope): _rotary_embedding(own, device) for own in configs}
        self.layers = ModuleList(
            TransformerBlock(own, ropes[own.position, own.rope], device, dtype) for own in configs
        )
        if config.multi_token_weight is not None:
            own = configs[-1]
            self.multi_token = import_module("bytemill.lm.multi_token").MultiTokenHead(
                config, ropes[own.position, own.rope], device, dtype
            )
        if config.has_final_norm:
            self.ln_final = NORMS[config.norm].load().of(config, device=device, dtype=dtype)
        self.lm_head = Linear(config.d_model, config.vocab_size, False, device=device, dtype=dtype)
        if config.tied_embeddings:
            self.lm_head.weight = self.token_embeddings.weight
        if config.initialization == "gpt2":
            initialize_as_gpt2(self, config.num_layers)
        self._parts_with_losses: list[Any] = [part for part in self.modules() if hasattr(part, "extra_loss")]

    def forward(self, ids: Tensor, cache: KVCache | None = None, *, last_only: bool = False) -> Tensor:
        """Compute the logits of the next id at each position.

        In evaluation mode and without a cache, kernels "auto" on the CPU compute in the order of transformers, so that
        logits in float32 are those of transformers but for what the two programs compute differently. `hidden` and
        `logits` take half the time there.

        Args:
            ids: (..., n_tokens); with a cache (batch, n_tokens).
            cache: Keys and values of the preceding tokens; those of `ids` are appended.
            last_only: Compute only the logits after the last id, (..., 1, vocab_size).

        Raises:
            ValueError: There are more positions than the context length.
        """
        with common_order(not self.training and cache is None):
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
        documents: Documents | None = None,
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
        hidden, losses = self.hidden(ids, documents=documents), self.kernels.losses
        x, wanted = (hidden[targets >= 0], targets[targets >= 0]) if is_padded else (hidden, targets)
        if losses is not None:
            total, cross_entropy = losses(
                x, self.lm_head.weight, wanted, z_loss, soft_cap=self.config.logit_soft_cap
            )
        else:
            total, cross_entropy = mean_losses(self.logits(x), wanted, z_loss)
        if self.training and self.config.multi_token_weight is not None:
            second = import_module("bytemill.lm.multi_token").multi_token_loss(
                self, hidden, ids, targets, documents
            )
            total = total + self.config.multi_token_weight * second
        for part in self._parts_with_losses if self.training else ():
            total = total + part.extra_loss()
        return total, cross_entropy

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
            name: What to save; see `Checkpointed`.
        """
        has_dropout = self.config.dropout > 0
        self._training_blocks = (
            []
            if name == "none"
            else [Checkpointed(layer, name, has_dropout=has_dropout) for layer in self.layers]
        )

    def compile_blocks(self, **options: Any) -> None:
        """Compile the blocks for training, with `torch.compile`: once, since all run the same code.

        On other devices than the CPU, the embeddings and the last norm are compiled too.

        Call this after `checkpoint_activations`.

        Args:
            options: Arguments of `torch.compile`.
        """
        if self.lm_head.weight.device.type == "cpu":
            # What is cheap to compute again is not stored for the backward pass, such as gates, norms and scores. With
            # activation checkpointing the choice is made, and torch before 2.15 fails to combine the two.
            config: Any = import_module("torch._functorch.config")
            config.activation_memory_budget = 1.0 if self._training_blocks else 0.6
        self.prepare_to_compile()
        compiled: Any = partial(torch.compile, dynamic=False, **options)
        self._training_blocks = [compiled(block) for block in self._training_blocks or self.layers]
        if self.lm_head.weight.device.type != "cpu":
            # On the CPU, compiled code would add up the gradients of an embedding in any order.
            self._training_ends = (compiled(self._embed), compiled(self._normalized))

    def prepare_to_compile(self) -> None:
        """Have parts whose shapes change from batch to batch left out of compiled code."""
        for part in self.modules():
            if hasattr(part, "leave_out_of_compiled_code"):
                cast("Any", part).leave_out_of_compiled_code()

    def hidden(self, ids: Tensor, cache: KVCache | None = None, documents: Documents | None = None) -> Tensor:
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
            starts: Any = None
            if documents is not None:
                starts = documents.starts(ids)
                positions = positions - starts if documents.reset_positions else positions
            masks, more = self._document_masks(starts), self._ids_of_blocks(ids)
            # Other shapes than those of training, such as a growing cache, would compile the parts again.
            ends = (self._training_ends if self.training else None) or (self._embed, self._normalized)
            x = ends[0](ids, positions)
            blocks = (self._training_blocks if self.training else None) or self.layers
            for block, mask in zip(blocks, masks, strict=True):
                x = (
                    block(x, **more)
                    if documents is None
                    else block(x, positions, document_starts=mask, **more)
                )
            return ends[1](x)
        return self._normalized(x)

    def _document_masks(self, starts: Any) -> list[Any]:
        """Return what each block takes as `document_starts`: of attention, the mask of the kernels for its window."""
        make = None if self.training and self.config.dropout else self.kernels.document_mask
        mixers: list[Any] = [layer.attn for layer in self.layers]
        if make is None or starts is None:
            return [starts] * len(mixers)
        rows = starts.reshape(-1, starts.shape[-1])
        takes = [isinstance(mixer, MultiHeadSelfAttention) and mixer.takes_kernels for mixer in mixers]
        windows = {mixer.window for mixer, own in zip(mixers, takes, strict=True) if own}
        made = {window: make(rows, window) for window in windows}
        return [made[mixer.window] if own else starts for mixer, own in zip(mixers, takes, strict=True)]

    def _ids_of_blocks(self, ids: Tensor) -> dict[str, Tensor]:
        """Return the argument of blocks for the ids, if one of them reads it."""
        return {"ids": ids} if any(cast("Any", layer).takes_ids for layer in self.layers) else {}

    def _normalized(self, x: Tensor) -> Tensor:
        return self.ln_final(x) if self.config.has_final_norm else x

    def _hidden_with_cache(self, ids: Tensor, positions: Tensor, cache: KVCache) -> Tensor:
        """Return the result of the last block, and append keys and values to the cache."""
        n_before, n_tokens = cache.n_positions, ids.shape[-1]
        if cache.n_padding is not None:
            # (batch, n_tokens), counted from the first real token of each row
            positions = (positions - cache.n_padding.to(ids.device)[:, None]).clamp_min(0)
        # One query attends to all cached keys, and needs a mask only for padding.
        is_masked = (n_before and n_tokens > 1) or cache.n_padding is not None
        masks: dict[int | None, Tensor] = {}
        x, more = self._embed(ids, positions), self._ids_of_blocks(ids)
        for layer, layer_cache in zip(self.layers, cache.layers, strict=True):
            window = getattr(layer.attn, "window", None)
            if is_masked and window not in masks:
                masks[window] = cache.mask(layer_cache, n_tokens, window, ids.device)
            x = layer(x, positions, mask=masks.get(window), cache=layer_cache, **more)
        cache.advance_to(n_before + n_tokens)
        return x

    def _embed(self, ids: Tensor, positions: Tensor) -> Tensor:
        """Return token and position embeddings (..., n_tokens, d_model)."""
        x = self.token_embeddings(ids)
        if self.config.embedding_scale is not None:
            x = x * self.config.embedding_scale
        if self.config.position == "learned":
            x = x + self.position_embeddings(positions)
        elif self.config.position == "sinusoidal":
            x = x + cast("Tensor", self.sinusoids)[positions].to(x.dtype)
        x = self.dropout(x)
        return narrowed(x) if self.narrow_residual else x

    def block_matrices(self) -> list[Parameter]:
        """Return the matrices of the blocks, without embeddings, whose rows are looked up and not multiplied."""
        modules = (each for each in self.layers.modules() if not isinstance(each, Embedding))
        found = (each for module in modules for each in module.parameters(recurse=False))
        return [each for each in found if each.ndim == 2]

    def n_parameters(self, *, non_embedding: bool = False) -> int:
        """Return the number of parameters, quantized ones included; a shared tensor counts once.

        Args:
            non_embedding: Exclude token and position embeddings, but not an untied output layer.
        """
        n_parameters = sum(parameter.numel() for parameter in self.parameters())
        n_parameters += sum(getattr(module, "n_weights", 0) for module in self.modules())
        if non_embedding:
            n_parameters -= self.token_embeddings.weight.numel()
            if self.config.position == "learned":
                n_parameters -= self.position_embeddings.weight.numel()
        return n_parameters
