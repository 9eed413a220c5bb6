"""Progress of long-running work on standard error."""

import sys
import time
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self

from bytemill.cli import output
from bytemill.system.units import format_bytes, format_count, format_rate, format_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from rich.progress import Progress, TaskID

    from bytemill.data import EncodeProgress
    from bytemill.training.pipeline import TrainingProgress

_SECONDS_BETWEEN_LINES = 5.0
_SECONDS_BEFORE_RATE = 0.5
_PHASES = {"count": ("counting pre-tokens", "bytes"), "merge": ("learning merges", "merges")}


class ProgressDisplay:
    """Progress by phase: a bar on a terminal, a line every few seconds elsewhere, nothing with `quiet`."""

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
        """Remove the bar to free the terminal; later progress is printed as lines."""
        if self._bar is not None:
            self._bar.stop()
            self._bar, self._task = None, None

    def step(self, name: str) -> None:
        """Start a phase of unknown size."""
        if self._quiet:
            return
        self._phase = name
        if self._bar is None:
            sys.stderr.write(f"{name}\n")
            sys.stderr.flush()
        else:
            self._show(self._bar, name, 0, None, "", is_new=True)

    def update(
        self,
        phase: str,
        unit: str,
        done: int,
        total: int | None,
        *,
        n_tokens: int | None = None,
        n_before: int | None = None,
        more: str = "",
    ) -> None:
        """Show how much of a phase is done.

        Args:
            phase: Name of the phase.
            unit: "bytes", "tokens" or "merges".
            done: Units finished.
            total: Units in all, None if unknown.
            n_tokens: Tokens this process has written so far, shown as a rate.
            n_before: Units that an earlier run has finished; by default those finished at the first call.
            more: Further text.
        """
        if self._quiet:
            return
        now = time.monotonic()
        is_new = phase != self._phase
        if is_new:
            # Work of an interrupted run took none of this run's time.
            self._phase, self._phase_started = phase, now
            self._done_before = done if n_before is None else n_before
        seconds = now - self._phase_started
        detail = _detail(unit, done, total, done - self._done_before, seconds)
        if n_tokens and seconds >= _SECONDS_BEFORE_RATE:
            detail += f", {format_rate(n_tokens, seconds, 'tokens')}"
        if more:
            detail += f", {more}"
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


@contextmanager
def progress_of_long_work(phase: str, unit: str, *, quiet: bool) -> "Generator[Callable[[int, int], None]]":
    """Provide a callback of units finished and units in all; nothing is shown before its first call.

    Args:
        phase: Name of the phase.
        unit: As in `ProgressDisplay.update`.
        quiet: Show nothing.
    """
    display: ProgressDisplay | None = None
    with ExitStack() as stack:

        def show(done: int, total: int) -> None:
            nonlocal display
            if display is None:
                display = stack.enter_context(ProgressDisplay(quiet=quiet))
            display.update(phase, unit, done, total)

        yield show


def training_progress(display: ProgressDisplay) -> "Callable[[TrainingProgress], None]":
    """Return a `progress` callback for `train` that updates `display`."""

    def show(progress: "TrainingProgress") -> None:
        phase, unit = _PHASES[progress.phase]
        display.update(phase, unit, progress.done, progress.total)

    return show


def encoding_progress(display: ProgressDisplay) -> "Callable[[EncodeProgress], None]":
    """Return a `progress` callback for `encode_corpus` that updates `display`."""

    def show(progress: "EncodeProgress") -> None:
        if progress.is_shuffling:
            display.update("shuffling", "bytes", progress.n_bytes, progress.total_bytes, n_before=0)
        elif not progress.already_complete:
            n_tokens = progress.n_tokens - progress.n_tokens_before
            display.update("encoding", "bytes", progress.n_bytes, progress.total_bytes, n_tokens=n_tokens)

    return show


def _detail(unit: str, done: int, total: int | None, n_new: int, seconds: float) -> str:
    amount = format_bytes if unit == "bytes" else format_count
    of_total = f" of {amount(total)}" if total is not None else ""
    parts = [f"{amount(done)}{of_total}" + ("" if unit == "bytes" else f" {unit}")]
    if n_new and seconds >= _SECONDS_BEFORE_RATE:
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
