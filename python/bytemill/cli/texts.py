"""The text or the ids that a command works on."""

import sys
from collections.abc import Iterable

from cyclopts import CycloptsError

from bytemill.cli import output
from bytemill.cli.text_input import TextInput
from bytemill.corpus import read_blocks, resolve_inputs


def text_input(text: str | None, file: str | None) -> TextInput:
    """Return the text of an argument, of a file, or of standard input if both are None."""
    if text is not None and file is not None:
        raise CycloptsError("give TEXT or --file, not both")
    if text is not None and text != "-":
        return TextInput.from_argument(text)
    if file is None or file == "-":
        typed = _typed()
        return TextInput.from_file("-") if typed is None else TextInput("<stdin>", None, typed)
    return TextInput.from_file(file)


def id_blocks(ids: tuple[str, ...]) -> tuple[Iterable[bytes], str]:
    """Return ids as text, from arguments or standard input, and the name of their origin for errors."""
    if ids and ids != ("-",):
        return [" ".join(ids).encode("utf-8", "replace")], "IDS"
    source = resolve_inputs("-")[0]
    typed = _typed()
    return read_blocks(source) if typed is None else [typed], source.name


def _typed() -> bytes | None:
    """Return what the user types if standard input is a terminal, else None.

    It is read at once, so that one Ctrl-D ends it; reading in blocks would require a second one.
    """
    if sys.stdin is None or not sys.stdin.isatty():  # pyright: ignore[reportUnnecessaryComparison]
        return None
    output.note("reading what you type; end with Ctrl-D on a line of its own")
    return sys.stdin.buffer.read()
