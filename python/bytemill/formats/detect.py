"""Opens a tokenizer file of any known format, recognised by its content."""

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
from bytemill.formats.huggingface.folder import with_files_beside
from bytemill.formats.paths import UNDERSTOOD, find, merges_beside, vocab_beside
from bytemill.formats.registry import format_of_content
from bytemill.formats.tiktoken import rank_settings, tiktoken
from bytemill.formats.vocab_listing import looks_like_listing

if TYPE_CHECKING:
    import os
    from pathlib import Path
    from types import EllipsisType

    from bytemill.formats.spec import GivenSpecialTokens, TokenizerSpec


def load(
    path: str | os.PathLike[str],
    *,
    pattern: str | EllipsisType | None = ...,
    special_tokens: GivenSpecialTokens | None = None,
) -> TokenizerSpec:
    """The tokenizer at `path`: a file of any format, one of GPT-2's two with the other beside it, or a folder.

    `pattern` and `special_tokens` are for files that hold neither, rank files and GPT-2's. Left out, they are
    for a rank file those of the file beside it (`rank_settings`) or of the published one with the same
    content. Raises TokenizerFileError where there is no file, of no known format, or a damaged one.
    """
    found = find(path)
    if isinstance(found, tuple):
        return gpt2.read(*found, special_tokens, pattern=pattern)
    if begins_with(found, GGUF_MAGIC):
        _refuse_arguments(..., special_tokens, str(found))
        return gguf.read(found, pattern)
    data = read_bytes(found)
    if tiktoken.looks_like_ranks(data):
        pattern, special_tokens = rank_settings.completed(found, data, pattern, special_tokens)
    spec = from_content(data, found, pattern, special_tokens)
    if found.name == "tokenizer.json":
        return replace(spec, companions=with_files_beside(spec.companions, found.parent))
    return spec


def from_content(
    data: bytes,
    file: Path,
    pattern: str | EllipsisType | None = ...,
    special_tokens: GivenSpecialTokens | None = None,
) -> TokenizerSpec:
    """As `from_bytes`, and where `file` is one of GPT-2's two, with the other that lies beside it."""
    try:
        return from_bytes(data, str(file), pattern, special_tokens)
    except HalfError:
        if (merges := merges_beside(file)) is not None:
            return gpt2.read(file, merges, special_tokens, pattern=pattern)
        if (vocab := vocab_beside(file)) is not None:
            return gpt2.read(vocab, file, special_tokens, pattern=pattern)
        raise


def from_bytes(
    data: bytes,
    where: str,
    pattern: str | EllipsisType | None = ...,
    special_tokens: GivenSpecialTokens | None = None,
) -> TokenizerSpec:
    """As `load`, of a file's content; `where` names it in errors."""
    if (registered := format_of_content(data)) is not None:
        _refuse_arguments(pattern, special_tokens, where)
        return registered.read(data, where)
    if data.startswith(GGUF_MAGIC):
        _refuse_arguments(..., special_tokens, where)
        return gguf.from_bytes(data, where, pattern)
    if tiktoken.looks_like_ranks(data):
        return tiktoken.from_bytes(data, where, pattern, special_tokens)
    if looks_like_listing(data):
        raise TokenizerFileError(
            f"{where}: a listing for people, in which tokens are no longer told apart",
            hint="Give the .model file that lies beside it.",
        )
    text = decode_utf8(data, where)
    if minbpe.dialect_of(data) is not None:
        _refuse_arguments(pattern, special_tokens, where)
        return minbpe.from_text(text, where)
    if text.lstrip().startswith("{"):
        document = parse_json(text, where)
        if _is_vocabulary(document):
            raise HalfError(
                f"{where}: a vocabulary without its merges",
                hint="Give the folder that holds both vocab.json and merges.txt, or use from_files.",
            )
        if is_object(document) and "model" in document:
            _refuse_arguments(pattern, special_tokens, where)
            return huggingface.from_document(document, where)
    elif _is_merges(text):
        raise HalfError(
            f"{where}: merges without their vocabulary",
            hint="Give the folder that holds both vocab.json and merges.txt, or use from_files.",
        )
    raise TokenizerFileError(f"{where}: of no known format", hint=UNDERSTOOD)


class HalfError(TokenizerFileError):
    """The file is one of GPT-2's two."""


def _refuse_arguments(
    pattern: str | EllipsisType | None,
    special_tokens: GivenSpecialTokens | None,
    where: str,
) -> None:
    if pattern is not ... or special_tokens is not None:
        raise TokenizerFileError(
            f"{where}: names its pattern and special tokens; they can be given only for a rank file and for "
            "vocab.json with merges.txt"
        )


def _is_vocabulary(document: Any) -> bool:
    """Whether most of its values are ids; one that is none is for the reader to name."""
    if not is_object(document) or not document:
        return False
    return sum(type(value) is int for value in document.values()) * 2 > len(document)


def _is_merges(text: str) -> bool:
    """Whether the first line is the header of merges.txt, or two single bytes as the first merge must
    have."""
    first = next((line for line in text[:4096].split("\n") if line.strip()), "").removesuffix("\r")
    if re.fullmatch(r"#version: [0-9.]+", first):
        return True
    parts = first.split(" ")
    return len(parts) == 2 and all(part in CHARACTER_TO_BYTE for part in parts)
