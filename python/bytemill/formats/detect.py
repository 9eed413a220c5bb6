"""Read a tokenizer file of any supported format, recognized by its content."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bytemill.errors import TokenizerFileError
from bytemill.formats import gpt2, minbpe
from bytemill.formats.bytes_to_unicode import CHARACTER_TO_BYTE
from bytemill.formats.files import GGUF_MAGIC, begins_with, decode_utf8, is_object, parse_json, read_bytes
from bytemill.formats.gguf import gguf
from bytemill.formats.huggingface import tokenizer_json as huggingface
from bytemill.formats.huggingface.sidecars import Sidecars
from bytemill.formats.paths import SUPPORTED_FILES, find, vocab_and_merges_paths
from bytemill.formats.registry import format_of_content
from bytemill.formats.sentencepiece import model as sentencepiece
from bytemill.formats.tiktoken import rank_settings, tiktoken
from bytemill.formats.vocab_listing import looks_like_listing

if TYPE_CHECKING:
    import os
    from pathlib import Path
    from types import EllipsisType

    from bytemill.formats.spec import SpecialTokens, TokenizerSpec

OWN_PARTS_HINT = (
    "leave out --pattern and --special-token (pattern=, special_tokens=), which are for files that store none; "
    "--add-special-token (Tokenizer.with_special_tokens) adds special tokens"
)
_BOTH_FILES = "give the folder that contains both vocab.json and merges.txt, or use from_files"


class IncompletePairError(TokenizerFileError):
    """The file is one of GPT-2's two files, and the other one is missing."""


def read(
    path: str | os.PathLike[str],
    *,
    pattern: str | EllipsisType | None = ...,
    special_tokens: SpecialTokens | None = None,
) -> TokenizerSpec:
    """Read the tokenizer at `path`.

    Args:
        path: A file of any supported format, one of GPT-2's two files beside the other one, or a folder.
        pattern: Pattern for a file that stores none. By default that of the settings file beside a rank file, of the
            published rank file with this content, or GPT-2's for its own files.
        special_tokens: Special tokens for a file that stores none, with the same defaults.

    Raises:
        TokenizerFileError: The file is missing, damaged or unsupported, or stores its own pattern.
    """
    found = find(path)
    if isinstance(found, tuple):
        return _read_pair(*found, pattern, special_tokens)
    if begins_with(found, GGUF_MAGIC):
        _refuse_arguments(..., special_tokens, str(found))
        return gguf.read(found, pattern)
    data = read_bytes(found)
    if tiktoken.looks_like_ranks(data):
        pattern, special_tokens = rank_settings.with_settings(found, data, pattern, special_tokens)
    sidecars = Sidecars.beside(found.parent) if found.name == "tokenizer.json" else None
    spec = from_content(data, found, pattern, special_tokens, sidecars)
    return spec if sidecars is None else replace(spec, metadata=sidecars.metadata(spec.metadata))


def from_content(
    data: bytes,
    file: Path,
    pattern: str | EllipsisType | None = ...,
    special_tokens: SpecialTokens | None = None,
    sidecars: Sidecars | None = None,
) -> TokenizerSpec:
    """Read a file's content; for one of GPT-2's two files, also read the other one beside `file`."""
    try:
        return from_bytes(data, str(file), pattern, special_tokens, sidecars)
    except IncompletePairError:
        vocab, merges = vocab_and_merges_paths(file)
        if not (vocab.is_file() and merges.is_file()):
            raise
        return _read_pair(vocab, merges, pattern, special_tokens)


def _read_pair(
    vocab: Path, merges: Path, pattern: str | EllipsisType | None, special_tokens: SpecialTokens | None
) -> TokenizerSpec:
    """Read GPT-2's two files, and those beside them if they have the names that transformers knows."""
    sidecars = Sidecars.beside(vocab.parent, of_model=True) if vocab.name == "vocab.json" else None
    return gpt2.read(vocab, merges, special_tokens, pattern=pattern, sidecars=sidecars)


def from_bytes(
    data: bytes,
    location: str,
    pattern: str | EllipsisType | None = ...,
    special_tokens: SpecialTokens | None = None,
    sidecars: Sidecars | None = None,
) -> TokenizerSpec:
    """Read a file's content, with what the files beside it add; `location` names the file in errors.

    Other arguments as for `read`.
    """
    if (registered := format_of_content(data)) is not None:
        _refuse_arguments(pattern, special_tokens, location)
        return registered.read(data, location)
    if data.startswith(GGUF_MAGIC):
        _refuse_arguments(..., special_tokens, location)
        return gguf.from_bytes(data, location, pattern)
    if tiktoken.looks_like_ranks(data):
        return tiktoken.from_bytes(data, location, pattern, special_tokens)
    if sentencepiece.looks_like_model(data):
        _refuse_arguments(pattern, special_tokens, location)
        return sentencepiece.read(data, location)
    if looks_like_listing(data):
        raise TokenizerFileError(
            f"{location}: a listing for people; it does not identify every token",
            hint="give the .model file beside it",
        )
    text = decode_utf8(data, location)
    if minbpe.dialect_of(data) is not None:
        _refuse_arguments(pattern, special_tokens, location)
        return minbpe.from_text(text, location)
    if text.lstrip().startswith("{"):
        document = parse_json(text, location)
        if _is_vocabulary(document):
            raise IncompletePairError(f"{location}: a vocabulary without its merges", hint=_BOTH_FILES)
        if is_object(document) and "model" in document:
            _refuse_arguments(pattern, special_tokens, location)
            return huggingface.from_document(document, location, sidecars)
    elif _is_merges(text):
        raise IncompletePairError(f"{location}: merges without their vocabulary", hint=_BOTH_FILES)
    raise TokenizerFileError(f"{location}: unknown format", hint=SUPPORTED_FILES)


def _refuse_arguments(
    pattern: str | EllipsisType | None,
    special_tokens: SpecialTokens | None,
    location: str,
) -> None:
    if pattern is not ... or special_tokens is not None:
        raise TokenizerFileError(
            f"{location} stores its pattern and special tokens; only a rank file and vocab.json with merges.txt "
            "take explicit ones",
            hint=OWN_PARTS_HINT,
        )


def _is_vocabulary(document: Any) -> bool:
    """Return whether most values of a JSON object are ids. The reader reports those that are not."""
    if not is_object(document) or not document:
        return False
    return sum(type(value) is int for value in document.values()) * 2 > len(document)


def _is_merges(text: str) -> bool:
    """Return whether the first line is the header of merges.txt, or a merge of two single bytes."""
    first = next((line for line in text[:4096].split("\n") if line.strip()), "").removesuffix("\r")
    if re.fullmatch(r"#version: [0-9.]+", first):
        return True
    parts = first.split(" ")
    return len(parts) == 2 and all(part in CHARACTER_TO_BYTE for part in parts)
