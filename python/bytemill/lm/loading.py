"""Load a trained model from its run, to generate text or evaluate it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from bytemill.errors import CheckpointError
from bytemill.lm.device import memory_errors, pick_device
from bytemill.lm.kernels.linear import stored_by_columns
from bytemill.lm.model import TransformerLM
from bytemill.lm.training.config_sources import train_command
from bytemill.lm.training.run_checkpoint import MANIFEST, read_checkpoint
from bytemill.lm.training.run_folder import Loaded, RunFolder
from bytemill.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    import os

    from bytemill.lm.training.config import TrainConfig

WeightsName = Literal["auto", "average", "trained"]


@dataclass(frozen=True)
class TrainedModel:
    """A trained model with its tokenizer and settings."""

    model: TransformerLM
    """In evaluation mode."""
    tokenizer: Tokenizer
    config: TrainConfig
    step: int
    path: Path
    """The checkpoint folder."""
    refused: list[str]
    """Newer checkpoints that were damaged."""


def load_trained(
    path: str | os.PathLike[str], device: str = "auto", weights: WeightsName = "auto"
) -> TrainedModel:
    """Load a trained model from its weights; no optimizer state is read.

    Args:
        path: Run folder, of which the newest intact checkpoint is used, or one of its checkpoints.
        device: Device: auto, cpu, cuda, cuda:N or mps.
        weights: "trained", their moving "average", or "auto": the average if the run kept one.

    Raises:
        CheckpointError: There is no intact checkpoint, or not the tokenizer it was trained with.
        NotEnoughMemoryError: The model does not fit into memory.
    """
    path = Path(path)
    if (path / MANIFEST).exists():
        folder, found = RunFolder(path.parent.parent), Loaded(read_checkpoint(path), [])
    else:
        folder = RunFolder(path)
        found = folder.load_newest(weights_only=True)
    if found is None:
        raise CheckpointError(
            f"there is no checkpoint in {path}" if path.exists() else f"there is no folder {path}",
            hint=f"name a run folder, or train a model: {train_command(path)}",
        )
    checkpoint = found.checkpoint
    if not folder.tokenizer.exists():
        raise CheckpointError(f"{folder.tokenizer} is missing", hint="restore the tokenizer of the run")
    tokenizer = Tokenizer.load(folder.tokenizer)
    if tokenizer.fingerprint != checkpoint.fingerprint:
        raise CheckpointError(
            f"{folder.tokenizer} is not the tokenizer that the model was trained with",
            hint="restore the tokenizer of the run",
        )
    with memory_errors("close other programs, or choose another --device"):
        model = TransformerLM(checkpoint.config.model, seed=0)
        average = checkpoint.has_average if weights == "auto" else weights == "average"
        checkpoint.load_weights(model, average=average)
        model = model.to(pick_device(device)).eval().use_kernels("auto")
        if model.lm_head.weight.device.type == "cpu":
            for matrix in (parameter for parameter in model.parameters() if parameter.ndim == 2):
                matrix.data = stored_by_columns(matrix.data)
    return TrainedModel(model, tokenizer, checkpoint.config, checkpoint.step, checkpoint.path, found.refused)
