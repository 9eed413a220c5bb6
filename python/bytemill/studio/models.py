"""Models that are loaded when they are first used."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from bytemill.lm.loading import TrainedModel

MAX_LOADED = 3


class Models:
    """Keeps the models that were used most recently.

    Args:
        device: Device of the models, as in `load_trained`.
    """

    def __init__(self, device: str = "auto") -> None:
        self._device = device
        self._loaded: OrderedDict[Path, TrainedModel] = OrderedDict()
        self._lock = threading.Lock()

    def load(self, folder: Path, step: int | None = None) -> TrainedModel:
        """Return the model of a run, or of one of its checkpoints.

        Raises:
            CheckpointError: There is no intact checkpoint.
            KeyError: There is no checkpoint of this step.
            MissingExtraError: torch is not installed.
        """
        from bytemill.lm.loading import load_trained

        path = folder
        checkpoints = checkpoint_paths(folder)
        if checkpoints:
            path = checkpoints[max(checkpoints) if step is None else step]
        with self._lock:  # also while loading: two requests must not load the same model twice
            known = self._loaded.get(path)
            if known is None:
                try:
                    known = load_trained(path, self._device)
                except Exception:
                    # The newest checkpoint may be damaged or just being replaced; the run knows which to use.
                    if step is not None or path == folder:
                        raise
                    known = load_trained(folder, self._device)
                self._loaded[path] = known
            self._loaded.move_to_end(path)
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
