"""Training log records: the metrics file, the terminal and optional trackers."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

from bytemill.errors import MissingExtraError
from bytemill.lm.device import peak_memory
from bytemill.lm.training.metrics_log import read_metrics

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from bytemill.lm.training.config import TrainConfig
    from bytemill.lm.training.metrics_log import MetricsLog
    from bytemill.lm.training.run import Run

Record: TypeAlias = dict[str, Any]
"""`kind`, `step` and the values of the kind; see "Records" in `docs/training-a-model.md`."""

OnRecord: TypeAlias = Callable[[Record], None]


class Recorder:
    """Send each record to the metrics file, to `on_record`, and to TensorBoard and Weights & Biases if enabled.

    Args:
        log: The metrics file; None in all processes but the first, which record nothing.
        run: The run.
        on_record: Called with each record.

    Raises:
        MissingExtraError: A tracker is enabled but not installed.
    """

    def __init__(self, log: MetricsLog | None, run: Run, on_record: OnRecord | None) -> None:
        config = run.config
        self._log = log
        self._on_record = on_record if log else None
        records = read_metrics(log.path) if log else []
        self._recorded = run.processes.share({(record["kind"], record["step"]) for record in records})
        self._trackers: list[OnRecord] = []
        if log and config.run.tensorboard:
            self._trackers.append(_tensorboard(log.path.parent / "tensorboard"))
        if log and config.run.wandb:
            self._trackers.append(_wandb(config))

    def __call__(self, kind: str, step: int, **values: Any) -> None:
        """Store and show a record."""
        if self._log is None:
            return
        record: Record = {"kind": kind, "step": step, **values}
        self._log.append(record)
        for track in self._trackers:
            track(record)
        self.show(kind, step, **values)

    def has(self, kind: str, step: int) -> bool:
        """Return True if the run had this record before it was resumed."""
        return (kind, step) in self._recorded

    def show(self, kind: str, step: int, **values: Any) -> None:
        """Pass a record to `on_record` without storing it."""
        if self._on_record:
            self._on_record({"kind": kind, "step": step, **values})


class Speed:
    """Training speed, measured over the steps alone: without validation, samples and checkpoints."""

    def __init__(self, device: torch.device, flops_per_token: float, flops_per_second: float) -> None:
        self._device = device
        self._flops_per_token = flops_per_token
        self._flops_per_second = flops_per_second
        self._seconds = 0.0
        self._n_tokens = 0
        self._started = 0.0

    def start(self) -> None:
        """Mark the start of a step."""
        self._started = time.perf_counter()

    def stop(self, n_tokens: int) -> None:
        """Mark the end of a step on `n_tokens` tokens."""
        self._seconds += time.perf_counter() - self._started
        self._n_tokens += n_tokens

    def take(self) -> Record:
        """Return tokens per second since the last call, the share of the device's peak FLOPs, and peak memory."""
        rate = self._n_tokens / self._seconds if self._seconds else 0.0
        self._seconds, self._n_tokens = 0.0, 0
        return {
            "tokens_per_second": rate,
            "flop_utilization": rate * self._flops_per_token / self._flops_per_second,
            "memory_bytes": peak_memory(self._device),
        }


def _tensorboard(folder: Path) -> OnRecord:
    try:
        writer: Any = import_module("torch.utils.tensorboard").SummaryWriter(str(folder))
    except ImportError as error:
        raise _missing("run.tensorboard", "tensorboard") from error

    def track(record: Record) -> None:
        for name, value in _numbers(record).items():
            writer.add_scalar(name, value, record["step"])
        writer.flush()

    return track


def _wandb(config: TrainConfig) -> OnRecord:
    try:
        wandb: Any = import_module("wandb")
    except ImportError as error:
        raise _missing("run.wandb", "wandb") from error
    run = wandb.init(project=config.run.wandb, config=config.to_dict(), dir=config.run.folder, resume="allow")

    def track(record: Record) -> None:
        run.log(_numbers(record), step=record["step"])

    return track


def _numbers(record: Record) -> dict[str, float]:
    kind = "train" if record["kind"] == "step" else record["kind"]
    return {
        f"{kind}/{name}": float(value)
        for name, value in record.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool) and name != "step"
    }


def _missing(setting: str, package: str) -> MissingExtraError:
    return MissingExtraError(
        f"{setting} needs {package}, which is not installed", hint=f"install it with: pip install {package}"
    )
