"""Models of llama.cpp: the shape and the weights in a GGUF file, and files that it loads.

Values of all types are dequantized by the package `gguf`, so weights are those that transformers computes with. What a
file says about a model and is not understood is an error: llama.cpp's architectures have options that change logits.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from bytemill.errors import CheckpointError, ModelConfigError, TokenizerFileError
from bytemill.formats.gguf import add_tokenizer
from bytemill.formats.gguf_metadata import TensorInfo, read_tensor_infos
from bytemill.lm.interchange.architectures import check_supported
from bytemill.lm.model_config import AttentionConfig, ModelConfig, RopeConfig
from bytemill.lm.quantization import quantize
from bytemill.lm.rotary_scaling import llama3_frequencies, rotary_frequencies
from bytemill.lm.training.saved_model import ModelFolder
from bytemill.system.atomic_files import make_folder, output_errors
from bytemill.system.extras import import_library

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from bytemill.formats.gguf_metadata import Value
    from bytemill.lm.interchange.architectures import ModelToExport, OnProgress
    from bytemill.lm.interchange.entries import Entry, Layout
    from bytemill.lm.quantization import Bits


_LAYOUTS: dict[str, Layout] = {
    "gpt2": "gguf-gpt2",
    "llama": "gguf-llama",
    "qwen2": "gguf-qwen",
    "qwen3": "gguf-qwen",
}
_FACTORS = "rope_freqs.weight"
"""By these, llama.cpp divides the frequencies of the rotary embedding."""
_SIZES = {
    "context_length": "context_length",
    "embedding_length": "d_model",
    "block_count": "num_layers",
    "feed_forward_length": "d_ff",
    "attention.head_count": "num_heads",
}
"""Name of a key after the architecture -> setting of the model."""
_OPTIONAL = {
    "gpt2": ("attention.layer_norm_epsilon", "attention.head_count_kv"),
    "llama": (
        *(
            "attention.head_count_kv",
            "attention.key_length",
            "attention.value_length",
            "rope.dimension_count",
        ),
        *("attention.layer_norm_rms_epsilon", "rope.freq_base", "rope.scaling.type", "rope.scaling.factor"),
    ),
}
"""Further keys that are read; llama's also for the other architectures."""
_WITHOUT_EFFECT: dict[str, tuple[Any, ...]] = {
    "vocab_size": (),
    "rope.scaling.finetuned": (),
    "rope.scaling.original_context_length": (),
    "tensor_data_layout": (),
    "expert_count": (0,),
    "expert_used_count": (0,),
    "attention.causal": (True,),
    "use_parallel_residual": (False,),
}
"""Keys that change nothing with these values; () stands for all."""


class _Settings:
    """The keys of a file that describe its model, and not the tokenizer."""

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and not key.startswith(("tokenizer.", "bytemill."))


@dataclass(frozen=True)
class GgufModel:
    """A model in a GGUF file."""

    path: Path
    kind: str
    """Architecture, program and types of the weights, for people."""
    layout: Layout
    config: ModelConfig
    tensors: Mapping[str, TensorInfo]

    def read(self, name: str) -> Tensor:
        """Return a tensor in float32.

        Raises:
            CheckpointError: The file is truncated, or has a type of values that `gguf` does not know.
            MissingExtraError: The package `gguf` is not installed.
        """
        values = _dequantized(self.path, name, self.tensors[name])
        return torch.from_numpy(values)  # pyright: ignore[reportUnknownMemberType]


def read_gguf(path: Path) -> GgufModel:
    """Read what a GGUF file says of its model.

    Raises:
        CheckpointError: The file is damaged, or cannot be read.
        ModelConfigError: The architecture is unknown, or has an option that this package does not have.
        MissingExtraError: The package `gguf` is not installed.
    """
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            values, tensors = read_tensor_infos(file, size, str(path), _Settings())
    except TokenizerFileError as error:
        raise CheckpointError(str(error), hint=error.hint) from error
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}") from error
    architecture = values.get("general.architecture")
    if not isinstance(architecture, str) or architecture not in _LAYOUTS:
        raise ModelConfigError(
            f"{path}: general.architecture is {architecture!r}, which cannot be imported",
            hint=f"import one of {', '.join(_LAYOUTS)}",
        )
    if values.get("general.type", "model") != "model":
        raise ModelConfigError(f"{path}: general.type is {values['general.type']!r}, and not a model")
    if values.get("split.count", 0) not in (0, 1):
        raise CheckpointError(
            f"{path} is one of {values['split.count']} files of a model",
            hint="join them with llama-gguf-split of llama.cpp",
        )
    gguf = import_library("gguf", "importing GGUF")
    known = {int(kind): kind.name for kind in gguf.GGMLQuantizationType}
    matrices = {known.get(info.kind, str(info.kind)) for info in tensors.values() if len(info.shape) > 1}
    config = _read_config(path, architecture, values, tensors)
    kept = {name: info for name, info in tensors.items() if name != _FACTORS}
    kind = f"{architecture} of llama.cpp ({', '.join(sorted(matrices))})"
    return GgufModel(path, kind, _LAYOUTS[architecture], config, kept)


def _read_config(
    path: Path, architecture: str, values: Mapping[str, Value], tensors: Mapping[str, TensorInfo]
) -> ModelConfig:
    own = {
        key.removeprefix(f"{architecture}."): value
        for key, value in values.items()
        if key.startswith(f"{architecture}.")
    }
    optional = _OPTIONAL["gpt2" if architecture == "gpt2" else "llama"]
    for name, value in own.items():
        allowed = _WITHOUT_EFFECT.get(name)
        if (
            name not in _SIZES
            and name not in optional
            and (allowed is None or (allowed and value not in allowed))
        ):
            raise ModelConfigError(
                f"{path}: {architecture}.{name} is {value!r}, which bytemill does not have"
            )

    def number(name: str, default: float | None = None) -> Any:
        value = own.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            shown = "missing" if value is None else f"{value!r}, not a number"
            raise ModelConfigError(f"{path}: {architecture}.{name} is {shown}")
        # Numbers are float32; this is the shortest that is the same one.
        return value if isinstance(value, int) else float(str(np.float32(value)))

    embeddings = tensors.get("token_embd.weight")
    if embeddings is None:
        raise CheckpointError(
            f"{path} has no tensor token_embd.weight", hint="name a file with a whole model"
        )
    common: dict[str, Any] = {
        **{setting: number(name) for name, setting in _SIZES.items()},
        "vocab_size": embeddings.shape[0],
        "tied_embeddings": "output.weight" not in tensors,
    }
    if architecture == "gpt2":
        return ModelConfig(
            **common,
            norm="layer",
            norm_eps=number("attention.layer_norm_epsilon"),
            position="learned",
            feed_forward="gelu",
            bias=True,
            initialization="gpt2",
        )
    heads, width = common["num_heads"], common["d_model"]
    d_head = number("attention.key_length", width // max(heads, 1))
    for name in ("attention.value_length", "rope.dimension_count"):
        if number(name, d_head) != d_head:
            raise ModelConfigError(
                f"{path}: {architecture}.{name} is {own[name]!r}, but heads have a width of {d_head}: bytemill has one "
                "width of queries, keys and values, and rotates all of it"
            )
    kv_heads = number("attention.head_count_kv", heads)
    has_bias = architecture == "llama" and "blk.0.ffn_gate.bias" in tensors
    theta, factor = number("rope.freq_base", 10_000.0), _linear_factor(path, architecture, own)
    scaling: dict[str, Any] | None = {} if factor == 1 else {"scaling": "linear", "factor": factor}
    if _FACTORS in tensors:
        factors = _dequantized(path, _FACTORS, tensors[_FACTORS]).astype(np.float64)
        if np.any(factors != 1):
            scaling = _llama3_scaling(factors, theta, d_head) if factor == 1 else None
    if scaling is None:
        raise ModelConfigError(
            f"{path}: {_FACTORS} has other factors than the scaling of Llama 3, which bytemill does not have"
        )
    return ModelConfig(
        **common,
        norm_eps=number("attention.layer_norm_rms_epsilon"),
        bias=has_bias,
        attention=AttentionConfig(
            num_kv_heads=kv_heads if kv_heads != heads else None,
            head_dim=d_head if d_head * heads != width else None,
            qkv_bias=not has_bias and "blk.0.attn_q.bias" in tensors,
            qk_norm=architecture == "qwen3",
        ),
        rope=RopeConfig(theta=theta, **scaling),
    )


def _linear_factor(path: Path, architecture: str, own: Mapping[str, Value]) -> float:
    """Return the factor by which all wavelengths are lengthened. Raises ModelConfigError for another scaling."""
    kind, factor = own.get("rope.scaling.type", "none"), own.get("rope.scaling.factor", 1.0)
    if kind == "none":
        return 1.0
    if kind != "linear" or isinstance(factor, bool) or not isinstance(factor, int | float):
        raise ModelConfigError(
            f"{path}: {architecture}.rope.scaling.type is {kind!r} with the factor {factor!r}, which bytemill does not "
            "have"
        )
    return float(factor)


def _llama3_scaling(factors: np.ndarray, theta: float, d_head: int) -> dict[str, Any] | None:
    """Return the settings of Llama 3's scaling that has these factors; None if it is another one.

    A file has no settings of the scaling but its result. All published models have the frequency factors 1 and 4.
    """
    frequencies, largest = rotary_frequencies(theta, d_head), float(factors.max())
    for context in (8192, *(2**power for power in range(4, 21))):
        scaled = llama3_frequencies(frequencies, largest, 1.0, 4.0, context)
        expected = (frequencies / scaled).numpy()
        if factors.shape == expected.shape and np.allclose(factors, expected, rtol=1e-5, atol=0):
            return {"scaling": "llama3", "factor": largest, "original_context": context}
    return None


def _dequantized(path: Path, name: str, info: TensorInfo) -> np.ndarray:
    gguf = import_library("gguf", "importing GGUF")
    try:
        kind = gguf.GGMLQuantizationType(info.kind)
        n_block, n_bytes = gguf.GGML_QUANT_SIZES[kind]
        blocks, left = divmod(info.shape[-1] if info.shape else 1, n_block)
        rows = (math.prod(info.shape[:-1]), blocks * n_bytes)
        # Not a memory map: a file that is cut while it is read would end the process.
        data = np.fromfile(path, np.uint8, math.prod(rows), offset=info.offset)
        if left or len(data) != math.prod(rows):
            problem = f"rows are not whole blocks of {n_block} values" if left else "the file is truncated"
            raise CheckpointError(
                f"{path}: cannot read the tensor {name}: {problem}", hint="download or write the file again"
            )
        return gguf.quants.dequantize(data.reshape(rows), kind).reshape(info.shape)
    except (ValueError, NotImplementedError, KeyError, OSError, OverflowError) as error:
        raise CheckpointError(f"{path}: cannot read the tensor {name}: {error}") from error


_FILE_TYPES = {torch.float32: "ALL_F32", torch.float16: "MOSTLY_F16", torch.bfloat16: "MOSTLY_BF16"}
_TENSOR_TYPES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}


def write_gguf(
    model: ModelToExport,
    file: Path,
    *,
    name: str,
    dtype: torch.dtype,
    bits: Bits | None = None,
    progress: OnProgress,
) -> str:
    """Write metadata, tokenizer and tensors; return the architecture.

    Vectors and position embeddings stay float32, as llama.cpp expects.

    Args:
        model: The model.
        file: The file.
        name: Name of the model in the metadata.
        dtype: Type of the stored matrices.
        bits: Quantize them, to q8_0 or q4_0, instead.
        progress: Called with the bytes of weights that are converted, and their total; then they are written.

    Raises:
        ModelConfigError: No architecture of llama.cpp has the options of the model.
        CheckpointError: The model has no tokenizer.
        TokenizerError: GGUF cannot represent the tokenizer.
        MissingExtraError: The package `gguf` is not installed.
        OutputError: The file cannot be written.
    """
    config = model.saved.config.model
    architecture = check_supported(config, gguf=True)
    if model.tokenizer is None:
        raise CheckpointError(
            f"{model.saved.path} has no tokenizer, which a GGUF file needs",
            hint="import the model again with --tokenizer TOKENIZER",
        )
    gguf = import_library("gguf", "writing GGUF")
    make_folder(file.parent)
    # The library opens its file by name and leaves a partial file behind if it fails.
    draft = file.with_name(f".{file.name}.tmp")
    with output_errors(file):
        try:
            writer = gguf.GGUFWriter(draft, architecture)
            writer.add_name(name)
            file_type = _FILE_TYPES[dtype] if bits is None else f"MOSTLY_Q{bits}_0"
            writer.add_file_type(int(gguf.LlamaFileType[file_type]))
            _add_shape(writer, architecture, config)
            add_tokenizer(
                writer,
                model.tokenizer.to_spec(),
                bos_token=model.ends.bos,
                eos_token=model.ends.eos,
                turn_token=model.ends.turn,
                adds_bos=model.ends.adds_bos,
                n_ids=config.vocab_size,
            )
            _add_tensors(writer, gguf, architecture, model, dtype=dtype, bits=bits, progress=progress)
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_tensors_to_file()
            writer.close()
            draft.replace(file)
        finally:
            draft.unlink(missing_ok=True)
    return architecture


def _add_shape(writer: Any, architecture: str, config: ModelConfig) -> None:
    writer.add_vocab_size(config.vocab_size)
    writer.add_context_length(config.context_length)
    writer.add_embedding_length(config.d_model)
    writer.add_block_count(config.num_layers)
    writer.add_feed_forward_length(config.d_ff)
    writer.add_head_count(config.num_heads)
    if architecture == "gpt2":
        writer.add_layer_norm_eps(config.norm_eps)
        return
    writer.add_head_count_kv(config.n_kv_heads)
    writer.add_key_length(config.d_head)
    writer.add_value_length(config.d_head)
    writer.add_layer_norm_rms_eps(config.norm_eps)
    writer.add_rope_dimension_count(config.d_head)
    writer.add_rope_freq_base(config.rope.theta)
    if config.rope.scaling == "linear":
        writer.add_string(f"{architecture}.rope.scaling.type", "linear")
        writer.add_rope_scaling_factor(config.rope.factor)


def _add_tensors(
    writer: Any,
    gguf: Any,
    architecture: str,
    model: ModelToExport,
    *,
    dtype: torch.dtype,
    bits: Bits | None,
    progress: OnProgress,
) -> None:
    kind = gguf.GGMLQuantizationType[_TENSOR_TYPES[dtype] if bits is None else f"Q{bits}_0"]
    weights = model.saved.weights
    codes = weights.codes() if isinstance(weights, ModelFolder) and weights.bits == bits else {}
    entries, shapes = model.entries(_LAYOUTS[architecture], architecture), model.shapes(architecture)
    sizes = [torch.Size(entry.shape(shapes)).numel() * dtype.itemsize for entry in entries]
    n_done = 0
    for entry, size in zip(entries, sizes, strict=True):
        n_done += size
        progress(n_done, sum(sizes))
        tensor = model.tensor(entry).float().numpy()
        if (
            tensor.ndim < 2
            or entry.theirs.startswith("position_embd")
            or (dtype == torch.float32 and bits is None)
        ):
            writer.add_tensor(entry.theirs, tensor)
        elif bits is not None:
            blocks = _quantized(entry, tensor, bits, codes)
            writer.add_tensor(entry.theirs, blocks, raw_dtype=kind)
        else:
            writer.add_tensor(entry.theirs, gguf.quants.quantize(tensor, kind), raw_dtype=kind)
    config = model.saved.config.model
    if config.rope.scaling == "llama3":
        frequencies = rotary_frequencies(config.rope.theta, config.d_head)
        scaled = llama3_frequencies(
            frequencies,
            config.rope.factor,
            config.rope.low_freq_factor,
            config.rope.high_freq_factor,
            config.rope.original_context,
        )
        # llama.cpp divides the frequencies by these factors.
        writer.add_tensor("rope_freqs.weight", (frequencies / scaled).float().numpy())


def _quantized(
    entry: Entry, tensor: np.ndarray, bits: Bits, stored: Mapping[str, tuple[Tensor, Tensor]]
) -> np.ndarray:
    """Return the blocks of each row, scale before codes, in bytes; of a quantized model they have its codes."""
    if all(name in stored for name in entry.ours):
        # The other format has other rows, and the same ones are the codes' and the scales'.
        codes, scales = (
            entry.to_theirs({name: stored[name][part] for name in entry.ours}) for part in (0, 1)
        )
    else:
        codes, scales = quantize(torch.from_numpy(tensor), bits)  # pyright: ignore[reportUnknownMemberType]
    blocks = (len(codes), scales.shape[1], -1)
    joined = torch.cat(
        [part.contiguous().view(torch.uint8).reshape(blocks) for part in (scales, codes)], dim=-1
    )
    return joined.flatten(1).numpy()
