"""What a model looks like: one dataclass, checked when it is made."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, get_args

from bytemill.errors import ModelConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

Norm = Literal["rms", "layer"]
Position = Literal["rotary", "learned", "sinusoidal", "none"]
FeedForwardKind = Literal["swiglu", "gelu", "relu"]
NormPosition = Literal["pre", "post"]
AttentionKind = Literal["scratch", "fused"]

_CHOICES: dict[str, tuple[str, ...]] = {
    "norm": get_args(Norm),
    "position": get_args(Position),
    "feed_forward": get_args(FeedForwardKind),
    "norm_position": get_args(NormPosition),
    "attention": get_args(AttentionKind),
}
_COUNTS = ("vocab_size", "context_length", "d_model", "num_layers", "num_heads", "d_ff")


@dataclass(frozen=True)
class ModelConfig:
    """The shape of a Transformer language model.

    >>> config = ModelConfig(vocab_size=1000, context_length=64, d_model=32, num_layers=2, num_heads=4, d_ff=64)
    >>> config.d_head, config.n_kv_heads
    (8, 4)

    Raises:
        ModelConfigError: a field has an impossible value, or two fields contradict each other.
    """

    vocab_size: int
    """Ids are 0 … vocab_size − 1."""
    context_length: int
    """The most tokens that the model sees at once."""
    d_model: int
    """Width of the residual stream."""
    num_layers: int
    """Blocks of attention and feed-forward."""
    num_heads: int
    """Query heads; each is d_model / num_heads wide."""
    d_ff: int
    """Inner width of the feed-forward network."""
    rope_theta: float = 10_000.0
    """Longest wavelength of the rotary embedding, in positions / 2π."""
    norm: Norm = "rms"
    """RMSNorm or LayerNorm."""
    position: Position = "rotary"
    """How a token's place is told; "none": by the causal mask alone."""
    feed_forward: FeedForwardKind = "swiglu"
    """The network between attention and attention: three matrices, or two with gelu or relu between them."""
    norm_position: NormPosition = "pre"
    """Norm before each sub-layer, or after adding it to the stream."""
    num_kv_heads: int | None = None
    """Key and value heads, shared by groups of query heads; None: one each."""
    sliding_window: int | None = None
    """A token sees itself and this many − 1 tokens before it; None: all."""
    tied_embeddings: bool = False
    """The output layer is the token embedding itself."""
    dropout: float = 0.0
    """On embeddings, attention weights and what sub-layers add, while training."""
    bias: bool = False
    """In every linear layer except the output layer."""
    norm_eps: float = 1e-5
    """Added to the variance (mean square) in the norms."""
    attention: AttentionKind = "scratch"
    """Who computes attention: "scratch" is our own, "fused" torch's kernel."""

    def __post_init__(self) -> None:
        for name in _COUNTS:
            self._at_least_one(name, getattr(self, name))
        for name in ("num_kv_heads", "sliding_window"):
            if getattr(self, name) is not None:
                self._at_least_one(name, getattr(self, name))
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise ModelConfigError(
                    f"{name} is {getattr(self, name)!r}", hint=f"choose one of {', '.join(choices)}"
                )
        if self.d_model % self.num_heads:
            raise ModelConfigError(
                f"d_model {self.d_model} does not split into num_heads {self.num_heads}",
                hint=f"num_heads has to divide d_model: {_divisors_near(self.d_model, self.num_heads)} would do",
            )
        if self.num_heads % self.n_kv_heads:
            raise ModelConfigError(
                f"num_heads {self.num_heads} do not share num_kv_heads {self.n_kv_heads} evenly",
                hint=f"it has to divide num_heads: {_divisors_near(self.num_heads, self.n_kv_heads)} would do",
            )
        if self.position == "rotary" and self.d_head % 2:
            raise ModelConfigError(
                f"position 'rotary' turns pairs of numbers, and a head is {self.d_head} wide",
                hint="choose num_heads so that d_model / num_heads is even, or another position",
            )
        if self.position == "sinusoidal" and self.d_model % 2:
            raise ModelConfigError(
                f"position 'sinusoidal' fills pairs of numbers, and d_model is {self.d_model}",
                hint="choose an even d_model, or another position",
            )
        self._between("rope_theta", above=0.0)
        self._between("norm_eps", above=0.0)
        if not 0.0 <= self.dropout < 1.0:
            raise ModelConfigError(f"dropout is {self.dropout}", hint="choose 0.0 (none) or more, below 1.0")

    @property
    def d_head(self) -> int:
        """Width of one head."""
        return self.d_model // self.num_heads

    @property
    def n_kv_heads(self) -> int:
        """Number of key and value heads."""
        return self.num_heads if self.num_kv_heads is None else self.num_kv_heads

    def to_dict(self) -> dict[str, Any]:
        """Every field by name, in values that JSON and TOML can hold (TOML leaves out what is None)."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> ModelConfig:
        """The configuration that `to_dict` gave; fields with defaults may be absent.

        Raises:
            ModelConfigError: a field is unknown or missing, or what the class itself raises.
        """
        known = {field.name for field in fields(cls)}
        if unknown := sorted(set(settings) - known):
            raise ModelConfigError(
                f"no setting of a model: {', '.join(unknown)}", hint=f"there are {', '.join(sorted(known))}"
            )
        if missing := [name for name in _COUNTS if name not in settings]:
            raise ModelConfigError(
                f"settings of the model are missing: {', '.join(missing)}",
                hint="give them, or start from a preset",
            )
        return cls(**settings)

    def _at_least_one(self, name: str, value: object) -> None:
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ModelConfigError(f"{name} is {value!r}", hint="choose a whole number of at least 1")

    def _between(self, name: str, *, above: float) -> None:
        value = getattr(self, name)
        if not above < value < float("inf"):
            raise ModelConfigError(f"{name} is {value!r}", hint=f"choose a number above {above}")


def _divisors_near(number: int, wanted: int) -> str:
    """The divisors next to a number that does not divide."""
    divisors = [d for d in range(1, number + 1) if number % d == 0]
    below = [d for d in divisors if d < wanted][-1:]
    above = [d for d in divisors if d > wanted][:1]
    return " or ".join(str(d) for d in below + above)
