"""Output: results to standard output, everything else to standard error."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

    from _typeshed import ReadableBuffer

_DEFAULT_WIDTH = 100
"""Width of a line if standard output is no terminal."""


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
