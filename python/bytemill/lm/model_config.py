"""The shape of a model, and the parts that it may name: where their code is, and what they cost."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from itertools import cycle, islice
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, cast

from pydantic import BeforeValidator, Field, model_validator

from bytemill.errors import BytemillError, ModelConfigError
from bytemill.lm.mixer_settings import DeltaConfig, HyenaConfig, LinearConfig, MambaConfig, MLAConfig
from bytemill.lm.settings import Settings, flattened, nested, suggestion

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

Norm = Literal["rms", "layer"]
Position = Literal["rotary", "learned", "sinusoidal", "none"]
Activation = Literal["gelu", "gelu_exact", "relu", "relu2"]
"""A name in `model.ACTIVATIONS`."""
ExpertKind = Literal["swiglu", "geglu", "clamped_swiglu", Activation]
"""Gated networks, and names in `model.ACTIVATIONS`."""
FeedForwardKind = Literal[ExpertKind, "moe"]
"""A network, or a mixture of several."""
NormPosition = Literal["pre", "post", "output", "sandwich"]
Residual = Literal["sequential", "parallel"]
RopeScaling = Literal["linear", "llama3", "yarn", "dynamic", "longrope"]
Initialization = Literal["textbook", "gpt2"]
KernelName = Literal["auto", "torch", "triton", "scratch"]
"""Choices of kernels; see `kernels.choice.choose_kernels`."""

Count = Annotated[int, Field(ge=1)]
PositiveFloat = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Numerals = Annotated[tuple[PositiveFloat, ...], Field(strict=False)]


def _as_names(value: Any) -> Any:
    """Accept one name, or a list of names."""
    if isinstance(value, str):
        return (value,)
    return tuple(cast("list[Any]", value)) if isinstance(value, list) else value


MixerNames = Annotated[tuple[str, ...], BeforeValidator(_as_names), Field(min_length=1)]

KNOWN_OPTIONS = frozenset(
    {
        *("vocab_size", "context_length", "d_model", "num_layers", "num_heads", "d_ff"),
        *("attention.num_kv_heads", "attention.head_dim", "attention.qk_norm", "attention.qkv_bias"),
        *("attention.sliding_window", "rope.theta", "rope.fraction", "rope.scaling", "rope.factor"),
        *("rope.low_freq_factor", "rope.high_freq_factor", "rope.original_context"),
        *("norm", "norm_position", "norm_eps", "norm_bias", "position", "feed_forward"),
        *("tied_embeddings", "bias", "logit_soft_cap", "dropout", "initialization"),
    }
)
"""The options that export, planning and the core's decoder know. A new one stays out of this list: each of the three
refuses models that use it until it is taught what it means (`ModelConfig.unknown_options`). Planning also knows the
mixers, and the options that their entries name. The decoders know the mixers that the core computes."""


def swiglu_width(d_model: int) -> int:
    """Return the multiple of 64 nearest to 8/3 · d_model: three matrices then equal two of width 4 · d_model.

    >>> swiglu_width(512)
    1344
    """
    return max(64, round(8 * d_model / 3 / 64) * 64)


class AttentionConfig(Settings):
    """Settings of attention: the table `attention` of a model."""

    error_type: ClassVar[type[BytemillError]] = ModelConfigError

    num_kv_heads: Count | None = None
    """Number of key and value heads, shared by groups of query heads; by default num_heads."""
    head_dim: Count | None = None
    """Width of a head; by default d_model / num_heads."""
    qk_norm: bool = False
    """Normalize each head of queries and keys with RMSNorm, before the rotary embedding."""
    sliding_window: Count | None = None
    """Number of most recent tokens that a token attends to, itself included; by default all."""
    qk_norm_over: Literal["head", "all"] = "head"
    """With qk_norm, normalize each head, or all heads of a token together as OLMo 2 does."""
    qkv_bias: bool = False
    """Add a bias to queries, keys and values, also without bias."""
    scale: PositiveFloat | None = None
    """Factor of the scores, the products of queries and keys; by default 1 / √head_dim."""
    soft_cap: PositiveFloat | None = None
    """Bound the scores smoothly to ±cap, as Gemma 2 does."""
    sinks: bool = False
    """Let each head also attend to a learned score without a value, as gpt-oss does."""

    @property
    def has_options(self) -> bool:
        """Whether scores or norms differ from those of the textbook."""
        is_wide = self.qk_norm and self.qk_norm_over == "all"
        return is_wide or self.sinks or self.scale is not None or self.soft_cap is not None

    @model_validator(mode="after")
    def _check_norm(self) -> Self:
        if self.qk_norm_over != "head" and not self.qk_norm:
            raise ModelConfigError(
                f"qk_norm_over is {self.qk_norm_over!r}, but attention.qk_norm is not set",
                hint="set attention.qk_norm to true",
            )
        return self


class RopeConfig(Settings):
    """Settings of the rotary embedding: the table `rope` of a model."""

    error_type: ClassVar[type[BytemillError]] = ModelConfigError

    theta: PositiveFloat = 10_000.0
    """Base of the rotary embedding's wavelengths."""
    scaling: RopeScaling | None = None
    """Lengthen the rotary embedding's wavelengths for long contexts: all of them (linear), or by another method."""
    factor: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 1.0
    """Factor by which scaling lengthens wavelengths."""
    low_freq_factor: PositiveFloat = 1.0
    """With scaling llama3, lengthen wavelengths above original_context / low_freq_factor in full."""
    high_freq_factor: PositiveFloat = 4.0
    """With scaling llama3, keep wavelengths below original_context / high_freq_factor."""
    original_context: Count = 8192
    """With scaling other than linear, context length before scaling."""
    beta_fast: PositiveFloat = 32.0
    """With scaling yarn, keep the wavelengths of pairs that turn more often in the original context."""
    beta_slow: PositiveFloat = 1.0
    """With scaling yarn, lengthen the wavelengths of pairs that turn less often in the original context in full."""
    truncate: bool = True
    """With scaling yarn, round the range between them to whole pairs."""
    short_divisors: Numerals = ()
    """With scaling longrope, a divisor of each pair's frequency, up to the original context."""
    long_divisors: Numerals = ()
    """With scaling longrope, a divisor of each pair's frequency, if context_length is above the original one."""
    window_theta: PositiveFloat | None = None
    """Base of the rotary embedding in blocks with a sliding window, without scaling; by default as in other blocks."""
    magnitude: PositiveFloat | None = None
    """Factor of rotated queries and keys; by default that of the scaling, 1 except for yarn and longrope."""
    fraction: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of each head that the rotary embedding rotates, from its start."""

    @model_validator(mode="after")
    def _check_scaling(self) -> Self:
        if self.scaling is None and self.factor != 1:
            raise ModelConfigError(
                f"factor is {self.factor}, but rope.scaling is not set",
                hint="set rope.scaling to linear, llama3 or yarn",
            )
        if self.scaling == "llama3" and self.high_freq_factor <= self.low_freq_factor:
            raise ModelConfigError(
                f"high_freq_factor {self.high_freq_factor} is not above rope.low_freq_factor {self.low_freq_factor}",
                hint="Llama 3.1 uses 4 and 1",
            )
        return self


class MoeConfig(Settings):
    """Settings of the feed-forward network `moe`, a mixture of experts: the table `moe` of a model."""

    error_type: ClassVar[type[BytemillError]] = ModelConfigError

    experts: Count = 8
    """Number of experts, networks of inner width d_ff."""
    top_k: Count = 2
    """Number of experts that the router chooses for a token."""
    shared: Annotated[int, Field(ge=0)] = 0
    """Number of experts that compute every token besides, as one network of their joint width."""
    expert: ExpertKind = "swiglu"
    """Network of an expert, a name in feed_forward."""
    scores: Literal["softmax", "sigmoid"] = "softmax"
    """Scores of experts: shares of all (softmax), or each for itself (sigmoid)."""
    normalized: bool = True
    """Divide the scores of the chosen experts by their sum."""
    scale: PositiveFloat = 1.0
    """Factor of the weights of the chosen experts."""
    balance: Literal["loss", "bias", "none"] = "loss"
    """Balance the experts by a term of the loss, or by a bias of the choice that follows their loads."""
    balance_weight: PositiveFloat = 0.01
    """With balance loss, factor of the term, which is 1 in each layer if all experts get equally many tokens."""
    bias_rate: PositiveFloat = 0.001
    """With balance bias, its change in each step."""

    @model_validator(mode="after")
    def _check_top_k(self) -> Self:
        if self.top_k > self.experts:
            raise ModelConfigError(
                f"top_k {self.top_k} is above moe.experts {self.experts}",
                hint="a token cannot use more experts than there are",
            )
        return self


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
    """Number of query heads."""
    d_ff: Count
    """Inner width of the feed-forward network."""
    attention: Annotated[AttentionConfig, Field(strict=False)] = AttentionConfig()
    """Settings of attention."""
    rope: Annotated[RopeConfig, Field(strict=False)] = RopeConfig()
    """Settings of the rotary embedding."""
    mixer: MixerNames = ("attention",)
    """What mixes the tokens of each block: a name, or several that are repeated over the blocks, such as window:512
    window:512 full. A name is a key of MIXERS, with its arguments after colons."""
    mla: Annotated[MLAConfig, Field(strict=False)] = MLAConfig()
    """Settings of the mixer mla."""
    linear: Annotated[LinearConfig, Field(strict=False)] = LinearConfig()
    """Settings of the mixer linear."""
    delta: Annotated[DeltaConfig, Field(strict=False)] = DeltaConfig()
    """Settings of the mixer delta."""
    mamba: Annotated[MambaConfig, Field(strict=False)] = MambaConfig()
    """Settings of the mixer mamba."""
    hyena: Annotated[HyenaConfig, Field(strict=False)] = HyenaConfig()
    """Settings of the mixer hyena."""
    norm: Norm = "rms"
    """RMSNorm or LayerNorm."""
    position: Position = "rotary"
    """Position encoding; with none, only the causal mask tells the order."""
    feed_forward: FeedForwardKind = "swiglu"
    """Feed-forward network: gated (SwiGLU, GeGLU), two matrices with GELU (tanh) or another function, or moe."""
    moe: Annotated[MoeConfig, Field(strict=False)] = MoeConfig()
    """Settings of the mixture of experts."""
    norm_position: NormPosition = "pre"
    """Normalize the input of each sub-layer (pre), its output (output), both (sandwich), or the sum with it (post)."""
    residual: Residual = "sequential"
    """Feed the network from the stream after attention (sequential), or both from the same stream (parallel)."""
    embedding_scale: PositiveFloat | None = None
    """Factor of the token embeddings in the stream; the tied output layer has none."""
    tied_embeddings: bool = False
    """Use the token embedding as the output layer."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Dropout rate of embeddings, attention weights and sub-layer outputs during training."""
    bias: bool = False
    """Add a bias to every linear layer except the output layer."""
    norm_bias: bool = True
    """Add a bias in LayerNorm."""
    norm_eps: PositiveFloat = 1e-5
    """Term added to the variance (mean square) in the norms."""
    logit_soft_cap: PositiveFloat | None = None
    """Bound the logits smoothly to ±cap: cap · tanh(logits / cap)."""
    multi_token_weight: PositiveFloat | None = None
    """Train a further block that predicts the token after the next one, whose loss has this weight in the total."""
    initialization: Initialization = "textbook"
    """Initial weights: normal with a σ that depends on each matrix's widths (textbook), or with GPT-2's σ (0.02)."""

    @model_validator(mode="after")
    def _check_sizes(self) -> Self:
        if self.attention.head_dim is None and self.d_model % self.num_heads:
            raise ModelConfigError(
                f"d_model {self.d_model} is not divisible by num_heads {self.num_heads}",
                hint=f"set num_heads to {_divisors_near(self.d_model, self.num_heads)}, or set attention.head_dim",
            )
        if self.num_heads % self.n_kv_heads:
            raise ModelConfigError(
                f"num_heads {self.num_heads} is not divisible by attention.num_kv_heads {self.n_kv_heads}",
                hint=f"set attention.num_kv_heads to {_divisors_near(self.num_heads, self.n_kv_heads)}",
            )
        self._check_rotary()
        if self.residual == "parallel" and self.norm_position != "pre":
            raise ModelConfigError(
                f"residual is 'parallel', but norm_position is {self.norm_position!r}",
                hint="set norm_position to pre",
            )
        if self.feed_forward != "moe" and self.moe != MoeConfig():
            raise ModelConfigError(
                f"moe is set, but feed_forward is {self.feed_forward!r}", hint="set feed_forward to moe"
            )
        if self.position == "sinusoidal" and self.d_model % 2:
            raise ModelConfigError(
                f"position 'sinusoidal' needs an even width, but d_model is {self.d_model}",
                hint="choose an even d_model, or another position",
            )
        for name in dict.fromkeys(self.mixer):
            layer = Layer.of(self, name)
            layer.part.check(layer.config)
        return self

    def _check_rotary(self) -> None:
        if self.position == "rotary" and self.d_head % 2:
            name = "d_model / num_heads" if self.attention.head_dim is None else "attention.head_dim"
            raise ModelConfigError(
                f"position 'rotary' needs an even head width, but {name} is {self.d_head}",
                hint=f"make {name} even, or choose another position",
            )
        if self.position == "rotary" and (self.d_rotary % 2 or not self.d_rotary):
            raise ModelConfigError(
                f"rope.fraction {self.rope.fraction} of a head of width {self.d_head} is {self.d_rotary}, which is "
                "not an even number above 0",
                hint="choose another rope.fraction",
            )
        if self.position == "rotary" and self.rope.scaling == "longrope":
            for name in ("short_divisors", "long_divisors"):
                if (n := len(getattr(self.rope, name))) != self.d_rotary // 2:
                    raise ModelConfigError(
                        f"rope.{name} has {n} numbers, but a head has {self.d_rotary // 2} rotated pairs"
                    )

    @property
    def has_final_norm(self) -> bool:
        """Whether a norm precedes the output layer; with post-norm, the last block ends with one."""
        return self.norm_position != "post"

    @property
    def n_block_norms(self) -> int:
        """Number of norms of width d_model in a block."""
        return 4 if self.norm_position == "sandwich" else 2

    @property
    def layers(self) -> list[Layer]:
        """The mixer of each block, with the settings that hold for that block.

        >>> config = ModelConfig(vocab_size=9, context_length=8, d_model=8, num_layers=3, num_heads=2, d_ff=8,
        ...                      mixer=["window:4", "full"])
        >>> [(layer.name, layer.config.attention.sliding_window) for layer in config.layers]
        [('window:4', 4), ('full', None), ('window:4', 4)]
        """
        own = {name: Layer.of(self, name) for name in self.mixer}
        return [own[name] for name in islice(cycle(self.mixer), self.num_layers)]

    @property
    def d_head(self) -> int:
        """Width of one head."""
        return self.d_model // self.num_heads if self.attention.head_dim is None else self.attention.head_dim

    @property
    def d_rotary(self) -> int:
        """Width of the part of a head that the rotary embedding rotates."""
        return int(self.rope.fraction * self.d_head)

    @property
    def n_kv_heads(self) -> int:
        """Number of key and value heads."""
        return self.num_heads if self.attention.num_kv_heads is None else self.attention.num_kv_heads

    def unknown_options(self, also_known: Collection[str] = ()) -> list[str]:
        """Return the options, with their values, that are not in `KNOWN_OPTIONS` and differ from their defaults.

        Args:
            also_known: Options that the caller knows besides.
        """
        values = self.to_flat()
        return [
            f"{name} {values[name]!r}"
            for name, field in type(self).fields_by_name().items()
            if name not in KNOWN_OPTIONS and name not in also_known and values[name] != field.default
        ]

    def replace(self, **changes: Any) -> ModelConfig:
        """Return a validated copy with some fields changed; of a table, only the settings that a change names."""
        changed = {name: own.to_dict() if isinstance(own, Settings) else own for name, own in changes.items()}
        return ModelConfig(**nested({**self.to_flat(), **flattened(changed)}))


def _divisors_near(number: int, target: int) -> str:
    """Return the divisors of `number` next to `target`."""
    divisors = [d for d in range(1, number + 1) if number % d == 0]
    below = [d for d in divisors if d < target][-1:]
    above = [d for d in divisors if d > target][:1]
    return " or ".join(str(d) for d in below + above)


@dataclass(frozen=True)
class Numbers:
    """Numbers per token that the backward pass needs: those always in float32, and those of matrix products."""

    wide: int
    narrow: int

    def bytes(self, narrow_size: int) -> int:
        return 4 * self.wide + narrow_size * self.narrow


@dataclass(frozen=True)
class Part:
    """A part of a block: where its code is, and what it costs.

    A subclass counts what the part has. What it does not count is an error in planning, which names the part.
    """

    code: str
    """`module:class`. The class has `of(config, …, device, dtype)`, which builds the part of a model."""
    in_core: bool = False
    """Whether the decoders of single tokens compute it: the core's, and that of CUDA graphs."""
    options: frozenset[str] = frozenset()
    """Options of the model that only this part has, and that its counts take into account."""
    option: str = ""
    """The option of the model that names it."""

    def load(self) -> Any:
        """Import the class."""
        module, _, name = self.code.partition(":")
        return getattr(import_module(module), name)

    def matrices(self, config: ModelConfig) -> int:
        """Return the number of parameters in its matrices."""
        raise self._not_counted("parameters", config)

    def active(self, config: ModelConfig) -> int:
        """Return the number of parameters in the matrices that compute a token."""
        return self.matrices(config)

    def vectors(self, config: ModelConfig) -> int:
        """Return the number of its other parameters."""
        raise self._not_counted("parameters", config)

    def flops(self, config: ModelConfig, n_tokens: int) -> dict[str, int]:  # noqa: ARG002
        """Return the FLOPs of a forward pass over one sequence, by step."""
        raise self._not_counted("FLOPs", config)

    def saved(self, config: ModelConfig) -> Numbers:
        """Return what the forward pass saves for the backward pass."""
        raise self._not_counted("bytes", config)

    def saved_selectively(self, config: ModelConfig) -> tuple[Numbers, int]:
        """Return what selective checkpointing saves, and how many of its narrow numbers `saved` counts too."""
        raise self._not_counted("bytes under selective checkpointing", config)

    def _not_counted(self, what: str, config: ModelConfig) -> ModelConfigError:
        value = getattr(config, self.option)
        name = value if isinstance(value, str) else value[0]
        return ModelConfigError(
            f"the {what} of {self.option} {name!r} are unknown",
            hint="count them in its entry in bytemill.lm.model_config",
        )


@dataclass(frozen=True)
class Mixer(Part):
    """What mixes the tokens of a block. Its class also has `new_cache(config, batch_size, device, dtype)`.

    Its methods and its class get the settings of one block, the result of `settings`.
    """

    option: str = "mixer"
    example: str = ""
    """Arguments for it, such as ":512", if it needs any."""
    keeps_documents: bool = True
    """Whether it can keep the documents of a window apart."""

    def settings(self, config: ModelConfig, arguments: Sequence[str]) -> dict[str, Any]:  # noqa: ARG002
        """Return the settings of the model that its arguments replace in a block.

        Raises:
            ValueError: The arguments are wrong; the message says what they must be.
        """
        if arguments:
            raise ValueError("it has no arguments")
        return {}

    def check(self, config: ModelConfig) -> None:
        """Raise ModelConfigError if the mixer cannot have these settings."""


@dataclass(frozen=True)
class Layer:
    """The mixer of one block."""

    name: str
    """As the model names it, such as "window:512"."""
    config: ModelConfig
    """The settings of the model, with those of the block in their place. `layers` of it are this one."""

    @classmethod
    def of(cls, config: ModelConfig, name: str) -> Layer:
        """Return the layer that a name with arguments describes.

        Raises:
            ModelConfigError: The name is unknown, or its arguments are wrong.
        """
        kind, *arguments = name.split(":")
        if kind not in MIXERS:
            raise ModelConfigError(f"mixer is {name!r}", hint=suggestion(kind, MIXERS))
        try:
            changes = MIXERS[kind].settings(config, arguments)
        except ValueError as error:
            raise ModelConfigError(f"mixer is {name!r}", hint=str(error)) from None
        return cls(name, config.model_copy(update={"mixer": (name,), **changes}))

    @property
    def part(self) -> Mixer:
        """Its registration."""
        return MIXERS[self.name.partition(":")[0]]


class _Attention(Mixer):
    """Multi-head attention; queries, keys and values are computed from rows of d_model numbers."""

    def settings(self, config: ModelConfig, arguments: Sequence[str]) -> dict[str, Any]:
        """Return the settings of a block with the window `attention.sliding_window`."""
        return {**super().settings(config, arguments), **_in_window(config, config.attention.sliding_window)}

    def matrices(self, config: ModelConfig) -> int:
        d_q, d_kv = self._widths(config)
        return 2 * config.d_model * d_q + 2 * config.d_model * d_kv

    def vectors(self, config: ModelConfig) -> int:
        d_q, d_kv = self._widths(config)
        n = d_q + 2 * d_kv if config.bias or config.attention.qkv_bias else 0
        return (
            n
            + (config.d_model if config.bias else 0)
            + self._norms(config, d_q + d_kv)
            + (config.num_heads if config.attention.sinks else 0)
        )

    def _norms(self, config: ModelConfig, d_all: int) -> int:
        if not config.attention.qk_norm:
            return 0
        return d_all if config.attention.qk_norm_over == "all" else 2 * config.d_head

    def flops(self, config: ModelConfig, n_tokens: int) -> dict[str, int]:
        d, (d_q, d_kv) = config.d_model, self._widths(config)
        return {
            "queries, keys, values": 2 * n_tokens * d * (d_q + 2 * d_kv),
            "attention scores": 2 * n_tokens * n_tokens * d_q,
            "weighted values": 2 * n_tokens * n_tokens * d_q,
            "attention output": 2 * n_tokens * d_q * d,
        }

    def saved(self, config: ModelConfig) -> Numbers:
        """Count queries, keys, values, the result of the heads, and a log Σ exp per head.

        QK-norm saves its inputs and a statistic per head, or per token. A cap or sinks save all weights, not their
        sums, and a cap its result too: they are counted for texts of the context length, without the mask.
        """
        (d_q, d_kv), options, n_heads = self._widths(config), config.attention, config.num_heads
        wide, narrow = n_heads, 2 * d_q + 2 * d_kv
        if options.soft_cap is not None or options.sinks:
            wide = n_heads * config.context_length if options.soft_cap is not None else 0
            narrow += n_heads * (config.context_length + options.sinks)
        if options.qk_norm:
            wide += 2 if options.qk_norm_over == "all" else n_heads + config.n_kv_heads
            narrow += d_q + d_kv
        return Numbers(wide, narrow)

    def saved_selectively(self, config: ModelConfig) -> tuple[Numbers, int]:
        """Count the results of products and attention; `saved` has values and the result of the heads too."""
        d_q, d_kv = self._widths(config)
        return Numbers(config.num_heads, 2 * d_q + 2 * d_kv), d_q + d_kv

    def _widths(self, config: ModelConfig) -> tuple[int, int]:
        return config.num_heads * config.d_head, config.n_kv_heads * config.d_head


class _FullAttention(_Attention):
    """Attention to all earlier tokens: `full`, or `full:nope` without the rotary embedding."""

    def settings(self, config: ModelConfig, arguments: Sequence[str]) -> dict[str, Any]:
        """Return the settings of a block of full attention."""
        if list(arguments) not in ([], ["nope"]):
            raise ValueError("write full, or full:nope without the rotary embedding")
        unrotated = {"position": "none"} if arguments and config.position == "rotary" else {}
        return {"attention": config.attention.model_copy(update={"sliding_window": None}), **unrotated}


class _WindowAttention(_Attention):
    """Attention to the most recent tokens: `window:512`."""

    def settings(self, config: ModelConfig, arguments: Sequence[str]) -> dict[str, Any]:
        """Return the settings of a block of attention in a window."""
        if len(arguments) != 1 or not arguments[0].isdecimal() or int(arguments[0]) < 1:
            raise ValueError("write the number of tokens, itself included, after a colon, such as window:512")
        return _in_window(config, int(arguments[0]))


class _ValueAttention(_Attention):
    """Attention with value embeddings: `values`, or `values:512` in a window."""

    def settings(self, config: ModelConfig, arguments: Sequence[str]) -> dict[str, Any]:
        """Return the settings of a block with value embeddings."""
        if len(arguments) > 1 or not all(each.isdecimal() and int(each) >= 1 for each in arguments):
            raise ValueError("write values, or the number of tokens of a window after a colon, as values:512")
        return _in_window(config, int(arguments[0]) if arguments else config.attention.sliding_window)

    def matrices(self, config: ModelConfig) -> int:
        return super().matrices(config) + self._gate(config)

    def vectors(self, config: ModelConfig) -> int:
        """Count the embedding too, which is no factor of a product."""
        return super().vectors(config) + config.vocab_size * self._widths(config)[1]

    def flops(self, config: ModelConfig, n_tokens: int) -> dict[str, int]:
        return {**super().flops(config, n_tokens), "value gates": 2 * n_tokens * self._gate(config)}

    def saved(self, config: ModelConfig) -> Numbers:
        """Count the embeddings, the ids, and the gates before and after their factor."""
        own = super().saved(config)
        return Numbers(own.wide + self._widths(config)[1], own.narrow + 2 * config.n_kv_heads)

    def saved_selectively(self, config: ModelConfig) -> tuple[Numbers, int]:
        own, again = super().saved_selectively(config)
        return Numbers(own.wide, own.narrow + config.n_kv_heads), again + config.n_kv_heads

    def _gate(self, config: ModelConfig) -> int:
        return self.load().n_gate_inputs(config) * config.n_kv_heads


def _in_window(config: ModelConfig, window: int | None) -> dict[str, Any]:
    """Return the settings of a block with a sliding window: its rotary embedding may have another base, unscaled."""
    theta = config.rope.window_theta
    local = {"theta": theta, "scaling": None, "factor": 1.0, "magnitude": None}
    rope = {} if window is None or theta is None else {"rope": config.rope.model_copy(update=local)}
    return {"attention": config.attention.model_copy(update={"sliding_window": window}), **rope}


class _OfModule(Mixer):
    """A mixer in a module of its own, whose class counts what it has."""

    def matrices(self, config: ModelConfig) -> int:
        return self.load().matrices(config)

    def vectors(self, config: ModelConfig) -> int:
        return self.load().vectors(config)

    def flops(self, config: ModelConfig, n_tokens: int) -> dict[str, int]:
        return self.load().flops(config, n_tokens)

    def saved(self, config: ModelConfig) -> Numbers:
        """Count what the textbook's operations save, in float32 also under autocast."""
        return Numbers(self.load().saved(config), 0)

    def saved_selectively(self, config: ModelConfig) -> tuple[Numbers, int]:
        """Count the results of its matrices."""
        layer: Any = self.load().of(config, device="meta")
        return Numbers(0, sum(weight.shape[0] for weight in layer.parameters() if weight.ndim == 2)), 0

    def check(self, config: ModelConfig) -> None:
        self.load().check(config)


@dataclass(frozen=True)
class _FeedForward(Part):
    """A network of `n_matrices` matrices, all but the last one d_ff × d_model."""

    option: str = "feed_forward"
    n_matrices: int = 2
    n_more: int = 0
    """Inner numbers, in units of d_ff, that are saved beside one per matrix."""

    def matrices(self, config: ModelConfig) -> int:
        return self.n_matrices * config.d_model * config.d_ff

    def vectors(self, config: ModelConfig) -> int:
        return (self.n_matrices - 1) * config.d_ff + config.d_model if config.bias else 0

    def flops(self, config: ModelConfig, n_tokens: int) -> dict[str, int]:
        return {"feed-forward": 2 * n_tokens * self.matrices(config)}

    def saved(self, config: ModelConfig) -> Numbers:
        """Count gate, inner and product (SwiGLU), or inner and its activation."""
        return Numbers(0, (self.n_matrices + self.n_more) * config.d_ff)

    def saved_selectively(self, config: ModelConfig) -> tuple[Numbers, int]:
        inner = (self.n_matrices - 1) * config.d_ff
        return Numbers(0, inner), inner


@dataclass(frozen=True)
class _Experts(Part):
    """A mixture of experts: all have parameters, `moe.top_k` of them and the shared ones compute a token."""

    option: str = "feed_forward"
    options: frozenset[str] = frozenset(f"moe.{name}" for name in MoeConfig.fields_by_name())

    def matrices(self, config: ModelConfig) -> int:
        moe, (one, _) = config.moe, self._expert(config)
        return config.d_model * moe.experts + (moe.experts + moe.shared) * one.matrices(config)

    def vectors(self, config: ModelConfig) -> int:
        moe, (one, _) = config.moe, self._expert(config)
        n_router = moe.experts * ((moe.balance == "bias") + config.bias)
        shared = one.vectors(config.replace(d_ff=moe.shared * config.d_ff)) if moe.shared else 0
        return n_router + moe.experts * one.vectors(config) + shared

    def active(self, config: ModelConfig) -> int:
        """Return the number of weights in the matrices that compute a token."""
        moe, (one, n) = config.moe, self._expert(config)
        return config.d_model * moe.experts + n * one.matrices(config)

    def flops(self, config: ModelConfig, n_tokens: int) -> dict[str, int]:
        moe, (one, n) = config.moe, self._expert(config)
        return {
            "router": 2 * n_tokens * config.d_model * moe.experts,
            "feed-forward": 2 * n_tokens * n * one.matrices(config),
        }

    def saved(self, config: ModelConfig) -> Numbers:
        """Count scores, weights and int64 indices of the router, and inputs, inner numbers and results of experts."""
        moe, (one, n) = config.moe, self._expert(config)
        router = moe.experts + (2 * moe.top_k + 2 if moe.normalized else moe.top_k)
        rows = 2 * moe.top_k * config.d_model
        return Numbers(router + 6 * moe.top_k, rows + n * one.saved(config).narrow)

    def saved_selectively(self, config: ModelConfig) -> tuple[Numbers, int]:
        one, n = self._expert(config)
        own, again = one.saved_selectively(config)
        return Numbers(0, n * own.narrow + config.moe.experts), n * again

    def _expert(self, config: ModelConfig) -> tuple[Part, int]:
        """Return the part of an expert, and how many of them compute a token."""
        return FEED_FORWARDS[config.moe.expert], config.moe.top_k + config.moe.shared


@dataclass(frozen=True)
class _Norm(Part):
    """A norm with a weight per number, and possibly a bias."""

    option: str = "norm"
    n_statistics: int = 1
    """Numbers per token that it saves beside its input."""
    has_bias: bool = False

    def vectors(self, config: ModelConfig) -> int:
        return 2 * config.d_model if self.has_bias and config.norm_bias else config.d_model

    def saved(self, config: ModelConfig) -> Numbers:
        """Count its input, in float32, and its statistics."""
        return Numbers(config.d_model + self.n_statistics, 0)


_MODEL, _NETWORKS = "bytemill.lm.model", "bytemill.lm.feed_forwards"
_ATTENTION = f"{_MODEL}:MultiHeadSelfAttention"
MIXERS: dict[str, Mixer] = {
    "attention": _Attention(_ATTENTION, in_core=True),
    "full": _FullAttention(_ATTENTION, in_core=True),
    "window": _WindowAttention(_ATTENTION, in_core=True, example=":512"),
    "values": _ValueAttention("bytemill.lm.mixers.values:ValueAttention"),
    "mla": _OfModule("bytemill.lm.mixers.mla:LatentAttention", options=MLAConfig.keys("mla")),
    "linear": _OfModule("bytemill.lm.mixers.linear:LinearAttention", options=LinearConfig.keys("linear")),
    "delta": _OfModule("bytemill.lm.mixers.delta:GatedDelta", options=DeltaConfig.keys("delta")),
    "mamba": _OfModule("bytemill.lm.mixers.mamba:Mamba2", options=MambaConfig.keys("mamba")),
    "hyena": _OfModule(
        "bytemill.lm.mixers.hyena:Hyena", options=HyenaConfig.keys("hyena"), keeps_documents=False
    ),
}
"""Mixers by name. `attention` is full, or has the window `attention.sliding_window`."""
FEED_FORWARDS: dict[FeedForwardKind, Part] = {
    "swiglu": _FeedForward(f"{_MODEL}:SwiGLU", in_core=True, n_matrices=3),
    "geglu": _FeedForward(f"{_NETWORKS}.geglu:GeGLU", n_matrices=3, n_more=1),
    "clamped_swiglu": _FeedForward(f"{_NETWORKS}.clamped_swiglu:ClampedSwiGLU", n_matrices=3, n_more=4),
    "gelu": _FeedForward(f"{_MODEL}:FeedForward", in_core=True),
    "gelu_exact": _FeedForward(f"{_MODEL}:FeedForward", in_core=True),
    "relu": _FeedForward(f"{_MODEL}:FeedForward", in_core=True),
    "relu2": _FeedForward(f"{_MODEL}:FeedForward", in_core=True),
    "moe": _Experts(f"{_NETWORKS}.experts:MixtureOfExperts"),
}
NORMS: dict[Norm, Part] = {
    "rms": _Norm(f"{_MODEL}:RMSNorm", in_core=True),
    "layer": _Norm(f"{_MODEL}:LayerNorm", in_core=True, n_statistics=2, has_bias=True),
}
