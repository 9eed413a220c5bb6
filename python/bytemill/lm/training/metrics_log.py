"""The records of a run: the metrics file, the terminal, and experiment trackers.

`metrics.jsonl` has one JSON object per line and is the only source of every curve. A tracker (TensorBoard, Weights &
Biases, trackio) is a class with `log` and `close`, and an entry in `TRACKERS`. One that fails while training is dropped
with one notice. A resumed run continues the run of the tracker, whose id is stored in the run folder.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

from bytemill.errors import MissingExtraError, RunConfigError
from bytemill.system.atomic_files import open_text, output_error, write_bytes
from bytemill.system.units import plural

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from bytemill.lm.training.config import RunConfig
    from bytemill.lm.training.run import Run


Record: TypeAlias = dict[str, Any]
"""`kind`, `step` and the values of the kind; see "Records" in `docs/guides/training-a-model.md`."""

OnRecord: TypeAlias = Callable[[Record], None]


class MetricsLog:
    """Append-only file of records; other processes can read a record as soon as `append` returns.

    A resumed run repeats the steps after its checkpoint. `after_step` removes their old records, so that the file
    equals that of an uninterrupted run. Damaged lines are moved to a file beside it.
    """

    def __init__(self, path: str | os.PathLike[str], *, after_step: int | None = None) -> None:
        """Open the file.

        Args:
            path: The file; it is created if necessary.
            after_step: Keep the records up to this step; None keeps no records.

        Raises:
            OutputError: The file cannot be written.
        """
        self.path = Path(path)
        self.damaged_path = self.path.with_suffix(".damaged.jsonl")
        kept, damaged = ([], []) if after_step is None else _lines_up_to(self.path, after_step)
        self.n_damaged = len(damaged)
        """Lines that could not be read, and were appended to `damaged_path`."""
        try:
            if damaged:
                with self.damaged_path.open("ab") as file:
                    file.writelines(damaged)
        except OSError as error:
            raise output_error(error, self.damaged_path) from error
        write_bytes(self.path, b"".join(kept))
        try:
            self._file = self.path.open("a", encoding="utf-8", newline="")
        except OSError as error:
            raise output_error(error, self.path) from error

    def append(self, record: dict[str, Any]) -> None:
        """Write a record; a value that is not finite becomes null, since JSON has no NaN."""
        finite = {
            key: None if isinstance(value, float) and value - value != 0.0 else value
            for key, value in record.items()
        }
        try:
            self._file.write(json.dumps(finite, ensure_ascii=False) + "\n")
            self._file.flush()
        except OSError as error:
            raise output_error(error, self.path) from error

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_metrics(path: str | os.PathLike[str], kind: str | None = None) -> list[dict[str, Any]]:
    """Read the records of `metrics.jsonl`, in order; damaged lines and an incomplete last one are left out.

    Args:
        path: The file.
        kind: Return only records of this kind, such as "step" or "validation".

    Raises:
        RunConfigError: The file cannot be read.
    """
    try:
        records = [record for record, _ in _records(Path(path)) if record is not None]
    except OSError as error:
        raise RunConfigError(
            f"cannot read {path}: {error.strerror or error}", hint="name the metrics.jsonl of a run folder"
        ) from error
    return [record for record in records if kind is None or record.get("kind") == kind]


def _lines_up_to(path: Path, step: int) -> tuple[list[bytes], list[bytes]]:
    """Return the lines of records up to a step, and the damaged lines."""
    kept: list[bytes] = []
    damaged: list[bytes] = []
    try:
        for record, line in _records(path):
            if record is None:
                damaged.append(line)
            elif record["step"] <= step:
                kept.append(line)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise output_error(error, path) from error
    return kept, damaged


def _records(path: Path) -> Iterator[tuple[dict[str, Any] | None, bytes]]:
    """Yield records and their lines, with None for a damaged one; leave out an incomplete last line."""
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield _record(line), line


def _record(line: bytes) -> dict[str, Any] | None:
    try:
        record: object = json.loads(line)
    except (ValueError, RecursionError):  # not JSON, or not UTF-8
        return None
    if not isinstance(record, dict):
        return None
    found = cast("dict[str, Any]", record)
    return found if isinstance(found.get("kind"), str) and isinstance(found.get("step"), int) else None


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


MEASURED = frozenset(
    {
        *(
            "tokens_per_second",
            "flops_per_second",
            "flop_utilization",
            "data_wait",
            "memory_bytes",
            "seconds_left",
        ),
        *("sampling_seconds", "training_seconds"),
    }
)
"""Values of records that differ from run to run; all others depend on settings and data alone."""


class Recorder:
    """Send each record to the metrics file, to `on_record`, and to the enabled trackers.

    Args:
        log: The metrics file; None in all processes but the first, which record nothing.
        run: The run.
        on_record: Called with each record.

    Raises:
        MissingExtraError: A tracker is enabled but not installed.
    """

    def __init__(self, log: MetricsLog | None, run: Run, on_record: OnRecord | None) -> None:
        self._log = log
        self._on_record = on_record if log else None
        records = read_metrics(log.path) if log else []
        self._recorded = run.processes.share({(record["kind"], record["step"]) for record in records})
        if log and log.n_damaged:
            text = f"{plural(log.n_damaged, 'line')} of {log.path} could not be read: see {log.damaged_path}"
            self.show("notice", run.step, text=text)
        self._trackers = Trackers(run, lambda text: self.show("notice", run.step, text=text)) if log else None

    def __call__(self, kind: str, step: int, **values: Any) -> None:
        """Store and show a record."""
        if self._log is None:
            return
        record: Record = {"kind": kind, "step": step, **values}
        self._log.append(record)
        if self._trackers:
            self._trackers.log(record)
        self.show(kind, step, **values)

    def has(self, kind: str, step: int) -> bool:
        """Return True if the run had this record before it was resumed."""
        return (kind, step) in self._recorded

    def show(self, kind: str, step: int, **values: Any) -> None:
        """Pass a record to `on_record` without storing it."""
        if self._on_record:
            self._on_record({"kind": kind, "step": step, **values})

    def close(self) -> None:
        """Close the trackers."""
        if self._trackers:
            self._trackers.close()
