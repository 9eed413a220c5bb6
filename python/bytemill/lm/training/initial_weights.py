"""Start a run from the weights of another one, or of an imported model (`training.init_from`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from bytemill.errors import RunConfigError
from bytemill.lm.model import TransformerLM
from bytemill.lm.training.run_folder import RunFolder
from bytemill.lm.training.saved_model import find_saved_model

if TYPE_CHECKING:
    from pathlib import Path

    from bytemill.lm.model_config import ModelConfig
    from bytemill.lm.training.config import Layer, TrainConfig
    from bytemill.lm.training.saved_model import SavedModel
    from bytemill.tokenizer.tokenizer import Tokenizer

MAY_DIFFER = frozenset(
    {
        "context_length",
        "dropout",
        "initialization",
        "sliding_window",
        "rope_theta",
        "rope_scaling",
        "rope_factor",
        "rope_low_freq_factor",
        "rope_high_freq_factor",
        "rope_original_context",
    }
)
"""Settings of the model that may differ from those of the initial weights."""


def initial_layers(init_from: str, run: Path | None) -> list[Layer]:
    """Return the weakest layer of settings: the model and the tokenizer of the initial weights.

    Args:
        init_from: Setting `training.init_from`.
        run: Run folder to resume, if any. Its own settings are complete once it has a checkpoint.

    Raises:
        CheckpointError: `init_from` is neither a run nor an imported model.
    """
    if not init_from or (run is not None and RunFolder(run).checkpoint_files()):
        return []
    saved = find_saved_model(init_from)
    values = {f"model.{name}": value for name, value in saved.config.model.to_dict().items()}
    if saved.fingerprint is not None:
        values["data.tokenizer"] = str(saved.tokenizer_path)
    return [(init_from, values)]


def find_initial_weights(config: TrainConfig, tokenizer: Tokenizer) -> SavedModel:
    """Find the weights of `training.init_from`, and check that they fit the run.

    Raises:
        RunConfigError: The model has other settings, or the tokenizer has other tokens.
        CheckpointError: There are no weights.
    """
    path = config.training.init_from
    saved = find_saved_model(path)
    _check_model(config.model, saved.config.model, path)
    if saved.fingerprint not in (None, tokenizer.fingerprint):
        before, after = saved.tokenizer().vocab, tokenizer.vocab
        changed = next((number for number in before if after.get(number) != before[number]), None)
        if changed is not None:
            raise RunConfigError(
                f"the tokenizer is not that of {path}: id {changed} is {after.get(changed)!r} and was "
                f"{before[changed]!r}",
                hint=f"use the tokenizer of the model, also for the shards: --data.tokenizer {saved.tokenizer_path}",
            )
    return saved


def load_initial_weights(model: TransformerLM, saved: SavedModel) -> None:
    """Load the result of `find_initial_weights` into a new model.

    Learned position embeddings beyond the context length are left out.

    Raises:
        CheckpointError: The weights are missing or damaged.
    """
    own, initial = model.config, saved.config.model
    if own.position != "learned" or own.context_length == initial.context_length:
        saved.load_weights(model)
        return
    longer = TransformerLM(initial, seed=0)
    saved.load_weights(longer)
    source = dict(longer.named_parameters())
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(source[name][: len(parameter)])


def _check_model(own: ModelConfig, initial: ModelConfig, path: str) -> None:
    """Raise RunConfigError if the weights of `initial` do not fit into a model of the shape `own`."""
    if own.position == "learned" and own.context_length > initial.context_length:
        raise RunConfigError(
            f"model.context_length is {own.context_length:,}, but {path} has learned positions for only "
            f"{initial.context_length:,} tokens",
            hint=f"lower --model.context-length to {initial.context_length} or less",
        )
    before, after = initial.to_dict(), own.to_dict()
    for name, value in before.items():
        if name not in MAY_DIFFER and after[name] != value:
            raise RunConfigError(
                f"model.{name} is {after[name]!r}, but {path} has {value!r}{_shapes(own, initial)}",
                hint=f"leave the sizes of the model out: {path} sets them",
            )


def _shapes(own: ModelConfig, initial: ModelConfig) -> str:
    """Return the first tensor whose shapes differ, for a message."""
    there, here = (
        {name: tuple(tensor.shape) for name, tensor in TransformerLM(one, device="meta").named_parameters()}
        for one in (initial, own)
    )
    for name, shape in there.items():
        if here.get(name) != shape:
            return f" ({name} would be {here.get(name, 'absent')}, there {shape})"
    return ""
