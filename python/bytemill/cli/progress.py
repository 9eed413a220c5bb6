"""Shows on standard error how far long work has come."""

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from bytemill.cli import output
from bytemill.system.units import format_bytes, format_count, format_rate, format_seconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.progress import Progress, TaskID

    from bytemill.shards import EncodeProgress
    from bytemill.training.train import TrainingProgress

_SECONDS_BETWEEN_LINES = 5.0
_PHASES = {"count": ("counting pre-tokens", "bytes"), "merge": ("learning merges", "merges")}


class ProgressDisplay:
    """Progress of one piece of work, phase by phase: a bar on a terminal, a line now and then elsewhere.

    Nothing at all with `quiet`.
    """

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._phase = ""
        self._phase_started = self._last_line = time.monotonic()
        self._done_before = 0
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        if not self._quiet and output.is_terminal(sys.stderr):
            self._bar = _bar()
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def end_bar(self) -> None:
        """Makes room on the terminal for something else; what comes later is said in lines."""
        if self._bar is not None:
            self._bar.stop()
            self._bar, self._task = None, None

    def step(self, name: str) -> None:
        """Work begins of which nobody knows how much there is."""
        if self._quiet:
            return
        self._phase = name
        if self._bar is None:
            sys.stderr.write(f"{name}\n")
            sys.stderr.flush()
        else:
            self._show(self._bar, name, 0, None, "", is_new=True)

    def update(self, phase: str, unit: str, done: int, total: int | None) -> None:
        """`done` of `total` units ("bytes", "merges") of a phase are done; None: nobody knows the total."""
        if self._quiet:
            return
        now = time.monotonic()
        is_new = phase != self._phase
        if is_new:
            # What was done before, by a run that was interrupted, took none of this run's time.
            self._phase, self._phase_started, self._done_before = phase, now, done
        detail = _detail(unit, done, total, done - self._done_before, now - self._phase_started)
        if self._bar is not None:
            self._show(self._bar, phase, done, total, detail, is_new=is_new)
        elif is_new or now - self._last_line >= _SECONDS_BETWEEN_LINES:
            self._last_line = now
            sys.stderr.write(f"{phase}: {detail}\n")
            sys.stderr.flush()

    def _show(
        self, bar: "Progress", phase: str, done: int, total: int | None, detail: str, *, is_new: bool
    ) -> None:
        if self._task is None or is_new:
            if self._task is not None:
                bar.remove_task(self._task)
            self._task = bar.add_task(output.printable(phase), total=total, detail="")
        bar.update(self._task, completed=done, total=total, detail=detail)


def training_progress(display: ProgressDisplay) -> "Callable[[TrainingProgress], None]":
    """What `train` calls to show its progress on `display`."""

    def show(progress: "TrainingProgress") -> None:
        phase, unit = _PHASES[progress.phase]
        display.update(phase, unit, progress.done, progress.total)

    return show


def encoding_progress(display: ProgressDisplay) -> "Callable[[EncodeProgress], None]":
    """What `encode_corpus` calls to show its progress on `display`."""

    def show(progress: "EncodeProgress") -> None:
        if not progress.already_complete:
            display.update("encoding", "bytes", progress.n_bytes, progress.total_bytes)

    return show


def _detail(unit: str, done: int, total: int | None, n_new: int, seconds: float) -> str:
    amount = format_bytes if unit == "bytes" else format_count
    of_total = f" of {amount(total)}" if total is not None else ""
    parts = [f"{amount(done)}{of_total}" + ("" if unit == "bytes" else f" {unit}")]
    if n_new and seconds >= 0.5:
        parts.append(format_rate(n_new, seconds, unit))
        if total is not None and done < total:
            parts.append(f"{format_seconds(seconds / n_new * (total - done))} left")
    return ", ".join(parts)


def _bar() -> "Progress":
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=30),
        TextColumn("{task.fields[detail]}", markup=False),
        console=Console(file=sys.stderr, highlight=False),
        transient=True,
    )
