"""Writing: results to standard output, everything else to standard error."""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from _typeshed import ReadableBuffer

_QUIET_WIDTH = 100
"""Cells of a line where there is no terminal whose width could be asked."""


def prepare() -> None:
    """Makes the standard streams take all of every text, whatever their encoding, and also where they are closed."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            nowhere = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 (open as long as the process)
            setattr(sys, name, nowhere)
        elif isinstance(stream := getattr(sys, name), io.TextIOWrapper):
            if isinstance(cast("Any", stream).buffer, io.FileIO):  # python -u, PYTHONUNBUFFERED
                whole = WholeWrites(stream.fileno(), "wb", closefd=False)
                stream = io.TextIOWrapper(whole, encoding=stream.encoding, write_through=True)
                setattr(sys, name, stream)
            stream.reconfigure(errors="backslashreplace")


class WholeWrites(io.FileIO):
    """A file without a buffer, all of which is written that is to be written.

    A pipe may take but a part where a signal comes in between: the process is stopped and goes on, the terminal
    changes its size. The standard streams of a Python that has been told not to buffer drop the rest, and say nothing.
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
    """Whether control codes for colours may be written: to a terminal, unless NO_COLOR asks for none.

    FORCE_COLOR asks for them off a terminal too, for example for `less -R`.
    """
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return is_terminal(stream)


def is_terminal(stream: TextIO) -> bool:
    """Whether `stream` is a terminal that knows control codes."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def width() -> int:
    """Cells of a line of standard output."""
    return shutil.get_terminal_size((_QUIET_WIDTH, 24)).columns


def write(text: str) -> None:
    """Writes `text` to standard output as it is."""
    sys.stdout.write(text)


def write_line(line: str = "") -> None:
    """Writes a line to standard output."""
    sys.stdout.write(line + "\n")


def write_bytes(data: bytes) -> None:
    """Writes `data` to standard output as it is."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)


def write_json(document: Any, *, indent: int | None = 2) -> None:
    """Writes one JSON value; `indent=None` puts it on one line."""
    write_line(json.dumps(document, indent=indent, ensure_ascii=False))


def write_facts(facts: Iterable[tuple[str, str]], indent: str = "  ") -> None:
    """Writes names and values in two columns."""
    rows = list(facts)
    name_width = max(len(name) for name, _ in rows)
    for name, value in rows:
        write_line(f"{indent}{styled(f'{name:<{name_width}}', '2')}  {value}")


def write_table(
    header: Sequence[str], rows: Iterable[Sequence[str]], right: Iterable[int] = (), indent: str = "  "
) -> None:
    """Writes a table; the columns in `right` (from 0) stand at the right."""
    for place, line in enumerate(table_lines(header, rows, right)):
        write_line(indent + (styled(line, "2") if place == 0 else line))


def table_lines(header: Sequence[str], rows: Iterable[Sequence[str]], right: Iterable[int] = ()) -> list[str]:
    """The lines of a table, the header first; the columns in `right` (from 0) stand at the right."""
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
    """`text` with the codes of ECMA-48's SGR (1 bold, 2 dim, 36 cyan) where standard output takes colours."""
    return f"\x1b[{codes}m{text}\x1b[0m" if colour_allowed(sys.stdout) else text


def note(message: str, *, quiet: bool = False) -> None:
    """Says something on standard error that is worth knowing and no error."""
    if not quiet:
        _say("note", "36", message)


def error(message: str, hint: str | None = None) -> None:
    """Says on standard error what is wrong, and below it what to do."""
    _say("error", "1;31", message)
    if hint:
        _say("hint", "36", hint)


def interrupted(hint: str) -> None:
    """Says on standard error that Ctrl-C has ended the work, and how to go on."""
    sys.stderr.write("interrupted\n")
    if hint:
        _say("hint", "36", hint)


def flush() -> None:
    """Hands everything written so far to the system, so that what goes wrong there is known now."""
    sys.stdout.flush()


def give_up_stdout() -> None:
    """Points standard output to nowhere: the interpreter would fail to flush it a second time at its end."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):  # standard output is no file, as in tests
        return


def printable(message: str) -> str:
    """`message` without control codes, which names of files and texts may hold."""
    return "".join(
        character if character.isprintable() or character == "\n" else repr(character)[1:-1]
        for character in message
    )


def _say(word: str, codes: str, message: str) -> None:
    label = f"\x1b[{codes}m{word}:\x1b[0m" if colour_allowed(sys.stderr) else f"{word}:"
    sys.stderr.write(f"{label} {printable(message)}\n")
