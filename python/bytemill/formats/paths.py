"""Where in a folder a tokenizer is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bytemill.errors import TokenizerFileError

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

SUPPORTED_FILES = (
    "bytemill reads a tokenizer.json, a .tiktoken rank file, a GGUF file, minbpe's .model, and a folder with a "
    "tokenizer.json or with vocab.json and merges.txt."
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
    raise TokenizerFileError(f"{place}: no tokenizer in this folder", hint=SUPPORTED_FILES)


def vocab_and_merges_paths(path: Path) -> tuple[Path, Path]:
    """Where GPT-2's two files are to be written: `path` is the name of one of them, or a folder.

    >>> [file.name for file in vocab_and_merges_paths(Path("gpt2_vocab.json"))]
    ['gpt2_vocab.json', 'gpt2_merges.txt']
    """
    if not path.is_dir():
        for vocab_name, merges_name in _PAIRS:
            for name in (vocab_name, merges_name):
                if path.name.endswith(name):
                    start = path.name.removesuffix(name)
                    return path.with_name(start + vocab_name), path.with_name(start + merges_name)
    return path / "vocab.json", path / "merges.txt"


def sibling_merges(vocab: Path) -> Path | None:
    """The merges file that lies beside a vocabulary file and is named alike.

    `vocab.json` belongs to `merges.txt`, `gpt2_vocab.json` to `gpt2_merges.txt`.
    """
    return _other_half(vocab, _PAIRS)


def sibling_vocab(merges: Path) -> Path | None:
    """The vocabulary file that lies beside a merges file and is named alike."""
    return _other_half(merges, [(merges_name, vocab_name) for vocab_name, merges_name in _PAIRS])


def _other_half(file: Path, names: Iterable[tuple[str, str]]) -> Path | None:
    for own, other in names:
        if file.name.endswith(own):
            beside = file.with_name(file.name.removesuffix(own) + other)
            return beside if beside.is_file() else None
    return None
