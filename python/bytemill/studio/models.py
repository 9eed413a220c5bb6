"""Models that are loaded when they are first used, and again when their files have changed."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bytemill.errors import CheckpointError
from bytemill.formats.files import SIDECAR_FILES
from bytemill.studio.library import NotThereError

if TYPE_CHECKING:
    from pathlib import Path

    from bytemill.lm.training.saved_model import TrainedModel
    from bytemill.studio.files import Stamps
    from bytemill.studio.library import Entry

MAX_LOADED = 3
_N_TRIES = 3
_TOKENIZER = ("tokenizer.json", *SIDECAR_FILES)
_FILES = ("checkpoint.json", "model.json", "model.safetensors", "average.safetensors", *_TOKENIZER)
"""Files of a checkpoint or of an imported model; each has some of them."""


@dataclass(frozen=True)
class LoadedModel:
    """A model, and what it was loaded from."""

    trained: TrainedModel
    checkpoint: int | None
    """Step of the checkpoint; None for an imported model."""
    stamp: str


class Models:
    """Keeps the models that were used most recently.

    Args:
        stamps: Stamps of the files.
        device: Device of the models, as in `load_trained`.
    """

    def __init__(self, stamps: Stamps, device: str = "auto") -> None:
        self._stamps = stamps
        self._device = device
        self._loaded: OrderedDict[Path, LoadedModel] = OrderedDict()
        self._lock = threading.Lock()

    def load(self, entry: Entry, step: int | None = None) -> LoadedModel:
        """Return an imported model, or a checkpoint of a run: by default the newest that is intact.

        Raises:
            NotThereError: There is no such checkpoint, or none at all.
            ChangingError: The files keep changing.
            CheckpointError: The files are damaged.
            MissingExtraError: torch is not installed.
        """
        with self._lock:  # also while loading: two requests must not load the same model twice
            for _ in range(_N_TRIES):
                folders = model_folders(entry, step)
                failures: list[CheckpointError] = []
                for own_step, folder in folders.items():
                    try:
                        return self._read(entry.name, own_step, folder)
                    except CheckpointError as error:
                        failures.append(error)
                if all(folder.exists() for folder in folders.values()):
                    raise CheckpointError(
                        str(failures[0]),
                        hint=failures[0].hint or "if a program is writing it, try again when that has ended",
                    )
        raise _not_there(entry, step)

    def stamps_of(self, entry: Entry, checkpoints: dict[int, Path]) -> dict[str, str]:
        """Return the stamps, by step, of the checkpoints that were loaded; of an imported model under ""."""
        folders = {str(step): path for step, path in checkpoints.items()} or {"": entry.path}
        found = {step: self._stamps.of_opened(model_files(path)) for step, path in folders.items()}
        return {step: stamp for step, stamp in found.items() if stamp is not None}

    def _read(self, name: str, step: int | None, folder: Path) -> LoadedModel:
        from bytemill.lm.training.saved_model import load_trained

        files = model_files(folder)
        known = self._loaded.pop(folder, None)
        if known is None or known.stamp != self._stamps.of(files):
            known = None  # its memory is free before the new one is loaded
            trained, stamp = self._stamps.read(name, files, lambda: load_trained(folder, self._device))
            known = LoadedModel(trained, step, stamp)
        self._loaded[folder] = known
        while len(self._loaded) > MAX_LOADED:
            self._loaded.popitem(last=False)
        return known


def checkpoint_paths(folder: Path) -> dict[int, Path]:
    """Return the checkpoints of a run by step, in ascending order; none for an imported model."""
    found: dict[int, Path] = {}
    for path in (folder / "checkpoints").glob("step_*"):
        number = path.name.removeprefix("step_")
        if number.isdecimal():
            found[int(number)] = path
    return dict(sorted(found.items()))


def model_files(folder: Path) -> list[Path]:
    """Return the files that a model is loaded from; some may be missing."""
    files = [folder / name for name in _FILES]
    if folder.parent.name == "checkpoints":
        files += [folder.parent.parent / name for name in _TOKENIZER]
    return files


def model_folders(entry: Entry, step: int | None) -> dict[int | None, Path]:
    """Return the folders that a model may be loaded from, the newest checkpoint first.

    Raises:
        NotThereError: There is none.
    """
    found: dict[int | None, Path] = dict(reversed(checkpoint_paths(entry.path).items()))
    if not found and (entry.path / "model.json").is_file():
        found[None] = entry.path
    if step is not None:
        found = {step: found[step]} if step in found else {}
    if not found:
        raise _not_there(entry, step)
    return found


def _not_there(entry: Entry, step: int | None) -> NotThereError:
    if step is None:
        return NotThereError(
            f"{entry.name} has no weights at the moment",
            hint="wait until the program that writes them has ended, or choose another model",
        )
    return NotThereError(
        f"{entry.name} has no checkpoint of step {step}",
        hint="choose another one: a run removes its old checkpoints (run.keep_checkpoints)",
    )
