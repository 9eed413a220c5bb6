"""Experiment trackers that copy a run's records: TensorBoard, Weights & Biases and trackio.

A tracker is a class with `log` and `close`, and an entry in `TRACKERS`. `metrics.jsonl` stays the source: a tracker
that fails while training is dropped with one notice. A resumed run continues the run of the tracker, whose id is stored
in the run folder.
"""

from __future__ import annotations

import json
import uuid
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from bytemill.errors import MissingExtraError
from bytemill.system.atomic_files import open_text

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bytemill.lm.training.config import RunConfig
    from bytemill.lm.training.run import Run

    Record = dict[str, Any]

_IDS = "trackers.json"


class Tracker(Protocol):
    """Receives the numbers of records."""

    def log(self, values: dict[str, float], step: int) -> None:
        """Store the numbers of a record, by names such as "train/loss"."""
        ...

    def close(self) -> None:
        """Send what is still buffered."""
        ...


class TensorBoard:
    """Writes event files to the folder `tensorboard` in the run folder."""

    def __init__(self, run: Run) -> None:
        # A resumed run repeats the steps after its checkpoint; their old values are hidden.
        self._writer = _import("tensorboard", "torch.utils.tensorboard").SummaryWriter(
            str(run.folder.path / "tensorboard"), purge_step=run.step + 1 if run.step else None
        )

    def log(self, values: dict[str, float], step: int) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class WeightsAndBiases:
    """Logs to a project of Weights & Biases."""

    def __init__(self, run: Run) -> None:
        self._run = _import("wandb").init(
            project=run.config.run.wandb,
            id=_stored_id(run, "wandb"),
            resume="allow",
            config=run.config.to_dict(),
            dir=str(run.folder.path),
        )

    def log(self, values: dict[str, float], step: int) -> None:
        self._run.log(values, step=step)

    def close(self) -> None:
        self._run.finish()


class Trackio:
    """Logs to a project of trackio, which finds a run by its name."""

    def __init__(self, run: Run) -> None:
        self._trackio = _import("trackio")
        self._trackio.init(
            project=run.config.run.trackio,
            name=f"{run.folder.path.resolve().name}-{_stored_id(run, 'trackio')}",
            resume="allow",
            config=run.config.to_dict(),
        )

    def log(self, values: dict[str, float], step: int) -> None:
        self._trackio.log(values, step=step)

    def close(self) -> None:
        self._trackio.finish()


TRACKERS: dict[str, tuple[str, Callable[[Run], Tracker]]] = {
    "tensorboard": ("tensorboard", TensorBoard),
    "wandb": ("wandb", WeightsAndBiases),
    "trackio": ("trackio", Trackio),
}
"""Setting in `RunConfig` that enables the tracker -> the package that it needs, and the tracker."""


class Trackers:
    """The enabled trackers of a run.

    Args:
        run: The run.
        notify: Called with a message if a tracker fails.

    Raises:
        MissingExtraError: A tracker is enabled but not installed.
    """

    def __init__(self, run: Run, notify: Callable[[str], None]) -> None:
        self._notify = notify
        self._trackers: dict[str, Tracker] = {}
        for name in enabled_trackers(run.config.run):
            _, make = TRACKERS[name]
            try:
                self._trackers[name] = make(run)
            except MissingExtraError:
                raise
            except Exception as error:
                self._drop(name, error)

    def log(self, record: Record) -> None:
        """Send a record to every tracker that has not failed."""
        values = _numbers(record)
        for name, tracker in list(self._trackers.items()):
            try:
                tracker.log(values, record["step"])
            except Exception as error:
                self._drop(name, error)

    def close(self) -> None:
        """Close the trackers."""
        for name, tracker in list(self._trackers.items()):
            try:
                tracker.close()
            except Exception as error:
                self._drop(name, error)

    def _drop(self, name: str, error: Exception) -> None:
        self._trackers.pop(name, None)
        self._notify(f"run.{name} is off from here on: {type(error).__name__}: {error}")


def enabled_trackers(config: RunConfig) -> list[str]:
    """Return the names of the enabled trackers."""
    return [name for name in TRACKERS if getattr(config, name)]


def check_trackers(config: RunConfig) -> None:
    """Raise MissingExtraError if an enabled tracker is not installed."""
    for name in enabled_trackers(config):
        _import(TRACKERS[name][0])


def _import(package: str, module: str | None = None) -> Any:
    try:
        return import_module(module or package)
    except ImportError as error:
        raise MissingExtraError(
            f"run.{package} needs {package}, which is not installed",
            hint=f"install it with: pip install {package}",
        ) from error


def _stored_id(run: Run, name: str) -> str:
    """Return the run's id in a tracker: that in the run folder, or a new one."""
    path: Path = run.folder.path / _IDS
    ids: dict[str, str] = json.loads(path.read_text(encoding="utf-8")) if run.step and path.exists() else {}
    if name not in ids:
        ids[name] = uuid.uuid4().hex[:8]
        with open_text(path) as file:
            file.write(json.dumps(ids) + "\n")
    return ids[name]


def _numbers(record: Record) -> dict[str, float]:
    kind = "train" if record["kind"] == "step" else record["kind"]
    values: dict[str, Any] = {f"{kind}/{name}": value for name, value in record.items() if name != "step"}
    for name, scores in record.get("sets", {}).items():
        values |= {f"{kind}/{name}/{key}": value for key, value in scores.items()}
    return {
        name: float(value)
        for name, value in values.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    }
