"""Load a trained or imported model, to generate text or evaluate it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bytemill.lm.batches import JoinedShards
from bytemill.lm.device import memory_errors, pick_device
from bytemill.lm.model import TransformerLM
from bytemill.lm.training.data import document_mask
from bytemill.lm.training.saved_model import WeightsName, find_saved_model

if TYPE_CHECKING:
    import os
    from pathlib import Path

    from bytemill.lm.kernels.names import KernelName
    from bytemill.lm.packing import DocumentMask
    from bytemill.lm.training.config import TrainConfig
    from bytemill.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True)
class TrainedModel:
    """A trained model with its tokenizer and settings."""

    model: TransformerLM
    """In evaluation mode."""
    tokenizer: Tokenizer
    config: TrainConfig
    step: int
    path: Path
    """The checkpoint folder, or the folder of an imported model."""
    refused: list[str]
    """Newer checkpoints that were damaged."""
    bos_id: int | None = None
    """Id of the special token at the start of every training document, which prompts and scored texts follow."""

    def documents(self, folder: str | os.PathLike[str] | None = None) -> DocumentMask | None:
        """Return how documents were divided in training; None if tokens attend across them.

        Args:
            folder: Shards to evaluate on, which may have a separator of their own; by default it is <|endoftext|>.

        Raises:
            RunConfigError: There is no separator.
            ShardError: The shards are of another tokenizer.
        """
        if not self.config.training.document_mask:
            return None
        shards = None if folder is None else JoinedShards([folder], self.tokenizer.fingerprint)
        return document_mask(self.config, shards, self.tokenizer, "training.document_mask")


def load_trained(
    path: str | os.PathLike[str],
    device: str = "auto",
    weights: WeightsName = "auto",
    kernels: KernelName = "auto",
) -> TrainedModel:
    """Load a trained model from its weights; no optimizer state is read.

    Args:
        path: Run folder, of which the newest intact checkpoint is used, one of its checkpoints, or a folder made by
            `bytemill lm import`.
        device: Device: auto, cpu, cuda, cuda:N or mps.
        weights: "trained", their moving "average", or "auto": the average if the run kept one.
        kernels: Implementation, as in `training.kernels`.

    Raises:
        CheckpointError: There is no intact checkpoint, or not the tokenizer it was trained with.
        NotEnoughMemoryError: The model does not fit into memory.
    """
    saved = find_saved_model(path)
    tokenizer = saved.tokenizer()
    with memory_errors("close other programs, or choose another --device"):
        model = TransformerLM(saved.config.model, seed=0)
        saved.load_weights(model, weights)
        model = model.to(pick_device(device)).eval().use_kernels(kernels)
    return TrainedModel(model, tokenizer, saved.config, saved.step, saved.path, saved.refused, saved.bos_id)
