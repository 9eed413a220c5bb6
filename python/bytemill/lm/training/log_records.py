"""Training log records: the metrics file, the terminal and trackers; and the speed that they state."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from bytemill.lm.cpu_threads import are_cores_shared
from bytemill.lm.device import peak_memory
from bytemill.lm.training.metrics_log import read_metrics
from bytemill.lm.training.trackers import Trackers
from bytemill.system.units import plural

if TYPE_CHECKING:
    import torch

    from bytemill.lm.training.metrics_log import MetricsLog
    from bytemill.lm.training.run import Run

Record: TypeAlias = dict[str, Any]
"""`kind`, `step` and the values of the kind; see "Records" in `docs/guides/training-a-model.md`."""

OnRecord: TypeAlias = Callable[[Record], None]


MEASURED = frozenset(
    {"tokens_per_second", "flops_per_second", "flop_utilization", "data_wait", "memory_bytes", "seconds_left"}
)
"""Values of step records that differ from run to run; all others depend on settings and data alone."""


_SLOW, _RECOVERED = 0.5, 0.75
"""Shares of the fastest rate: below the first a run is reported to be slow, above the second it is no longer."""


_LEAST_SECONDS = 1.0
"""Rates over less time than this are not compared: they vary."""


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


class Speed:
    """Training speed, measured over the steps alone: without validation, samples and checkpoints.

    Args:
        device: The device.
        flops_per_token: FLOPs of a training step per token.
        peak: FLOPs per second that the devices of all processes can do; None if unknown.
        n_tokens: Tokens that the run has trained on so far.
        total_tokens: Tokens at its end.
    """

    def __init__(
        self,
        device: torch.device,
        flops_per_token: float,
        peak: float | None,
        *,
        n_tokens: int,
        total_tokens: int,
    ) -> None:
        self._device = device
        self._flops_per_token = flops_per_token
        self._peak = peak
        self._seconds = 0.0
        self._n_tokens = 0
        self._started = 0.0
        self._first = n_tokens
        self._done = n_tokens
        self._total = total_tokens
        self._begun = time.perf_counter()
        self._rate = 0.0
        self._best_rate = 0.0
        self._was_slow = False

    def start(self) -> None:
        """Mark the start of a step."""
        self._started = time.perf_counter()

    def stop(self, n_tokens: int) -> None:
        """Mark the end of a step on `n_tokens` tokens."""
        self._seconds += time.perf_counter() - self._started
        self._n_tokens += n_tokens
        self._done += n_tokens

    def take(self, waited: float) -> Record:
        """Return speed, use of the device and memory since the last call, and the time left.

        Args:
            waited: Seconds of these steps that passed waiting for batches.

        Returns:
            `tokens_per_second`; `flops_per_second`; `flop_utilization`, their share of the peak, None if that is
            unknown; `data_wait`, the share of the time spent waiting for batches; `memory_bytes`, the peak so far;
            `seconds_left`, estimated by tokens and including validation and checkpoints, since the number of tokens
            per step may grow.
        """
        rate = self._n_tokens / self._seconds if self._seconds else 0.0
        if self._seconds >= _LEAST_SECONDS:
            self._rate, self._best_rate = rate, max(rate, self._best_rate)
        flops = rate * self._flops_per_token
        per_token = (time.perf_counter() - self._begun) / max(1, self._done - self._first)
        record: Record = {
            "tokens_per_second": rate,
            "flops_per_second": flops,
            "flop_utilization": flops / self._peak if self._peak else None,
            "data_wait": waited / self._seconds if self._seconds else 0.0,
            "memory_bytes": peak_memory(self._device),
            "seconds_left": per_token * (self._total - self._done),
        }
        self._seconds, self._n_tokens = 0.0, 0
        return record

    def slowdown(self) -> str | None:
        """Return a note if the rate that `take` has measured is newly far below the fastest so far."""
        is_slow = self._rate < (_RECOVERED if self._was_slow else _SLOW) * self._best_rate
        is_new, self._was_slow = is_slow and not self._was_slow, is_slow
        if not is_new:
            return None
        cause = "other programs use the cores" if are_cores_shared() else "the device has slowed down"
        return (
            f"{cause}: {self._rate:,.0f} tokens/s, {self._rate / self._best_rate:.0%} of the fastest so far"
        )
