"""Export a trained or imported model to other programs."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch

from bytemill.errors import OutputError
from bytemill.lm.interchange.architectures import check_supported
from bytemill.lm.interchange.exported_tensors import OnProgress, no_progress, read_model
from bytemill.lm.interchange.exported_tokenizer import Ends, ends_of
from bytemill.lm.interchange.gguf_export import write_gguf
from bytemill.lm.interchange.huggingface import CONFIG_NAME, WEIGHT_FILES, write_folder
from bytemill.lm.model_folder import check_output, files_in, locked_output
from bytemill.lm.training.saved_model import find_saved_model
from bytemill.storage import StoreFolder, exists, local_output, shown, uploaded, url_of
from bytemill.storage.input_check import check_file_is_no_input, check_folder_is_no_input

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
    eos_token: str | None
    """The token that ends a text; None if the tokenizer has none, or was not exported."""


def export_model(
    source: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    format: ExportFormat | None = None,  # noqa: A002
    dtype: ExportType = "float32",
    max_shard_bytes: int = 5_000_000_000,
    with_tokenizer: bool = True,
    eos_token: str | None = None,
    overwrite: bool = False,
    progress: OnProgress = no_progress,
) -> Exported:
    """Write a model in the format of another program, which then computes the same logits.

    Args:
        source: Run folder, checkpoint or imported model.
        output: Folder of the result; for GGUF also a path that ends with `.gguf`. Or the URL of either.
        format: "huggingface": a folder that `AutoModelForCausalLM.from_pretrained` loads. "gguf": a file for llama.cpp.
            By default "gguf" if `output` ends with `.gguf`, else "huggingface".
        dtype: Type of the stored matrices, which are float32 in the source.
        max_shard_bytes: Maximum bytes of weights per file of the format huggingface; a larger tensor has its own file.
        with_tokenizer: Also write the tokenizer, which a GGUF file needs.
        eos_token: Special token that ends a text. By default the separator of the training data, else the one that the
            tokenizer's files name, else one with a usual name.
        overwrite: Replace existing files of the same names.
        progress: Called with the bytes of weights that are written, and their total.

    Raises:
        CheckpointError: There is no intact checkpoint; for GGUF also: the model has no tokenizer.
        NotFiniteError: The weights are not finite, or not in the type `dtype`.
        ModelConfigError: No architecture of the other program has the options of the model, or none with which it reads
            the tokenizer as it is.
        TokenizerError: The format cannot represent the tokenizer, or `eos_token` is none of its special tokens.
        MissingExtraError: GGUF needs the package `gguf`.
        OutputError: The output exists, or cannot be written.
        StorageError: The object store cannot be written.
    """
    output = Path(output)
    wanted: torch.dtype = getattr(torch, dtype)
    if format is None:
        format = "gguf" if output.suffix == ".gguf" else "huggingface"  # noqa: A001
    is_file = format == "gguf" and output.suffix == ".gguf"

    def check() -> None:
        if not is_file:
            check_output(output, overwrite=overwrite)
        elif exists(output) and not overwrite:
            raise OutputError(f"{shown(output)} exists", hint="use another name, or add --overwrite")

    check()
    store = None if is_file or (url := url_of(output)) is None else StoreFolder(url)
    saved = find_saved_model(source)
    read = [source, *files_in(Path(source)), *files_in(saved.path)]
    if is_file:
        check_file_is_no_input(output, read)
    else:
        check_folder_is_no_input(output, files=read)
    tokenizer = saved.tokenizer() if with_tokenizer and saved.fingerprint is not None else None
    spec = None if tokenizer is None else tokenizer.to_spec()
    check_supported(saved.config.model, spec, gguf=format == "gguf")
    ends = Ends() if tokenizer is None else ends_of(tokenizer, saved.separator, saved.bos_id, eos_token)
    model = read_model(saved, tokenizer, ends, wanted)
    with locked_output(output, is_file=is_file), local_output(output, CONFIG_NAME) as local:
        check()
        if format == "gguf":
            file = local if is_file else local / "model.gguf"
            name = file.stem if is_file else local.resolve().name
            architecture, written = (
                write_gguf(model, file, name=name, dtype=wanted, progress=progress),
                [file],
            )
        else:
            architecture, written = write_folder(
                model, local, max_shard_bytes=max_shard_bytes, dtype=wanted, progress=progress
            )
        kept = {file.name for file in written[0].parent.iterdir()}
    if store is not None:  # of the model that was there before
        store.delete(
            name for name in store.list() if fnmatch.fnmatch(name, WEIGHT_FILES) and name not in kept
        )
    files = [uploaded(file, local, output) for file in written]
    return Exported(architecture, files, saved.path, tokenizer is not None, saved.refused, ends.eos)
