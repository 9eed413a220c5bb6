"""Tokenizer files straight into an encoder.

The core reads what is large, tokens and merges, and Python decides about the rest with the same functions as the
readers of `TokenizerSpec`. Those are the slow twins of this module, and what it falls back to: for every file that
the core does not take for beyond doubt, and for every one that is refused, so that they alone say why.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bytemill._core import RankFile, TokenizerJson
from bytemill.errors import BytemillError
from bytemill.formats.files import GGUF_MAGIC, begins_with, is_object, parse_json, read_bytes
from bytemill.formats.ids import MAX_ID
from bytemill.formats.loaded import Loaded, build_file
from bytemill.formats.paths import find
from bytemill.formats.spec import given_ids, special_rules

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
    quick = load_quickly(data, where, pattern, special_tokens)
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
            return _from_json(data, where)
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


def _from_json(data: bytes, where: str) -> Loaded | None:
    read = TokenizerJson.read(data)
    if read is None:
        return None
    from bytemill.formats.huggingface import tokenizer_json as huggingface
    from bytemill.formats.huggingface.model import refuse_other_models, special_tokens_of
    from bytemill.formats.huggingface.post_processor import companions_of

    file, rest = read
    # The file with an empty vocabulary and no merges, which the core has.
    document: Any = parse_json(rest, where)
    if not is_object(document) or not is_object(document.get("model")):
        return None
    model: dict[str, Any] = document["model"]
    refuse_other_models(model, where)
    huggingface.refuse_unsupported(document, where)
    special_tokens, flags = special_tokens_of(
        document.get("added_tokens", []), file.id_of, file.n_entries, f"{where}: added_tokens"
    )
    pattern, record = huggingface.pattern_and_record(document, file.n_merges, where)
    companions = companions_of(document, where)
    normalizer = huggingface.normalizer_of(document, flags, where)
    rules = special_rules(special_tokens, flags, normalizer)
    core = file.encoder(special_tokens, pattern, bool(model.get("ignore_merges")), rules, normalizer == "NFC")
    if core is None:
        return None
    return Loaded(core, record.get("ties"), record.get("merge_counts"), flags, companions)
