"""Open a tokenizer by path or name, as the command line and model configurations do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bytemill.errors import TokenizerError, TokenizerFileError
from bytemill.storage import is_url
from bytemill.tokenizer import pretrained
from bytemill.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    import os
    from types import EllipsisType

    from bytemill.formats.patterns import Pattern
    from bytemill.formats.spec import SpecialTokens


def open_tokenizer(
    path_or_name: str | os.PathLike[str],
    *,
    pattern: str | Pattern | EllipsisType | None = ...,
    special_tokens: SpecialTokens | None = None,
) -> Tokenizer:
    """Load a file or folder, or the tokenizer of that name.

    Args:
        path_or_name: A path, the URL of a file or folder in an object store, a published name such as `gpt2`, a model
            of OpenAI such as `gpt-4`, or a repository on the hub (`OWNER/NAME`). An existing path takes precedence.
        pattern: As in `Tokenizer.load`.
        special_tokens: As in `Tokenizer.load`.

    Raises:
        TokenizerError: A named tokenizer has a pattern and special tokens already.
        TokenizerFileError: As `Tokenizer.load` and `Tokenizer.from_pretrained` do.
    """
    if not is_url(path_or_name) and not Path(path_or_name).exists():
        if pretrained.is_name(path_or_name):
            if pattern is not ... or special_tokens is not None:
                # Imported late, with all readers.
                from bytemill.formats.detect import OWN_PARTS_HINT

                raise TokenizerError(
                    f"{path_or_name} has a pattern and special tokens of its own", hint=OWN_PARTS_HINT
                )
            return Tokenizer.from_pretrained(Path(path_or_name).as_posix())
        _suggest_published(str(path_or_name))
    return Tokenizer.load(path_or_name, pattern=pattern, special_tokens=special_tokens)


def _suggest_published(name: str) -> None:
    """Raise `TokenizerFileError` if `name` looks like a mistyped published name."""
    import difflib

    if close := difflib.get_close_matches(name, pretrained.PUBLISHED, n=1):
        raise TokenizerFileError(
            f"{name}: no such file, and not a published tokenizer",
            hint=f"use {close[0]}, or the path of a tokenizer file",
        )
