"""Find the weights that training, generation, evaluation and export start from."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from bytemill.errors import CheckpointError
from bytemill.lm.model_folder import TOKENIZER, ModelFolder, is_model_folder, read_model_folder
from bytemill.lm.training.config import TrainConfig
from bytemill.lm.training.config_sources import train_command
from bytemill.lm.training.run_checkpoint import MANIFEST, RunCheckpoint, read_checkpoint
from bytemill.lm.training.run_folder import RunFolder
from bytemill.lm.training.stored_run import RUN_NAME
from bytemill.storage import exists, local_input, url_of
from bytemill.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    import os

    from torch.nn import Module

WeightsName = Literal["auto", "average", "trained"]


@dataclass(frozen=True)
class SavedModel:
    """Weights on disk, with what belongs to them."""

    weights: RunCheckpoint | ModelFolder
    config: TrainConfig
    """Of an imported model, only the shape of the model is meaningful."""
    step: int
    """Completed steps; 0 for an imported model."""
    path: Path
    """Checkpoint folder or model folder."""
    tokenizer_path: Path
    fingerprint: str | None
    """Fingerprint of the tokenizer; None if the model was imported without one."""
    refused: list[str] = field(default_factory=list[str])
    """Newer checkpoints that were damaged."""
    separator: int | None = None
    """Id of the token between documents in the training data, if there was one."""

    @property
    def bos_id(self) -> int | None:
        """Id of the special token at the start of every training document."""
        return self.weights.bos_id

    def load_weights(self, model: Module, name: WeightsName = "auto") -> None:
        """Load the weights into `model`.

        Args:
            model: A model of the same shape.
            name: "trained", their moving "average", or "auto": the average if the run kept one.

        Raises:
            CheckpointError: The weights are missing, damaged or of another model.
        """
        if isinstance(self.weights, RunCheckpoint):
            average = self.weights.has_average if name == "auto" else name == "average"
            self.weights.load_weights(model, average=average)
        elif name == "average":
            raise CheckpointError(
                f"{self.path} is an imported model and has no moving average of the weights",
                hint="use --weights auto",
            )
        else:
            self.weights.load_weights(model)

    def tokenizer(self) -> Tokenizer:
        """Load the tokenizer. Raises CheckpointError if it is missing or another one."""
        if self.fingerprint is None:
            raise CheckpointError(
                f"{self.path} has no tokenizer", hint="import the model again with --tokenizer TOKENIZER"
            )
        if not self.tokenizer_path.exists():
            raise CheckpointError(
                f"{self.tokenizer_path} is missing", hint="restore the tokenizer of the run"
            )
        tokenizer = Tokenizer.load(self.tokenizer_path)
        if tokenizer.fingerprint != self.fingerprint:
            raise CheckpointError(
                f"{self.tokenizer_path} is not the tokenizer that the model was trained with",
                hint="restore the tokenizer of the run",
            )
        return tokenizer


def find_saved_model(path: str | os.PathLike[str]) -> SavedModel:
    """Find a trained or imported model; its weights are not loaded yet.

    Args:
        path: Run folder, of which the newest intact checkpoint is used, one of its checkpoints, or a folder made by
            `bytemill lm import`; or the URL of one in an object store.

    Raises:
        CheckpointError: There is no intact checkpoint and no imported model.
    """
    path = _local(path)
    if is_model_folder(path):
        folder = read_model_folder(path)
        config = TrainConfig(model=folder.model)
        return SavedModel(folder, config, 0, path, path / TOKENIZER, folder.fingerprint)
    refused: list[str] = []
    if (path / MANIFEST).exists():
        run, checkpoint = RunFolder(path.parent.parent), read_checkpoint(path)
        checkpoint.verify(weights_only=True)
    else:
        run = RunFolder(path)
        found = run.load_newest(weights_only=True)
        if found is None:
            raise _nothing_in(path)
        checkpoint, refused = found.checkpoint, found.refused
    return SavedModel(
        checkpoint,
        checkpoint.config,
        checkpoint.step,
        checkpoint.path,
        run.tokenizer,
        checkpoint.fingerprint,
        refused,
        checkpoint.separator,
    )


def _local(path: str | os.PathLike[str]) -> Path:
    """Return a folder of this machine: the path, or a copy of what a URL names."""
    url = url_of(path)
    if url is None:
        return Path(path)
    run = RunFolder(url)
    if run.stored is None or not exists(f"{url}/{RUN_NAME}"):
        return local_input(url)
    run.stored.fetch()
    return run.path


def _nothing_in(path: Path) -> CheckpointError:
    if not path.exists():
        return CheckpointError(
            f"there is no folder {path}",
            hint=f"name a run folder, or train a model: {train_command(path)}",
        )
    if (path / "config.json").exists() or path.is_file():
        return CheckpointError(
            f"{path} is neither a run nor an imported model",
            hint=f"import it first: bytemill lm import {shlex.quote(str(path))} -o DIR",
        )
    return CheckpointError(
        f"there is no checkpoint in {path}",
        hint=f"name a run folder, or train a model: {train_command(path)}",
    )
