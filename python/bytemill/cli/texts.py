"""The text or the ids that a command works on: arguments, a file or standard input."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from cyclopts import CycloptsError

from bytemill.cli import output
from bytemill.corpus import Source, not_utf8, read_blocks, resolve_inputs
from bytemill.errors import CorpusError

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True)
class TextInput:
    """A text that can be read once."""

    name: str
    source: Source | None
    data: bytes = b""
    """The text if there is no source."""

    @classmethod
    def from_argument(cls, text: str) -> TextInput:
        """Use an argument, which may contain bytes that are not UTF-8."""
        return cls("TEXT", None, os.fsencode(text))

    @classmethod
    def from_file(cls, name: str) -> TextInput:
        """Use a file, or standard input for "-". Raises `CorpusError` if there is no such file."""
        sources = resolve_inputs([name])
        if len(sources) > 1:
            raise CorpusError(f"{name} matches {len(sources)} files", hint="name one of them")
        return cls(sources[0].name, sources[0])

    def blocks(self) -> Iterable[bytes]:
        """Return the bytes of the text in order. Raises `CorpusError` if reading fails."""
        return [self.data] if self.source is None else read_blocks(self.source)

    def read(self, errors: Literal["strict", "replace"] = "strict") -> str:
        """Return the whole text. Raises `CorpusError` if it is not UTF-8 and `errors` is "strict"."""
        data = b"".join(self.blocks())
        try:
            return data.decode(errors=errors)
        except UnicodeDecodeError as error:
            raise self.not_utf8(error) from error

    def not_utf8(self, error: UnicodeDecodeError) -> CorpusError:
        """Make the error that names the position; `error.start` is the byte offset in the text."""
        if self.source is not None:
            return not_utf8(self.source, error)
        return CorpusError(f"{self.name}: byte offset {error.start} is not valid UTF-8")


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
