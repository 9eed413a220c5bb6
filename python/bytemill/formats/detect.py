"""Opens a tokenizer file of any known format, recognised by its content."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bytemill.errors import TokenizerFileError
from bytemill.formats import gpt2, huggingface, tiktoken
from bytemill.formats.bytes_to_unicode import CHARACTER_TO_BYTE
from bytemill.formats.files import decode_utf8, is_object, parse_json, read_bytes
from bytemill.formats.huggingface_folder import with_files_beside
from bytemill.formats.places import UNDERSTOOD, find

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping
    from types import EllipsisType

    from bytemill.formats.spec import TokenizerSpec


def load(
    path: str | os.PathLike[str],
    *,
    pattern: str | EllipsisType | None = ...,
    special_tokens: Mapping[str, int] | None = None,
) -> TokenizerSpec:
    """The tokenizer at `path`: a tokenizer.json, a rank file, or a folder that holds one.

    `pattern` and `special_tokens` are for rank files, which hold neither; left out, they are those of the
    published file with the same content. Raises TokenizerFileError where there is none, of no known format,
    or damaged.
    """
    found = find(path)
    if isinstance(found, tuple):
        _refuse_arguments(pattern, special_tokens, str(Path(path)))
        return gpt2.read(*found)
    spec = from_bytes(read_bytes(found), str(found), pattern, special_tokens)
    if found.name == "tokenizer.json":
        return replace(spec, companions=with_files_beside(spec.companions, found.parent))
    return spec


def from_bytes(
    data: bytes,
    where: str,
    pattern: str | EllipsisType | None = ...,
    special_tokens: Mapping[str, int] | None = None,
) -> TokenizerSpec:
    """As `load`, of a file's content; `where` names it in errors."""
    if tiktoken.looks_like_ranks(data):
        return tiktoken.from_bytes(data, where, pattern, special_tokens)
    text = decode_utf8(data, where)
    if text.lstrip().startswith("{"):
        document = parse_json(text, where)
        if _is_vocabulary(document):
            raise TokenizerFileError(
                f"{where}: a vocabulary without its merges",
                hint="Give the folder that holds both vocab.json and merges.txt, or use from_files.",
            )
        if is_object(document) and "model" in document:
            _refuse_arguments(pattern, special_tokens, where)
            return huggingface.from_document(document, where)
    elif _is_merges(text):
        raise TokenizerFileError(
            f"{where}: merges without their vocabulary",
            hint="Give the folder that holds both vocab.json and merges.txt, or use from_files.",
        )
    raise TokenizerFileError(f"{where}: of no known format", hint=UNDERSTOOD)


def _refuse_arguments(
    pattern: str | EllipsisType | None, special_tokens: Mapping[str, int] | None, where: str
) -> None:
    if pattern is not ... or special_tokens is not None:
        raise TokenizerFileError(
            f"{where}: names its pattern and special tokens; only for a rank file can they be given"
        )


def _is_vocabulary(document: Any) -> bool:
    return (
        is_object(document)
        and bool(document)
        and all(type(token_id) is int for token_id in document.values())
    )


def _is_merges(text: str) -> bool:
    """Whether the first line is the header of merges.txt, or two single bytes as the first merge must
    have."""
    first = next((line for line in text[:4096].split("\n") if line.strip()), "").removesuffix("\r")
    if re.fullmatch(r"#version: [0-9.]+", first):
        return True
    parts = first.split(" ")
    return len(parts) == 2 and all(part in CHARACTER_TO_BYTE for part in parts)
