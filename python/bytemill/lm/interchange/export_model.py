"""Export a trained or imported model to other programs."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch

from bytemill.errors import OutputError
from bytemill.lm.interchange.exported_tensors import read_model
from bytemill.lm.interchange.expressible import check_supported
from bytemill.lm.interchange.gguf_export import write_gguf
from bytemill.lm.interchange.huggingface_export import CONFIG_NAME, WEIGHT_FILES, write_folder
from bytemill.lm.model_folder import check_output
from bytemill.lm.training.saved_model import find_saved_model
from bytemill.storage import StoreFolder, exists, local_output, shown, uploaded, url_of

if TYPE_CHECKING:
    import os

ExportFormat = Literal["huggingface", "gguf"]
ExportType = Literal["float32", "bfloat16", "float16"]


@dataclass(frozen=True)
class Exported:
    """Result of `export_model`."""

    architecture: str
    """Class of transformers, or architecture of llama.cpp."""
    files: list[Path]
    """Files of the weights."""
    checkpoint: Path
    """What was exported."""
    has_tokenizer: bool
    refused: list[str]
    """Newer checkpoints that were damaged."""


def export_model(
    source: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    format: ExportFormat | None = None,  # noqa: A002
    dtype: ExportType = "float32",
    max_shard_bytes: int = 5_000_000_000,
    overwrite: bool = False,
) -> Exported:
    """Write a model in the format of another program, which then computes the same logits.

    Args:
        source: Run folder, checkpoint or imported model.
        output: Folder of the result; for GGUF also a path that ends with `.gguf`. Or the URL of either.
        format: "huggingface": a folder that `AutoModelForCausalLM.from_pretrained` loads. "gguf": a file for llama.cpp.
            By default "gguf" if `output` ends with `.gguf`, else "huggingface".
        dtype: Type of the stored matrices, which are float32 in the source.
        max_shard_bytes: Maximum bytes of weights per file of the format huggingface; a larger tensor has its own file.
        overwrite: Replace existing files of the same names.

    Raises:
        CheckpointError: There is no intact checkpoint; for GGUF also: the model has no tokenizer.
        NotFiniteError: The weights are not finite, or not in the type `dtype`.
        ModelConfigError: No architecture of the other program has the options of the model.
        TokenizerError: The format cannot represent the tokenizer.
        MissingExtraError: GGUF needs the package `gguf`.
        OutputError: The output exists, or cannot be written.
        StorageError: The object store cannot be written.
    """
    output = Path(output)
    wanted: torch.dtype = getattr(torch, dtype)
    if format is None:
        format = "gguf" if output.suffix == ".gguf" else "huggingface"  # noqa: A001
    is_file = format == "gguf" and output.suffix == ".gguf"
    if is_file and exists(output) and not overwrite:
        raise OutputError(f"{shown(output)} exists", hint="use another name, or add --overwrite")
    store = None if is_file or (url := url_of(output)) is None else StoreFolder(url)
    if not is_file:
        check_output(output, overwrite=overwrite)
    saved = find_saved_model(source)
    if output.resolve() in (saved.path.resolve(), Path(source).resolve()):
        raise OutputError(f"{shown(output)} is the model itself", hint="use another folder")
    check_supported(saved.config.model, gguf=format == "gguf")
    model = read_model(saved, wanted)
    with local_output(output, CONFIG_NAME) as local:
        if format == "gguf":
            file = local if is_file else local / "model.gguf"
            name = file.stem if is_file else local.resolve().name
            architecture, written = write_gguf(model, file, name=name, dtype=wanted), [file]
        else:
            architecture, written = write_folder(model, local, max_shard_bytes=max_shard_bytes, dtype=wanted)
        kept = {file.name for file in written[0].parent.iterdir()}
    if store is not None:  # of the model that was there before
        store.delete(
            name for name in store.list() if fnmatch.fnmatch(name, WEIGHT_FILES) and name not in kept
        )
    files = [uploaded(file, local, output) for file in written]
    return Exported(architecture, files, model.saved.path, model.tokenizer is not None, model.saved.refused)
