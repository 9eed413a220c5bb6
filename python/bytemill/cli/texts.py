"""Which text, and which ids, a command is to work on."""

import sys
from collections.abc import Iterable

from cyclopts import CycloptsError

from bytemill.cli import output
from bytemill.cli.text_input import TextInput
from bytemill.corpus import read_blocks, resolve_inputs


def text_input(text: str | None, file: str | None) -> TextInput:
    """The text given as a word, that of a file, or that of standard input where neither is given."""
    if text is not None and file is not None:
        raise CycloptsError("give TEXT or --file, not both")
    if text is not None and text != "-":
        return TextInput.from_word(text)
    if file is None or file == "-":
        typed = _typed()
        return TextInput.from_file("-") if typed is None else TextInput("<stdin>", None, typed)
    return TextInput.from_file(file)


def id_blocks(ids: tuple[str, ...]) -> tuple[Iterable[bytes], str]:
    """The ids given as words, or those on standard input, as text; and what to call it in errors."""
    if ids and ids != ("-",):
        return [" ".join(ids).encode("utf-8", "replace")], "IDS"
    source = resolve_inputs("-")[0]
    typed = _typed()
    return read_blocks(source) if typed is None else [typed], source.name


def _typed() -> bytes | None:
    """What is typed where standard input is a terminal, None where it is not.

    Read in one go: one Ctrl-D ends it, where reading block by block would ask for a second one.
    """
    if sys.stdin is None or not sys.stdin.isatty():  # pyright: ignore[reportUnnecessaryComparison]
        return None
    output.note("reading what you type; end with Ctrl-D on a line of its own")
    return sys.stdin.buffer.read()
