"""Export a trained or imported model to other programs: as a folder for transformers or a GGUF file for llama.cpp."""

from __future__ import annotations

import fnmatch
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from bytemill._core import __version__
from bytemill.errors import ModelConfigError, OutputError, RunConfigError
from bytemill.lm.checkpoint import open_tensors
from bytemill.lm.interchange.architectures import (
    Ends,
    OnProgress,
    check_supported,
    ends_of,
    no_progress,
    read_model,
)
from bytemill.lm.interchange.gguf import write_gguf
from bytemill.lm.interchange.huggingface import CONFIG_NAME, WEIGHT_FILES, write_folder
from bytemill.lm.training.metrics_log import read_metrics
from bytemill.lm.training.saved_model import check_output, files_in, find_saved_model, locked_output
from bytemill.storage import StoreFolder, exists, local_output, shown, uploaded, url_of
from bytemill.storage.input_check import check_file_is_no_input, check_folder_is_no_input

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from bytemill.lm.interchange.architectures import OnProgress
    from bytemill.lm.quantization import Bits


ExportFormat = Literal["huggingface", "gguf"]
ExportType = Literal["float32", "bfloat16", "float16", "q8_0", "q4_0"]
_BITS: dict[ExportType, Bits] = {"q8_0": 8, "q4_0": 4}


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
        dtype: Type of the stored matrices, which are float32 in the source or quantized; q8_0 and q4_0 are for GGUF,
            and keep the codes of a model that is quantized to as many bits.
        max_shard_bytes: Maximum bytes of weights per file of the format huggingface; a larger tensor has its own file.
        with_tokenizer: Also write the tokenizer, which a GGUF file needs.
        eos_token: The only special token that ends generated text. By default the separator of the training data, else
            the one that the tokenizer's files name, else one with a usual name; with a chat template also the one that
            ends an answer.
        overwrite: Replace existing files of the same names.
        progress: Called with the bytes of weights that are written, and their total.

    Raises:
        CheckpointError: There is no intact checkpoint; for GGUF also: the model has no tokenizer.
        NotFiniteError: The weights are not finite, or not in the type `dtype`.
        ModelConfigError: No architecture of the other program has the options of the model, or none with which it reads
            the tokenizer as it is; or its rows cannot be quantized.
        TokenizerError: The format cannot represent the tokenizer, or `eos_token` is none of its special tokens.
        MissingExtraError: GGUF needs the package `gguf`.
        OutputError: The output exists, or cannot be written.
        StorageError: The object store cannot be written.
    """
    output = Path(output)
    bits = _BITS.get(dtype)
    wanted: torch.dtype = torch.float32 if bits is not None else getattr(torch, dtype)
    if format is None:
        format = "gguf" if output.suffix == ".gguf" else "huggingface"  # noqa: A001
    is_file = format == "gguf" and output.suffix == ".gguf"
    if bits is not None and format != "gguf":
        raise ModelConfigError(
            f"{dtype} is a type of GGUF files",
            hint="name a file that ends with .gguf, or choose --precision float16",
        )

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
    is_tuned = saved.config.tuning.method != "none"
    ends = (
        Ends()
        if tokenizer is None
        else ends_of(tokenizer, saved.separator, saved.bos_id, eos_token, is_tuned=is_tuned)
    )
    model = read_model(saved, tokenizer, ends, wanted)
    with locked_output(output, is_file=is_file), local_output(output, CONFIG_NAME) as local:
        check()
        if format == "gguf":
            file = local if is_file else local / "model.gguf"
            name = file.stem if is_file else local.resolve().name
            architecture, written = (
                write_gguf(model, file, name=name, dtype=wanted, bits=bits, progress=progress),
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


_SETTINGS = (
    ("vocab_size", "tokens in the vocabulary"),
    ("hidden_size", "width"),
    ("n_embd", "width"),
    ("num_hidden_layers", "layers"),
    ("n_layer", "layers"),
    ("num_attention_heads", "attention heads"),
    ("n_head", "attention heads"),
    ("max_position_embeddings", "context length"),
    ("n_positions", "context length"),
)
"""Names in the configurations of transformers, and what they are."""


def model_card(folder: Path, weights: Sequence[Path], checkpoint: Path, repo: str) -> str:
    """Return the model card of a folder that `export_model` has written, in Markdown with metadata for the hub.

    Args:
        folder: The folder.
        weights: Its files of weights.
        checkpoint: What was exported; the metrics of its run are reported if they are there.
        repo: Name of the repository, for the example.
    """
    config: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    n_parameters = sum(map(_n_parameters, weights))
    rows = [("architecture", ", ".join(config.get("architectures", []))), ("parameters", f"{n_parameters:,}")]
    rows += [(what, f"{config[name]:,}") for name, what in _SETTINGS if name in config]
    return f"""---
library_name: transformers
pipeline_tag: text-generation
tags:
- bytemill
---

# {repo.rpartition("/")[2]}

A language model trained with bytemill {__version__}.

| | |
|---|---|
{_table(rows)}
{_training(checkpoint)}## Use it

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("{repo}")
tok = AutoTokenizer.from_pretrained("{repo}")
```
"""


def _n_parameters(path: Path) -> int:
    with open_tensors(path) as file:
        return sum(math.prod(file.shape(name)) for name in file.names)


def _table(rows: list[tuple[str, str]]) -> str:
    return "".join(f"| {name} | {value} |\n" for name, value in rows)


def _training(checkpoint: Path) -> str:
    """Return what is known of the training; nothing without the metrics of a run."""
    try:
        records = read_metrics(checkpoint.parent.parent / "metrics.jsonl")
    except RunConfigError:
        return ""
    steps = [record for record in records if record.get("kind") == "step"]
    validations = [record for record in records if record.get("kind") == "validation"]
    rows: list[tuple[str, str]] = []
    if steps:
        rows.append(("steps", f"{steps[-1]['step']:,}"))
        if isinstance(n_tokens := steps[-1].get("n_tokens"), int):
            rows.append(("tokens", f"{n_tokens:,}"))
    if validations:
        last = validations[-1]
        for name, what in (
            ("loss", "validation loss"),
            ("bits_per_byte", "bits per byte of validation text"),
        ):
            if isinstance(value := last.get(name), float):
                rows.append((what, f"{value:.4f}"))
    return f"## Training\n\n| | |\n|---|---|\n{_table(rows)}\n" if rows else ""
