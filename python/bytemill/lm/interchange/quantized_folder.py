"""Write a model folder whose weights are quantized."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from bytemill.errors import ModelConfigError
from bytemill.lm.device import memory_errors
from bytemill.lm.model import TransformerLM
from bytemill.lm.quantization import empty_quantized_model, model_tensors, quantize_model
from bytemill.lm.tensors import not_finite
from bytemill.lm.training.saved_model import (
    ModelFolder,
    check_output,
    files_in,
    find_saved_model,
    locked_output,
    write_model_folder,
)
from bytemill.storage import shown
from bytemill.storage.input_check import check_folder_is_no_input

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from bytemill.lm.quantization import Bits


@dataclass(frozen=True)
class Quantized:
    """Result of `quantize_saved_model`."""

    folder: ModelFolder
    n_parameters: int
    bytes_before: int
    """Of the weights in float32."""
    bytes_after: int
    refused: list[str]
    """Newer checkpoints that were damaged."""


def quantize_saved_model(
    source: str | os.PathLike[str],
    output: str | os.PathLike[str],
    bits: Bits,
    *,
    overwrite: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Quantized:
    """Quantize a trained or imported model into a folder that generation, evaluation and export read.

    Args:
        source: Run folder, checkpoint or imported model, in float32.
        output: Folder of the result, or its URL.
        bits: 8 or 4.
        overwrite: Replace the contents of `output`.
        progress: Called with the bytes of weights that are written, and their total.

    Raises:
        CheckpointError: There is no intact checkpoint and no imported model.
        ModelConfigError: It is quantized already, or a width of the model is not a multiple of 32.
        NotFiniteError: The weights are not finite.
        NotEnoughMemoryError: The weights do not fit into memory.
        OutputError: The folder is not empty, or cannot be written.
        StorageError: An object store cannot be read or written.
    """
    source, output = Path(source), Path(output)
    check_output(output, overwrite=overwrite)
    saved = find_saved_model(source)
    check_folder_is_no_input(output, files=[source, *files_in(source), *files_in(saved.path)])
    if saved.bits is not None:
        raise ModelConfigError(
            f"{shown(source)} is quantized to {saved.bits} bits already",
            hint="name the run or the imported model that it was made from",
        )
    empty_quantized_model(saved.config.model, bits, "meta")  # before time is spent
    tokenizer = None if saved.fingerprint is None else saved.tokenizer()
    with memory_errors("close other programs"):
        model = TransformerLM(saved.config.model, seed=0)
        saved.load_weights(model)
        before = list(model.parameters())
        if not all(bool(torch.isfinite(parameter).all()) for parameter in before):
            raise not_finite(model)
        tensors = model_tensors(quantize_model(model, bits))
    origin = saved.weights.source if isinstance(saved.weights, ModelFolder) else f"a run, step {saved.step:,}"
    with locked_output(output):
        check_output(output, overwrite=overwrite)
        folder = write_model_folder(
            output,
            saved.config.model,
            tensors,
            tokenizer,
            source=f"{origin}, quantized to {bits} bits",
            bos_id=saved.bos_id,
            bits=bits,
            progress=progress,
        )
    return Quantized(
        folder,
        sum(parameter.numel() for parameter in before),
        sum(parameter.nbytes for parameter in before),
        sum(tensor.nbytes for tensor in tensors.values()),
        saved.refused,
    )
