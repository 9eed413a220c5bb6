"""Where in a folder a tokenizer is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bytemill.errors import TokenizerFileError

if TYPE_CHECKING:
    import os

UNDERSTOOD = (
    "bytemill reads a tokenizer.json, a .tiktoken rank file, a GGUF file, and a folder with a tokenizer.json "
    "or with vocab.json and merges.txt."
)
_PAIRS = (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe"))


def find(path: str | os.PathLike[str]) -> Path | tuple[Path, Path]:
    """The file that is to be read, or the two of GPT-2. Raises TokenizerFileError where a folder holds none."""
    place = Path(path)
    try:
        is_folder = place.is_dir()
    except (OSError, ValueError) as error:
        raise TokenizerFileError(f"{place}: cannot be read: {error}") from error
    if not is_folder:
        return place
    if (place / "tokenizer.json").is_file():
        return place / "tokenizer.json"
    for vocab_name, merges_name in _PAIRS:
        vocab, merges = place / vocab_name, place / merges_name
        if vocab.is_file() and merges.is_file():
            return vocab, merges
        if vocab.is_file() or merges.is_file():
            there, missing = (vocab_name, merges_name) if vocab.is_file() else (merges_name, vocab_name)
            raise TokenizerFileError(
                f"{place}: holds {there} but not {missing}", hint="Put both into the folder."
            )
    raise TokenizerFileError(f"{place}: no tokenizer in this folder", hint=UNDERSTOOD)
