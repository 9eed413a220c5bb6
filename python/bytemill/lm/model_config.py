"""The shape of a model."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from bytemill.errors import BytemillError, ModelConfigError
from bytemill.lm.settings import Settings

Norm = Literal["rms", "layer"]
Position = Literal["rotary", "learned", "sinusoidal", "none"]
FeedForwardKind = Literal["swiglu", "gelu", "relu"]
"""SwiGLU, or a name in `layers.ACTIVATIONS`."""
NormPosition = Literal["pre", "post"]

Count = Annotated[int, Field(ge=1)]
PositiveFloat = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class ModelConfig(Settings):
    """The shape of a Transformer language model.

    >>> config = ModelConfig(vocab_size=1000, context_length=64, d_model=32, num_layers=2, num_heads=4, d_ff=64)
    >>> config.d_head, config.n_kv_heads
    (8, 4)

    Raises:
        ModelConfigError: A field is missing, unknown or out of range, or two fields contradict each other.
    """

    error_type: ClassVar[type[BytemillError]] = ModelConfigError

    vocab_size: Count
    """Number of token ids, from 0 to vocab_size − 1."""
    context_length: Count
    """Maximum number of tokens in the context."""
    d_model: Count
    """Width of the residual stream."""
    num_layers: Count
    """Number of Transformer blocks."""
    num_heads: Count
    """Number of query heads, each d_model / num_heads wide."""
    d_ff: Count
    """Inner width of the feed-forward network."""
    rope_theta: PositiveFloat = 10_000.0
    """Base of the rotary embedding's wavelengths."""
    norm: Norm = "rms"
    """RMSNorm or LayerNorm."""
    position: Position = "rotary"
    """Position encoding; with none, only the causal mask tells the order."""
    feed_forward: FeedForwardKind = "swiglu"
    """Feed-forward network: SwiGLU (three matrices), or GELU or ReLU (two matrices)."""
    norm_position: NormPosition = "pre"
    """Normalize before each sub-layer (pre), or after its output is added to the stream (post)."""
    num_kv_heads: Count | None = None
    """Number of key and value heads, shared by groups of query heads; by default num_heads."""
    sliding_window: Count | None = None
    """Number of most recent tokens that a token attends to, itself included; by default all."""
    tied_embeddings: bool = False
    """Use the token embedding as the output layer."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Dropout rate of embeddings, attention weights and sub-layer outputs during training."""
    bias: bool = False
    """Add a bias to every linear layer except the output layer."""
    norm_eps: PositiveFloat = 1e-5
    """Term added to the variance (mean square) in the norms."""

    @model_validator(mode="after")
    def _check_sizes(self) -> Self:
        if self.d_model % self.num_heads:
            raise ModelConfigError(
                f"d_model {self.d_model} is not divisible by num_heads {self.num_heads}",
                hint=f"set num_heads to {_divisors_near(self.d_model, self.num_heads)}",
            )
        if self.num_heads % self.n_kv_heads:
            raise ModelConfigError(
                f"num_heads {self.num_heads} is not divisible by num_kv_heads {self.n_kv_heads}",
                hint=f"set num_kv_heads to {_divisors_near(self.num_heads, self.n_kv_heads)}",
            )
        if self.position == "rotary" and self.d_head % 2:
            raise ModelConfigError(
                f"position 'rotary' needs an even head width, but d_model / num_heads is {self.d_head}",
                hint="choose num_heads so that d_model / num_heads is even, or another position",
            )
        if self.position == "sinusoidal" and self.d_model % 2:
            raise ModelConfigError(
                f"position 'sinusoidal' needs an even width, but d_model is {self.d_model}",
                hint="choose an even d_model, or another position",
            )
        return self

    @property
    def d_head(self) -> int:
        """Width of one head."""
        return self.d_model // self.num_heads

    @property
    def n_kv_heads(self) -> int:
        """Number of key and value heads."""
        return self.num_heads if self.num_kv_heads is None else self.num_kv_heads

    def replace(self, **changes: Any) -> ModelConfig:
        """Return a validated copy with some fields changed."""
        return ModelConfig(**{**self.to_dict(), **changes})


def _divisors_near(number: int, target: int) -> str:
    """Return the divisors of `number` next to `target`."""
    divisors = [d for d in range(1, number + 1) if number % d == 0]
    below = [d for d in divisors if d < target][-1:]
    above = [d for d in divisors if d > target][:1]
    return " or ".join(str(d) for d in below + above)
