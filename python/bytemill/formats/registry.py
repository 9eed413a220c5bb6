"""Registry of tokenizer formats: the names and suffixes of all, and the readers and writers of registered ones.

A new format is one module with two functions plus one call of `register_tokenizer_format` (see docs/extending.md). The
built-in formats, some of which consist of several files, are read by `detect` and written by `save`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bytemill.errors import TokenizerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from bytemill.formats.spec import TokenizerSpec


@dataclass(frozen=True)
class FormatInfo:
    """Names of a format."""

    name: str
    """Value of `Tokenizer.save(format=…)`."""
    title: str
    """The files as a noun phrase, for messages."""
    suffixes: tuple[str, ...]
    """Ends of file names that select the format for writing; `/` stands for a folder."""


@dataclass(frozen=True)
class TokenizerFormat(FormatInfo):
    """A format of single files that can be registered."""

    recognize: Callable[[bytes], bool]
    """Returns True for the content of a file of the format."""
    read: Callable[[bytes, str], TokenizerSpec]
    """Called with the content and the path. Raises `TokenizerFileError` for a damaged file."""
    write: Callable[[TokenizerSpec], bytes] | None = None
    """Returns the content. Raises `TokenizerError` if the format cannot represent the tokenizer. None: read only."""
    left_out: Callable[[TokenizerSpec], list[str]] | None = None
    """Returns what the format does not store of a tokenizer, as phrases. None: ties and counts of merges."""


FORMATS: dict[str, FormatInfo] = {
    each.name: each
    for each in (
        FormatInfo("gpt2", "vocab.json and merges.txt", ("vocab.json", "merges.txt", "/")),
        FormatInfo("huggingface", "tokenizer.json", (".json",)),
        FormatInfo("tiktoken", "rank file", (".tiktoken",)),
        FormatInfo("minbpe", "minbpe model", (".model",)),
        FormatInfo("vocab", "listing", (".vocab",)),
        FormatInfo("gguf", "GGUF file", (".gguf",)),
    )
}
"""Formats by name, in the order in which suffixes are matched."""


def register_tokenizer_format(tokenizer_format: TokenizerFormat) -> None:
    """Add a format, so that loading, saving and converting accept it.

    Args:
        tokenizer_format: The format. Its `recognize` has precedence over the built-in formats.

    Raises:
        TokenizerError: Another format has the name or a suffix.
    """
    for other in FORMATS.values():
        shared = {*other.suffixes} & {*tokenizer_format.suffixes}
        if other.name == tokenizer_format.name or shared:
            what = f"suffix {shared.pop()!r}" if shared else "name"
            raise TokenizerError(f"format {other.name!r} already has the {what}", hint="choose another one")
    FORMATS[tokenizer_format.name] = tokenizer_format


def format_of_content(data: bytes) -> TokenizerFormat | None:
    """Return the registered format that recognizes a file's content, or None."""
    registered = (each for each in FORMATS.values() if isinstance(each, TokenizerFormat))
    return next((each for each in registered if each.recognize(data)), None)
