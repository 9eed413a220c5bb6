"""Tokenizer files straight into an encoder.

The core reads what is large, tokens and merges, and Python decides about the rest with the same functions as the
readers of `TokenizerSpec`. Those are the slow twins of this module, and what it falls back to: for every file that
the core does not take for beyond doubt, and for every one that is refused, so that they alone say why.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from bytemill._core import RankFile
from bytemill.errors import BytemillError
from bytemill.formats.files import GGUF_MAGIC, begins_with, read_bytes
from bytemill.formats.ids import MAX_ID
from bytemill.formats.loaded import Loaded, build_file
from bytemill.formats.paths import find
from bytemill.formats.registry import format_of_content
from bytemill.formats.spec import given_ids

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping
    from types import EllipsisType

    from bytemill.formats.spec import GivenSpecialTokens


def load(
    path: str | os.PathLike[str],
    pattern: str | EllipsisType | None = ...,
    special_tokens: GivenSpecialTokens | None = None,
) -> Loaded:
    """The tokenizer at `path`; arguments and errors are those of `detect.load`."""
    found = find(path)
    # A GGUF file may be as large as a model: of such a one only the head is read, by its own reader.
    if not isinstance(found, Path) or begins_with(found, GGUF_MAGIC):
        from bytemill.formats import detect

        return build_file(detect.load(path, pattern=pattern, special_tokens=special_tokens), str(path))
    data, where = read_bytes(found), str(found)
    if _looks_like_ranks(data):
        from bytemill.formats.tiktoken import rank_settings

        pattern, special_tokens = rank_settings.completed(found, data, pattern, special_tokens)
    is_registered = format_of_content(data) is not None
    quick = None if is_registered else load_quickly(data, where, pattern, special_tokens)
    if quick is None:
        # Brought in only here: the readers of all formats take longer to import than a rank file takes to load.
        from bytemill.formats import detect

        quick = build_file(detect.from_content(data, found, pattern, special_tokens), where)
    if found.name == "tokenizer.json":
        from bytemill.formats.huggingface.folder import with_files_beside

        return replace(quick, companions=with_files_beside(quick.companions, found.parent))
    return quick


def load_quickly(
    data: bytes,
    where: str,
    pattern: str | EllipsisType | None = ...,
    special_tokens: GivenSpecialTokens | None = None,
) -> Loaded | None:
    """The tokenizer in a file's content; None where it must be read the slow way, or is refused there."""
    try:
        if _looks_like_ranks(data):
            ids = None if special_tokens is None else given_ids(special_tokens)
            if ids is None and special_tokens is not None:
                return None
            return _from_ranks(data, where, pattern, ids)
        if pattern is ... and special_tokens is None:
            from bytemill.formats.huggingface.core_reader import load_tokenizer_json

            return load_tokenizer_json(data, where)
    except BytemillError:
        pass
    return None


def _looks_like_ranks(data: bytes) -> bool:
    # No base64 begins so, and a tokenizer.json needs no reader of ranks.
    if data[:4096].lstrip().startswith(b"{"):
        return False
    from bytemill.formats.tiktoken import tiktoken

    return tiktoken.looks_like_ranks(data)


def _from_ranks(
    data: bytes,
    where: str,
    pattern: str | EllipsisType | None,
    special_tokens: Mapping[str, int] | None,
) -> Loaded | None:
    given = (special_tokens or {}).values()
    if not all(type(token_id) is int and 0 <= token_id <= MAX_ID for token_id in given):
        return None
    from bytemill.formats.tiktoken import tiktoken

    file = RankFile.read(data)
    if file is None:
        return None
    pattern, special = tiktoken.complete(
        data, where, file.n_ranks, file.token, pattern=pattern, special_tokens=special_tokens
    )
    return Loaded(file.encoder(special, pattern))
