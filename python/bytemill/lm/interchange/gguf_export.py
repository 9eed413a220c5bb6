"""Export a model as a GGUF file, which llama.cpp loads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from bytemill.errors import CheckpointError
from bytemill.formats.gguf import add_tokenizer
from bytemill.lm.interchange.architectures import check_supported
from bytemill.lm.model import llama3_frequencies, rotary_frequencies
from bytemill.system.atomic_files import make_folder, output_errors
from bytemill.system.extras import import_library

if TYPE_CHECKING:
    from pathlib import Path

    from bytemill.lm.interchange.exported_tensors import ModelToExport, OnProgress
    from bytemill.lm.interchange.tensor_map import Layout
    from bytemill.lm.model_config import ModelConfig

_LAYOUTS: dict[str, Layout] = {
    "gpt2": "gguf-gpt2",
    "llama": "gguf-llama",
    "qwen2": "gguf-qwen",
    "qwen3": "gguf-qwen",
}
_FILE_TYPES = {torch.float32: "ALL_F32", torch.float16: "MOSTLY_F16", torch.bfloat16: "MOSTLY_BF16"}
_TENSOR_TYPES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}


def write_gguf(
    model: ModelToExport, file: Path, *, name: str, dtype: torch.dtype, progress: OnProgress
) -> str:
    """Write metadata, tokenizer and tensors; return the architecture.

    Vectors and position embeddings stay float32, as llama.cpp expects.

    Args:
        model: The model.
        file: The file.
        name: Name of the model in the metadata.
        dtype: Type of the stored matrices.
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
            writer.add_file_type(int(gguf.LlamaFileType[_FILE_TYPES[dtype]]))
            _add_shape(writer, architecture, config)
            add_tokenizer(
                writer,
                model.tokenizer.to_spec(),
                bos_token=model.ends.bos,
                eos_token=model.ends.eos,
                adds_bos=model.ends.adds_bos,
                n_ids=config.vocab_size,
            )
            _add_tensors(writer, gguf, architecture, model, dtype=dtype, progress=progress)
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
    writer.add_rope_freq_base(config.rope_theta)
    if config.rope_scaling == "linear":
        writer.add_string(f"{architecture}.rope.scaling.type", "linear")
        writer.add_rope_scaling_factor(config.rope_factor)


def _add_tensors(
    writer: Any,
    gguf: Any,
    architecture: str,
    model: ModelToExport,
    *,
    dtype: torch.dtype,
    progress: OnProgress,
) -> None:
    kind = gguf.GGMLQuantizationType[_TENSOR_TYPES[dtype]]
    entries, shapes = model.entries(_LAYOUTS[architecture], architecture), model.shapes(architecture)
    sizes = [torch.Size(entry.shape(shapes)).numel() * dtype.itemsize for entry in entries]
    n_done = 0
    for entry, size in zip(entries, sizes, strict=True):
        n_done += size
        progress(n_done, sum(sizes))
        tensor = model.tensor(entry).float().numpy()
        if tensor.ndim < 2 or entry.theirs.startswith("position_embd") or dtype == torch.float32:
            writer.add_tensor(entry.theirs, tensor)
        else:
            writer.add_tensor(entry.theirs, gguf.quants.quantize(tensor, kind), raw_dtype=kind)
    config = model.saved.config.model
    if config.rope_scaling == "llama3":
        frequencies = rotary_frequencies(config.rope_theta, config.d_head)
        scaled = llama3_frequencies(
            frequencies,
            config.rope_factor,
            config.rope_low_freq_factor,
            config.rope_high_freq_factor,
            config.rope_original_context,
        )
        # llama.cpp divides the frequencies by these factors.
        writer.add_tensor("rope_freqs.weight", (frequencies / scaled).float().numpy())
