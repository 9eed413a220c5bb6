"""One text, however it was given: as a word of the command line, in a file, on standard input."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

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
    """The text where it is here already, and no source needs to be read."""

    @classmethod
    def from_word(cls, text: str) -> TextInput:
        """A text given on the command line; what is not UTF-8 there is still in it."""
        return cls("TEXT", None, os.fsencode(text))

    @classmethod
    def from_file(cls, name: str) -> TextInput:
        """A file's text, "-" for standard input. Raises `CorpusError` where there is no such file."""
        sources = resolve_inputs([name])
        if len(sources) > 1:
            raise CorpusError(f"{name} matches {len(sources)} files", hint="name one of them")
        return cls(sources[0].name, sources[0])

    def blocks(self) -> Iterable[bytes]:
        """The bytes of the text in order. Raises `CorpusError` where reading fails."""
        return [self.data] if self.source is None else read_blocks(self.source)

    def read(self) -> str:
        """The whole text. Raises `CorpusError` where it is not UTF-8."""
        data = b"".join(self.blocks())
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise self.not_utf8(error) from error

    def not_utf8(self, error: UnicodeDecodeError) -> CorpusError:
        """The `CorpusError` that names the place; `error.start` is the byte offset in the text."""
        if self.source is not None:
            return not_utf8(self.source, error)
        return CorpusError(f"{self.name}: byte offset {error.start} is not valid UTF-8")
