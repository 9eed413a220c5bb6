"""Whether a result can be written: asked before the work that makes it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bytemill.system.atomic_files import AtomicFile
from bytemill.errors import OutputError
from bytemill.formats.huggingface import tokenizer_json as huggingface
from bytemill.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence


def check_can_be_saved(pattern: str | None, special_tokens: Sequence[str]) -> None:
    """Raises `TokenizerError` where no tokenizer.json can say this pattern and these special tokens.

    Asked before training: what cannot be saved after it would be lost.
    """
    single_bytes = {byte: bytes([byte]) for byte in range(256)}
    huggingface.write(Tokenizer(single_bytes, [], special_tokens, pattern=pattern).to_spec())


def check_output_file(path: str | os.PathLike[str], *, overwrite: bool) -> None:
    """Raises `OutputError` where `path` cannot be written, or is there already and `overwrite` is not set.

    Devices and named pipes are taken as they are.
    """
    target = Path(path)
    if target.exists() and not target.is_file() and not target.is_dir():
        return
    if target.is_file() and not overwrite:
        raise OutputError(
            f"{target} is there already",
            hint="give another name, or --overwrite (overwrite=True) to replace it",
        )
    # To begin the file under its temporary name is the one test that finds everything that can be in the way.
    AtomicFile(target).discard()
