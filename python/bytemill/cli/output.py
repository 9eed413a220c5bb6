"""Output: results to standard output; errors, notes and progress to standard error."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TextIO, cast

from bytemill.system.units import format_bytes, format_count, format_rate, format_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence
    from types import TracebackType

    from _typeshed import ReadableBuffer
    from rich.progress import Progress, TaskID

    from bytemill.data import EncodeProgress
    from bytemill.training.pipeline import TrainingProgress

_DEFAULT_WIDTH = 100
"""Width of a line if standard output is no terminal."""
_SECONDS_BETWEEN_LINES = 5.0
_SECONDS_BEFORE_RATE = 0.5
_PHASES = {"count": ("counting pre-tokens", "bytes"), "merge": ("learning merges", "merges")}


def prepare() -> None:
    """Make the standard streams write any text completely, whatever their encoding; closed streams discard it."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            null = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 (open as long as the process)
            setattr(sys, name, null)
        elif isinstance(stream := getattr(sys, name), io.TextIOWrapper):
            if isinstance(cast("Any", stream).buffer, io.FileIO):  # python -u, PYTHONUNBUFFERED
                complete = CompleteWrites(stream.fileno(), "wb", closefd=False)
                stream = io.TextIOWrapper(complete, encoding=stream.encoding, write_through=True)
                setattr(sys, name, stream)
            stream.reconfigure(errors="backslashreplace")


class CompleteWrites(io.FileIO):
    """An unbuffered file that repeats partial writes until all data is written.

    A signal can interrupt a write to a pipe, for example when the process is suspended and continued. The standard
    streams of an unbuffered Python drop the rest silently.
    """

    def write(self, data: ReadableBuffer, /) -> int:
        rest = memoryview(data).cast("B")
        n_bytes = len(rest)
        while rest:
            n_written = cast("int | None", super().write(rest))
            if n_written is None:
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), n_bytes - len(rest))
            rest = rest[n_written:]
        return n_bytes


def colour_allowed(stream: TextIO) -> bool:
    """Check whether to write colours: to a terminal, unless NO_COLOR is set.

    FORCE_COLOR enables them elsewhere, for example for `less -R`.
    """
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return is_terminal(stream)


def is_terminal(stream: TextIO) -> bool:
    """Check whether a stream is a terminal that supports control codes."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def width() -> int:
    """Return the width of a line of standard output, in cells."""
    import shutil

    return shutil.get_terminal_size((_DEFAULT_WIDTH, 24)).columns


def write(text: str) -> None:
    """Write text to standard output unchanged."""
    with _named_errors():
        sys.stdout.write(text)


def write_line(line: str = "") -> None:
    """Write a line to standard output."""
    write(line + "\n")


def write_bytes(data: bytes) -> None:
    """Write bytes to standard output unchanged."""
    with _named_errors():
        sys.stdout.flush()
        sys.stdout.buffer.write(data)


@contextlib.contextmanager
def _named_errors() -> Generator[None]:
    """Put the name of standard output into the errors of writing it."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or "standard output"
        raise


def write_json(document: Any, *, indent: int | None = 2) -> None:
    """Write a JSON value; with `indent=None` on one line."""
    import json

    write_line(json.dumps(document, indent=indent, ensure_ascii=False))


def write_fields(fields: Iterable[tuple[str, str]], indent: str = "  ") -> None:
    """Write names and values in two columns."""
    rows = list(fields)
    name_width = max(len(name) for name, _ in rows)
    for name, value in rows:
        write_line(f"{indent}{styled(f'{name:<{name_width}}', '2')}  {value}")


def write_table(
    header: Sequence[str], rows: Iterable[Sequence[str]], right: Iterable[int] = (), indent: str = "  "
) -> None:
    """Write a table; see `table_lines`."""
    head, *lines = table_lines(header, rows, right)
    write_line(indent + styled(head, "2"))
    for line in lines:
        write_line(indent + line)


def table_lines(header: Sequence[str], rows: Iterable[Sequence[str]], right: Iterable[int] = ()) -> list[str]:
    """Return the lines of a table, the header first. Columns with numbers (from 0) in `right` are right-aligned."""
    from rich.cells import cell_len

    lines = [list(header), *(list(row) for row in rows)]
    widths = [max(cell_len(line[column]) for line in lines) for column in range(len(header))]
    to_the_right = set(right)
    aligned: list[str] = []
    for line in lines:
        cells: list[str] = []
        for column, text in enumerate(line):
            padding = " " * (widths[column] - cell_len(text))
            cells.append(padding + text if column in to_the_right else text + padding)
        aligned.append("  ".join(cells).rstrip(" "))
    return aligned


def styled(text: str, codes: str) -> str:
    """Add SGR codes of ECMA-48 (1 bold, 2 dim, 36 cyan) if standard output supports colours."""
    return f"\x1b[{codes}m{text}\x1b[0m" if colour_allowed(sys.stdout) else text


def note(message: str, *, quiet: bool = False) -> None:
    """Print a note on standard error."""
    if not quiet:
        _print("note", "36", message)


def error(message: str, hint: str | None = None) -> None:
    """Print an error on standard error, followed by a hint."""
    _print("error", "1;31", message)
    if hint:
        _print("hint", "36", hint)


def interrupted(hint: str) -> None:
    """Print on standard error that the command was interrupted, followed by a hint."""
    sys.stderr.write("interrupted\n")
    if hint:
        _print("hint", "36", hint)


def flush() -> None:
    """Flush standard output, so that errors of writing are raised now."""
    with _named_errors():
        sys.stdout.flush()


def give_up_stdout() -> None:
    """Discard further output. Otherwise the interpreter fails to flush standard output again when it exits."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):  # standard output is no file, as in tests
        return


def open_page(url: str) -> bool:
    """Open an address in a graphical browser, and return whether there is one."""
    import webbrowser

    has_screen = sys.platform in ("darwin", "win32") or bool(
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )
    return has_screen and webbrowser.open(url)


def printable(message: str) -> str:
    """Escape control codes, which file names and texts may contain."""
    return "".join(
        character if character.isprintable() or character == "\n" else repr(character)[1:-1]
        for character in message
    )


def _print(word: str, codes: str, message: str) -> None:
    label = f"\x1b[{codes}m{word}:\x1b[0m" if colour_allowed(sys.stderr) else f"{word}:"
    sys.stderr.write(f"{label} {printable(message)}\n")


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
        if not self._quiet and is_terminal(sys.stderr):
            self._bar = _bar()
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

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
        self, bar: Progress, phase: str, done: int, total: int | None, detail: str, *, is_new: bool
    ) -> None:
        if self._task is None or is_new:
            if self._task is not None:
                bar.remove_task(self._task)
            self._task = bar.add_task(printable(phase), total=total, detail="")
        bar.update(self._task, completed=done, total=total, detail=detail)


@contextlib.contextmanager
def progress_of_long_work(phase: str, unit: str, *, quiet: bool) -> Generator[Callable[[int, int], None]]:
    """Provide a callback of units finished and units in all; nothing is shown before its first call.

    Args:
        phase: Name of the phase.
        unit: As in `ProgressDisplay.update`.
        quiet: Show nothing.
    """
    display: ProgressDisplay | None = None
    with contextlib.ExitStack() as stack:

        def show(done: int, total: int) -> None:
            nonlocal display
            if display is None:
                display = stack.enter_context(ProgressDisplay(quiet=quiet))
            display.update(phase, unit, done, total)

        yield show


def training_progress(display: ProgressDisplay) -> Callable[[TrainingProgress], None]:
    """Return a `progress` callback for `train` that updates `display`."""

    def show(progress: TrainingProgress) -> None:
        phase, unit = _PHASES[progress.phase]
        display.update(phase, unit, progress.done, progress.total)

    return show


def encoding_progress(display: ProgressDisplay) -> Callable[[EncodeProgress], None]:
    """Return a `progress` callback for `encode_corpus` that updates `display`."""

    def show(progress: EncodeProgress) -> None:
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


def _bar() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=30),
        TextColumn("{task.fields[detail]}", markup=False),
        console=Console(file=sys.stderr, highlight=False),
        transient=True,
    )
