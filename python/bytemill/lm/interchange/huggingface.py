"""Models of Hugging Face transformers: the shape that a `config.json` describes, and folders that it loads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from bytemill.errors import ModelConfigError
from bytemill.lm.checkpoint import write_tensors
from bytemill.lm.interchange.architectures import check_supported, with_zero_biases, write_tokenizer
from bytemill.lm.interchange.families import registry
from bytemill.lm.interchange.families.base import Family
from bytemill.lm.interchange.rope import read_rope, readable_context, write_rope
from bytemill.lm.model_config import AttentionConfig, FeedForwardKind, ModelConfig, RopeConfig
from bytemill.system.atomic_files import AtomicFile, make_folder, output_errors, write_json

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from bytemill.formats.spec import TokenizerSpec
    from bytemill.lm.interchange.architectures import ModelToExport, OnProgress
    from bytemill.lm.interchange.entries import Entry


GPT2, LLAMA, MISTRAL, QWEN2, QWEN3 = "gpt2", "llama", "mistral", "qwen2", "qwen3"


_LLAMA_DEFAULTS: dict[str, Any] = {
    "vocab_size": 32_000,
    "max_position_embeddings": 2048,
    "hidden_size": 4096,
    "intermediate_size": 11_008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": None,
    "head_dim": None,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
    "sliding_window": None,
    "use_sliding_window": False,
    "max_window_layers": 28,
    "layer_types": None,
}
_QWEN_DEFAULTS: dict[str, Any] = {
    "vocab_size": 151_936,
    "max_position_embeddings": 32_768,
    "intermediate_size": 22_016,
    "num_key_value_heads": 32,
    "sliding_window": 4096,
}
_LLAMA_REQUIRED: dict[str, tuple[Any, ...]] = {
    "hidden_act": ("silu", "swish"),
    "rope_interleaved": (False,),
    "quantization_config": (None,),
}
FAMILIES = {
    family.model_type: family
    for family in (
        Family(
            GPT2,
            "GPT2LMHeadModel",
            "gpt2",
            "transformer.",
            {},
            {
                "scale_attn_weights": (True,),
                "scale_attn_by_inverse_layer_idx": (False,),
                "add_cross_attention": (False,),
                "quantization_config": (None,),
            },
        ),
        Family(LLAMA, "LlamaForCausalLM", "llama", "model.", {}, _LLAMA_REQUIRED),
        Family(
            MISTRAL,
            "MistralForCausalLM",
            "llama",
            "model.",
            {
                "intermediate_size": 14_336,
                "num_key_value_heads": 8,
                "max_position_embeddings": 131_072,
                "sliding_window": 4096,
            },
            {**_LLAMA_REQUIRED, "layer_types": (None,)},
        ),
        Family(QWEN2, "Qwen2ForCausalLM", "llama", "model.", _QWEN_DEFAULTS, _LLAMA_REQUIRED),
        Family(
            QWEN3,
            "Qwen3ForCausalLM",
            "llama",
            "model.",
            {**_QWEN_DEFAULTS, "head_dim": 128},
            {**_LLAMA_REQUIRED, "attention_bias": (False,)},
        ),
    )
} | registry.FAMILIES
_ACTIVATIONS: dict[str, FeedForwardKind] = {
    "gelu_new": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "gelu": "gelu_exact",
    "relu": "relu",
    "relu2": "relu2",
}
_ACTIVATION_NAMES = {"gelu": "gelu_new", "gelu_exact": "gelu", "relu": "relu", "relu2": "relu2"}


def read_config(document: Mapping[str, Any], location: str) -> tuple[Family, ModelConfig]:
    """Return the family and the shape of the model that a `config.json` describes.

    Args:
        document: Content of the file.
        location: Path of the file, for messages.

    Raises:
        ModelConfigError: The architecture is unknown, or has an option that this package does not have.
    """
    name = document.get("model_type")
    family = FAMILIES.get(name) if isinstance(name, str) else None
    if family is None:
        raise ModelConfigError(
            f"{location}: model_type is {name!r}, an architecture that cannot be imported",
            hint=f"import one of {', '.join(FAMILIES)}",
        )
    for option, allowed in family.required.items():
        if document.get(option, allowed[0]) not in allowed:
            raise _unsupported(location, option, document[option])
    try:
        if family.read is not None:
            return family, family.read({**family.defaults, **document}, location)
        if family.model_type == GPT2:
            return family, _read_gpt2(document, location)
        return family, _read_llama(family, {**_LLAMA_DEFAULTS, **family.defaults, **document}, location)
    except (TypeError, ZeroDivisionError) as error:
        raise ModelConfigError(f"{location}: a size is not a positive number: {error}") from error


def _read_gpt2(document: Mapping[str, Any], location: str) -> ModelConfig:
    activation = document.get("activation_function", "gelu_new")
    if activation not in _ACTIVATIONS:
        raise _unsupported(location, "activation_function", activation)
    width = document.get("n_embd", 768)
    return ModelConfig(
        vocab_size=document.get("vocab_size", 50_257),
        context_length=document.get("n_positions", 1024),
        d_model=width,
        num_layers=document.get("n_layer", 12),
        num_heads=document.get("n_head", 12),
        d_ff=document.get("n_inner") or 4 * width,
        norm="layer",
        norm_eps=document.get("layer_norm_epsilon", 1e-5),
        position="learned",
        feed_forward=_ACTIVATIONS[activation],
        tied_embeddings=document.get("tie_word_embeddings", True),
        bias=True,
        initialization="gpt2",
    )


def _read_llama(family: Family, values: Mapping[str, Any], location: str) -> ModelConfig:
    has_bias = family.model_type == LLAMA and values["attention_bias"]
    if family.model_type == LLAMA and values["attention_bias"] != values["mlp_bias"]:
        option = "attention_bias" if has_bias else "mlp_bias"
        other = "mlp_bias" if has_bias else "attention_bias"
        raise ModelConfigError(
            f"{location}: {option} is true and {other} false: bytemill's linear layers all have a bias, or none, or "
            "those of queries, keys and values alone"
        )
    heads = values["num_attention_heads"]
    kv_heads = values["num_key_value_heads"] or heads
    width = values["head_dim"] or values["hidden_size"] // heads
    rope = read_rope(values, location)
    return ModelConfig(
        vocab_size=values["vocab_size"],
        context_length=readable_context(values, rope),
        d_model=values["hidden_size"],
        num_layers=values["num_hidden_layers"],
        num_heads=heads,
        d_ff=values["intermediate_size"],
        norm_eps=values["rms_norm_eps"],
        tied_embeddings=values["tie_word_embeddings"],
        bias=has_bias,
        attention=AttentionConfig(
            num_kv_heads=kv_heads if kv_heads != heads else None,
            head_dim=width if width * heads != values["hidden_size"] else None,
            qkv_bias=family.model_type == QWEN2,
            qk_norm=family.model_type == QWEN3,
            sliding_window=_window(family, values, location),
        ),
        rope=RopeConfig(**rope),
    )


def _window(family: Family, values: Mapping[str, Any], location: str) -> int | None:
    """Return the sliding window of all layers. Raises ModelConfigError if only some layers have one."""
    window = values["sliding_window"]
    if family.model_type == MISTRAL:
        return window
    n_layers = values["num_hidden_layers"]
    is_used = family.model_type in (QWEN2, QWEN3) and values["use_sliding_window"] and window is not None
    first = values["max_window_layers"] if is_used else n_layers
    kinds = values["layer_types"] or [
        "full_attention" if layer < first else "sliding_attention" for layer in range(n_layers)
    ]
    if not set(kinds) <= {"full_attention", "sliding_attention"}:
        raise _unsupported(location, "layer_types", kinds)
    if "sliding_attention" not in kinds:
        return None
    if "full_attention" in kinds:
        option = "layer_types" if values["layer_types"] else "max_window_layers"
        raise ModelConfigError(
            f"{location}: {option} is {values[option]!r}: only some layers have a sliding window; bytemill has "
            "the same window in all layers"
        )
    return window


def write_config(
    config: ModelConfig, spec: TokenizerSpec | None = None, source: str = ""
) -> tuple[Family, dict[str, Any]]:
    """Return the family that expresses a model exactly, and the content of its `config.json`.

    Args:
        config: Shape of the model.
        spec: Tokenizer that is exported beside it.
        source: What the model was imported from.

    Raises:
        ModelConfigError: No family does; the message names the options that the nearest one lacks.
    """
    family = FAMILIES[check_supported(config, spec, source=source)]
    config = with_zero_biases(config, family.model_type)
    document: dict[str, Any] = {
        "architectures": [family.architecture],
        "model_type": family.model_type,
        "vocab_size": config.vocab_size,
        "tie_word_embeddings": config.tied_embeddings,
    }
    if family.write is not None:
        return family, {**document, **family.write(config)}
    return family, {
        **document,
        **(_write_gpt2(config) if family.model_type == GPT2 else _write_llama(config)),
    }


def _write_gpt2(config: ModelConfig) -> dict[str, Any]:
    return {
        "n_positions": config.context_length,
        "n_embd": config.d_model,
        "n_layer": config.num_layers,
        "n_head": config.num_heads,
        "n_inner": config.d_ff,
        "activation_function": _ACTIVATION_NAMES[config.feed_forward],
        "layer_norm_epsilon": config.norm_eps,
        "embd_pdrop": config.dropout,
        "attn_pdrop": config.dropout,
        "resid_pdrop": config.dropout,
    }


def _write_llama(config: ModelConfig) -> dict[str, Any]:
    return {
        "max_position_embeddings": config.context_length,
        "hidden_size": config.d_model,
        "intermediate_size": config.d_ff,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.n_kv_heads,
        "head_dim": config.d_head,
        "hidden_act": "silu",
        "rms_norm_eps": config.norm_eps,
        **write_rope(config),
        "attention_bias": config.bias,
        "mlp_bias": config.bias,
        "attention_dropout": config.dropout,
        "sliding_window": config.attention.sliding_window,
        "use_sliding_window": config.attention.sliding_window is not None,
        "max_window_layers": 0,
    }


def _unsupported(location: str, option: str, value: Any) -> ModelConfigError:
    return ModelConfigError(f"{location}: {option} is {value!r}, which bytemill does not have")


CONFIG_NAME = "config.json"
"""The file that is written last."""
WEIGHT_FILES = "model*.safetensors*"
"""The files of the weights, as a pattern."""
_INDEX = "model.safetensors.index.json"


def write_folder(
    model: ModelToExport, output: Path, *, max_shard_bytes: int, dtype: torch.dtype, progress: OnProgress
) -> tuple[str, list[Path]]:
    """Write config.json, weights and tokenizer; return the architecture and the files of the weights.

    Args:
        model: The model.
        output: The folder.
        max_shard_bytes: Maximum bytes of weights per file.
        dtype: Type of the stored matrices.
        progress: Called with the bytes of weights that are written, and their total.

    Raises:
        ModelConfigError: No architecture of transformers has the options of the model.
        OutputError: A file cannot be written.
    """
    tokenizer = model.tokenizer
    family, document = write_config(
        model.saved.config.model,
        None if tokenizer is None else tokenizer.to_spec(),
        model.saved.imported_from,
    )
    document["dtype"] = str(dtype).removeprefix("torch.")
    ends = {"bos_token_id": None, "eos_token_id": None} if tokenizer is None else model.ends.ids(tokenizer)
    make_folder(output)
    with output_errors(output):
        for stale in (output / CONFIG_NAME, *output.glob(WEIGHT_FILES)):
            stale.unlink(missing_ok=True)
    entries = model.entries(family.layout, family.model_type)
    named = {_name(entry, family): entry for entry in entries}
    shapes = model.shapes(family.model_type)
    shards = _divided(named, shapes, max_shard_bytes, dtype)
    total = sum(_n_bytes(entry, shapes, dtype) for entry in named.values())
    n_written = 0

    def written(n_bytes: int) -> None:
        nonlocal n_written
        n_written += n_bytes
        progress(n_written, total)

    files: list[Path] = []
    index: dict[str, str] = {}
    for number, names in enumerate(shards, 1):
        is_single = len(shards) == 1
        file = "model.safetensors" if is_single else f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        tensors = {name: model.tensor(named[name]).to(dtype) for name in names}
        with AtomicFile(output / file) as atomic:
            write_tensors(atomic.file, tensors, progress=written)
        files.append(output / file)
        index |= dict.fromkeys(names, file)
    if len(shards) > 1:
        write_json(output / _INDEX, {"metadata": {"total_size": total}, "weight_map": index})
    if tokenizer is not None:
        write_tokenizer(tokenizer, model.ends, output, family.model_type)
        write_json(
            output / "generation_config.json", {key: end for key, end in ends.items() if end is not None}
        )
    write_json(output / CONFIG_NAME, {**document, **ends})
    return family.architecture, files


def _name(entry: Entry, family: Family) -> str:
    return entry.theirs if entry.theirs.startswith(f"{family.head_name}.") else family.prefix + entry.theirs


def _divided(
    named: Mapping[str, Entry],
    shapes: Mapping[str, tuple[int, ...]],
    max_shard_bytes: int,
    dtype: torch.dtype,
) -> list[list[str]]:
    """Divide the tensors into files of at most `max_shard_bytes`; a larger tensor has its own file."""
    shards: list[list[str]] = [[]]
    n_bytes = 0
    for name, entry in named.items():
        size = _n_bytes(entry, shapes, dtype)
        if shards[-1] and n_bytes + size > max_shard_bytes:
            shards.append([])
            n_bytes = 0
        shards[-1].append(name)
        n_bytes += size
    return shards


def _n_bytes(entry: Entry, shapes: Mapping[str, tuple[int, ...]], dtype: torch.dtype) -> int:
    return torch.Size(entry.shape(shapes)).numel() * dtype.itemsize
