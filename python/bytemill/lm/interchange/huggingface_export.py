"""Export a model as a folder that Hugging Face transformers loads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from bytemill.lm.interchange.exported_tokenizer import write_tokenizer
from bytemill.lm.interchange.huggingface_config import write_config
from bytemill.lm.tensor_files import write_tensors
from bytemill.system.atomic_files import AtomicFile, make_folder, output_errors, write_json

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from bytemill.lm.interchange.exported_tensors import ModelToExport, OnProgress
    from bytemill.lm.interchange.tensor_map import Entry

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
        model.saved.config.model, None if tokenizer is None else tokenizer.to_spec()
    )
    document["dtype"] = str(dtype).removeprefix("torch.")
    ends = {"bos_token_id": None, "eos_token_id": None} if tokenizer is None else model.ends.ids(tokenizer)
    make_folder(output)
    with output_errors(output):
        for stale in (output / CONFIG_NAME, *output.glob(WEIGHT_FILES)):
            stale.unlink(missing_ok=True)
    entries = model.entries(family.layout, family.model_type)
    named = {_name(entry, family.prefix): entry for entry in entries}
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


def _name(entry: Entry, prefix: str) -> str:
    return entry.theirs if entry.theirs.startswith("lm_head.") else prefix + entry.theirs


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
