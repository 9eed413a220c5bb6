"""Writing of a changed tokenizer in the format that the name of the output implies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bytemill.errors import TokenizerError
from bytemill.formats.registry import format_of_name, render

if TYPE_CHECKING:
    from pathlib import Path

    from bytemill.tokenizer.tokenizer import Tokenizer


def check_can_be_written(tokenizer: Tokenizer, path: Path) -> None:
    """Raise `TokenizerError` if the format that the name of an output implies cannot represent a tokenizer.

    Called with the tokenizer that is going to be changed, so that nobody waits for a result that has no file.
    """
    written_format = _format_of(path)
    if written_format == "vocab":
        raise TokenizerError("a listing cannot be loaded again", hint="write a tokenizer.json")
    render(tokenizer.to_spec(), path, written_format)


def write(tokenizer: Tokenizer, path: Path) -> None:
    """Write a tokenizer in the format that the name of the output implies."""
    tokenizer.save(path, format=_format_of(path))


def _format_of(path: Path) -> str:
    # A folder gets tokenizer.json with the other metadata files.
    return "huggingface" if path.is_dir() or not path.suffix else format_of_name(path)
