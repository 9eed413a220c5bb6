"""Branch a run: a new run that continues from a checkpoint with other settings."""

from __future__ import annotations

import json
import os
import shutil
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from bytemill.lm.training.config import resolve
from bytemill.lm.training.run_checkpoint import TRAINER, publish_checkpoint
from bytemill.lm.training.run_folder import RunFolder
from bytemill.system.atomic_files import make_folder, output_errors

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from bytemill.lm.training.config import Layer, Resolved
    from bytemill.lm.training.run_checkpoint import RunCheckpoint


def branch(
    checkpoint: RunCheckpoint,
    settings: Layer,
    changes: Mapping[str, Any],
    *,
    skipped_sequences: int = 0,
) -> Resolved:
    """Make a run whose first checkpoint is one of another run, with its optimizer state and position in the data.

    `trainer.train` with the result trains it. A folder that already holds checkpoints is left as it is, so that an
    interrupted branch resumes.

    Args:
        checkpoint: The checkpoint to continue from. Its files are linked, or copied to another disk.
        settings: Settings of the run, as `config.file_layer` reads them.
        changes: Settings that differ, by key; `run.folder` among them.
        skipped_sequences: Sequences of the training data to leave out, counted from the checkpoint's position.

    Returns:
        The settings of the branch.

    Raises:
        RunConfigError: A setting is unknown or out of range.
        OutputError: The folder cannot be written.
    """
    resolved = resolve([settings, ("the branch", changes)])
    folder = RunFolder(resolved.config.run.folder)
    if folder.checkpoint_files():
        return resolved
    path = folder.checkpoint_path(checkpoint.step)
    temporary = path.with_name(f".{path.name}.tmp")
    with output_errors(temporary):
        shutil.rmtree(temporary, ignore_errors=True)
    files = dict(checkpoint.files)
    for name in files:
        make_folder((temporary / name).parent)
        with output_errors(temporary / name):
            _link(checkpoint.path / name, temporary / name)
    if skipped_sequences:
        state = checkpoint.trainer_state()
        state["batches"]["position"] += skipped_sequences
        content = json.dumps(state).encode()
        with output_errors(temporary / TRAINER):
            (temporary / TRAINER).unlink()
            (temporary / TRAINER).write_bytes(content)
        files[TRAINER] = sha256(content).hexdigest()
    publish_checkpoint(
        temporary,
        path,
        files,
        step=checkpoint.step,
        config=resolved.config,
        fingerprint=checkpoint.fingerprint,
        shards=checkpoint.shards,
        bos_id=checkpoint.bos_id,
        separator=checkpoint.separator,
        initial=checkpoint.initial,
    )
    return resolved


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, target)
