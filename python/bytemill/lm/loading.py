"""A trained model from its run: for generating and evaluating."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bytemill.errors import CheckpointError
from bytemill.lm.checkpoint import load_model_state
from bytemill.lm.device import pick_device
from bytemill.lm.model import TransformerLM
from bytemill.lm.tensor_file import read_state
from bytemill.lm.training.config import config_from_dict
from bytemill.lm.training.run_folder import RunFolder
from bytemill.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    import os

    from bytemill.lm.training.config import TrainConfig


@dataclass(frozen=True)
class TrainedModel:
    """A model with what it was trained with."""

    model: TransformerLM
    """In evaluation mode."""
    tokenizer: Tokenizer
    config: TrainConfig
    step: int
    path: Path
    """The checkpoint."""
    refused: list[str]
    """Newer checkpoints that were damaged."""


def load_trained(path: str | os.PathLike[str], device: str = "auto") -> TrainedModel:
    """The newest checkpoint of a run's folder, or the checkpoint that is named, on `device`.

    Raises `CheckpointError` where there is none, it is damaged, or its tokenizer is not beside it.
    """
    place = Path(path)
    if place.is_dir():
        folder = RunFolder(place)
        found = folder.load_newest()
        if found is None:
            raise CheckpointError(
                f"there is no checkpoint in {place}", hint="give the folder of a run: bytemill lm train"
            )
        file, state, config, refused = found.path, found.state, found.config, found.refused
    else:
        folder = RunFolder(place.parent.parent)
        state = read_state(place)
        file, refused = place, list[str]()
        try:
            config = config_from_dict(state["config"])
        except KeyError as error:
            raise CheckpointError(f"{place} is not of a run: it has no {error}") from error
    if not folder.tokenizer.exists():
        raise CheckpointError(f"{folder.tokenizer} is missing", hint="put the run's tokenizer back there")
    tokenizer = Tokenizer.load(folder.tokenizer)
    if tokenizer.fingerprint != state.get("fingerprint"):
        raise CheckpointError(
            f"{folder.tokenizer} is not the tokenizer that the model was trained with",
            hint="put the run's own tokenizer back there",
        )
    model = TransformerLM(config.model, seed=0)
    load_model_state(model, state["model"])
    return TrainedModel(
        model.to(pick_device(device)).eval(), tokenizer, config, int(state["iteration"]), file, refused
    )
