"""Locate the tokenizer files of a folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bytemill.errors import TokenizerFileError

if TYPE_CHECKING:
    import os

SUPPORTED_FILES = (
    "bytemill reads a tokenizer.json, a .tiktoken rank file, a SentencePiece .model, a GGUF file, minbpe's .model, and "
    "a folder with a tokenizer.json, a tokenizer.model, or vocab.json and merges.txt"
)
SIDECAR_FILES = (
    *("tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja", "added_tokens.json"),
    "config.json",
)
"""Files beside a tokenizer.json, or beside vocab.json and merges.txt, that Hugging Face's transformers reads."""
_PAIRS = (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe"))


def find(path: str | os.PathLike[str]) -> Path | tuple[Path, Path]:
    """Return the file to read, or GPT-2's two files. Raises TokenizerFileError for a folder without a tokenizer."""
    path = Path(path)
    try:
        is_folder = path.is_dir()
    except (OSError, ValueError) as error:
        raise TokenizerFileError(f"{path}: cannot be read: {error}") from error
    if not is_folder:
        return path
    if (path / "tokenizer.json").is_file():
        return path / "tokenizer.json"
    for vocab_name, merges_name in _PAIRS:
        vocab, merges = path / vocab_name, path / merges_name
        if vocab.is_file() and merges.is_file():
            return vocab, merges
        if vocab.is_file() or merges.is_file():
            present, missing = (vocab_name, merges_name) if vocab.is_file() else (merges_name, vocab_name)
            raise TokenizerFileError(
                f"{path} contains {present} but not {missing}", hint="put both into the folder"
            )
    if (path / "tokenizer.model").is_file():  # a SentencePiece model, or the rank file of Llama 3
        return path / "tokenizer.model"
    raise TokenizerFileError(f"{path}: no tokenizer in this folder", hint=SUPPORTED_FILES)


def vocab_and_merges_paths(path: Path) -> tuple[Path, Path]:
    """Return the paths of GPT-2's two files, where `path` names one of them or a folder.

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
