"""Which architecture of other programs has exactly the options of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bytemill.errors import ModelConfigError
from bytemill.lm.interchange.exported_tokenizer import keeps_ids

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bytemill.formats.spec import TokenizerSpec
    from bytemill.lm.model_config import ModelConfig


_NO_OPTIONS: dict[str, tuple[Any, ...]] = {
    "norm_position": ("pre",),
    "logit_soft_cap": (None,),
    "sliding_window": (None,),
    "qk_norm": (False,),
}
_LLAMA: dict[str, tuple[Any, ...]] = {
    "norm": ("rms",),
    "position": ("rotary",),
    "feed_forward": ("swiglu",),
    "rotary_fraction": (1.0,),
    "bias": (False,),
    "qkv_bias": (False,),
    **_NO_OPTIONS,
}
_ANY_WINDOW: dict[str, tuple[Any, ...]] = {"sliding_window": ()}
EXPRESSED: dict[str, dict[str, tuple[Any, ...]]] = {
    "gpt2": {
        "norm": ("layer",),
        "position": ("learned",),
        "feed_forward": ("gelu", "gelu_exact", "relu", "relu2"),
        **_NO_OPTIONS,
    },
    "qwen2": {**_LLAMA, **_ANY_WINDOW, "qkv_bias": (True,)},
    "llama": {**_LLAMA, "bias": (False, True), "qkv_bias": ()},
    "mistral": {**_LLAMA, **_ANY_WINDOW},
    "qwen3": {**_LLAMA, **_ANY_WINDOW, "qk_norm": (True,)},
}
"""Per architecture of transformers the values that it has of each option; () stands for all."""
_LLAMA_CPP_QWEN: dict[str, tuple[Any, ...]] = {"sliding_window": (None,), "rope_scaling": (None, "linear")}
GGUF_EXPRESSED = {
    "gpt2": {**EXPRESSED["gpt2"], "feed_forward": ("gelu",)},
    "qwen2": {**EXPRESSED["qwen2"], **_LLAMA_CPP_QWEN},
    "llama": EXPRESSED["llama"],
    "qwen3": {**EXPRESSED["qwen3"], **_LLAMA_CPP_QWEN},
}
"""The same for llama.cpp."""


def check_supported(config: ModelConfig, spec: TokenizerSpec | None = None, *, gguf: bool = False) -> str:
    """Return the first architecture that expresses a model exactly.

    Args:
        config: Shape of the model.
        spec: Tokenizer that is exported beside it; transformers must give its ids.
        gguf: Ask for an architecture of llama.cpp instead of transformers.

    Raises:
        ModelConfigError: None does; the message names the options that the nearest one lacks.
    """
    table = GGUF_EXPRESSED if gguf else EXPRESSED
    lacking = {name: list(_lacking(name, allowed, config)) for name, allowed in table.items()}
    nearest = min(lacking, key=lambda name: len(lacking[name]))
    if lacking[nearest]:
        program = "llama.cpp" if gguf else "transformers"
        raise ModelConfigError(
            f"no architecture of {program} has the options of this model; the nearest, {nearest}, lacks "
            + ", ".join(lacking[nearest]),
            hint=f"architectures: {', '.join(table)}",
        )
    exact = [name for name, options in lacking.items() if not options]
    if gguf or spec is None:
        return exact[0]
    for name in exact:
        if keeps_ids(name, spec):
            return name
    raise ModelConfigError(
        f"only the architecture {exact[0]} of transformers has the options of this model, and transformers reads every "
        f"tokenizer beside it with the pattern and the normalizer of {exact[0]}, which this tokenizer does not have",
        hint="add --no-tokenizer, and load the tokenizer.json of the model with transformers.PreTrainedTokenizerFast("
        "tokenizer_file=PATH)",
    )


def with_zero_biases(config: ModelConfig, architecture: str) -> ModelConfig:
    """Return the shape of the exported model: with biases that the architecture has and the model does not."""
    if architecture == "gpt2":
        return config.replace(bias=True, norm_bias=True)
    if architecture == "llama" and config.qkv_bias:
        return config.replace(bias=True)
    return config


def _lacking(name: str, allowed: dict[str, tuple[Any, ...]], config: ModelConfig) -> Iterable[str]:
    for option, values in allowed.items():
        value = getattr(config, option)
        if option == "qkv_bias" and config.bias:
            continue  # all linear layers have one
        if values and value not in values:
            yield f"{option} {value!r}"
    yield from config.unknown_options()
    is_divided = config.d_model % config.num_heads == 0
    if name == "gpt2":
        if config.n_kv_heads != config.num_heads:
            yield f"num_kv_heads {config.n_kv_heads} with num_heads {config.num_heads}"
        if config.d_head * config.num_heads != config.d_model:
            yield f"head_dim {config.d_head} with d_model {config.d_model} and num_heads {config.num_heads}"
    elif name == "llama" and not is_divided:
        yield f"d_model {config.d_model} that num_heads {config.num_heads} does not divide"
