"""Which text, and which ids, a command is to work on."""

import sys
from collections.abc import Iterable

from cyclopts import CycloptsError

from bytemill.cli import output
from bytemill.corpus import read_blocks, resolve_inputs
from bytemill.text_input import TextInput


def text_input(text: str | None, file: str | None) -> TextInput:
    """The text given as a word, that of a file, or that of standard input where neither is given."""
    if text is not None and file is not None:
        raise CycloptsError("give TEXT or --file, not both")
    if text is not None and text != "-":
        return TextInput.from_word(text)
    if file is None or file == "-":
        _note_typing()
        return TextInput.from_file("-")
    return TextInput.from_file(file)


def id_blocks(ids: tuple[str, ...]) -> tuple[Iterable[bytes], str]:
    """The ids given as words, or those on standard input, as text; and what to call it in errors."""
    if ids and ids != ("-",):
        return [" ".join(ids).encode("utf-8", "replace")], "IDS"
    _note_typing()
    source = resolve_inputs("-")[0]
    return read_blocks(source), source.name


def _note_typing() -> None:
    if sys.stdin is not None and sys.stdin.isatty():  # pyright: ignore[reportUnnecessaryComparison]
        output.note("reading what you type; end with Ctrl-D on a line of its own, twice")
