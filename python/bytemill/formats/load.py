"""Load a tokenizer file into an encoder.

The core reads tokens and merges; Python reads the rest. Files that the core does not support, and damaged files, go to
the reference readers of `detect`, which report what is wrong.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from bytemill._core import RankFile
from bytemill.errors import BytemillError
from bytemill.formats.files import GGUF_MAGIC, begins_with, read_bytes
from bytemill.formats.ids import MAX_ID
from bytemill.formats.loaded import Loaded, build_file
from bytemill.formats.paths import SIDECAR_FILES, find, vocab_and_merges_paths
from bytemill.formats.registry import format_of_content
from bytemill.formats.spec import explicit_ids
from bytemill.storage import local_input

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping
    from types import EllipsisType

    from bytemill.formats.huggingface.sidecars import Sidecars
    from bytemill.formats.spec import SpecialTokens


def load(
    path: str | os.PathLike[str],
    pattern: str | EllipsisType | None = ...,
    special_tokens: SpecialTokens | None = None,
) -> Loaded:
    """Load the tokenizer at `path`. Arguments and errors are those of `detect.read`."""
    path = local_input(path, _siblings(path))
    found = find(path)
    if isinstance(found, Path) and begins_with(found, GGUF_MAGIC) and special_tokens is None:
        from bytemill.formats.gguf import gguf

        return gguf.load(found, pattern)
    if not isinstance(found, Path) or begins_with(found, GGUF_MAGIC):
        from bytemill.formats import detect

        return build_file(detect.read(path, pattern=pattern, special_tokens=special_tokens), str(path))
    sidecars = None
    if found.name == "tokenizer.json":
        from bytemill.formats.huggingface.sidecars import Sidecars

        sidecars = Sidecars.beside(found.parent)
    loaded = _read(found, pattern, special_tokens, sidecars)
    return loaded if sidecars is None else replace(loaded, metadata=sidecars.metadata(loaded.metadata))


def _siblings(path: str | os.PathLike[str]) -> list[str]:
    """Return the names of the files that belong to one of this name."""
    name = PurePath(path).name
    if name == "tokenizer.json":
        return [*SIDECAR_FILES]
    if name in ("vocab.json", "merges.txt"):
        return ["vocab.json", "merges.txt", *SIDECAR_FILES]
    if not name.endswith((".json", ".txt", ".bpe")):
        return [f"{name}.json"]
    return [file.name for file in vocab_and_merges_paths(Path(name))]


def _read(
    found: Path,
    pattern: str | EllipsisType | None,
    special_tokens: SpecialTokens | None,
    sidecars: Sidecars | None,
) -> Loaded:
    data, location = read_bytes(found), str(found)
    if _looks_like_ranks(data):
        from bytemill.formats.tiktoken import rank_settings

        pattern, special_tokens = rank_settings.with_settings(found, data, pattern, special_tokens)
    is_registered = format_of_content(data) is not None
    loaded = None if is_registered else load_fast(data, location, pattern, special_tokens, sidecars)
    if loaded is None:
        # Imported late: all readers together take longer to import than a rank file takes to load.
        from bytemill.formats import detect

        return build_file(detect.from_content(data, found, pattern, special_tokens, sidecars), location)
    return loaded


def load_fast(
    data: bytes,
    location: str,
    pattern: str | EllipsisType | None = ...,
    special_tokens: SpecialTokens | None = None,
    sidecars: Sidecars | None = None,
) -> Loaded | None:
    """Load a file's content with the core; None if the reference reader must read or reject it."""
    try:
        if _looks_like_ranks(data):
            ids = None if special_tokens is None else explicit_ids(special_tokens)
            if ids is None and special_tokens is not None:
                return None
            return _from_ranks(data, location, pattern, ids)
        if pattern is ... and special_tokens is None:
            from bytemill.formats.huggingface.core_reader import load_tokenizer_json

            return load_tokenizer_json(data, location, sidecars)
    except BytemillError:
        pass
    return None


def _looks_like_ranks(data: bytes) -> bool:
    # No base64 begins with "{"; this spares a tokenizer.json the import of the rank file reader.
    if data[:4096].lstrip().startswith(b"{"):
        return False
    from bytemill.formats.tiktoken import tiktoken

    return tiktoken.looks_like_ranks(data)


def _from_ranks(
    data: bytes,
    location: str,
    pattern: str | EllipsisType | None,
    special_tokens: Mapping[str, int] | None,
) -> Loaded | None:
    ids = (special_tokens or {}).values()
    if not all(type(token_id) is int and 0 <= token_id <= MAX_ID for token_id in ids):
        return None
    from bytemill.formats.tiktoken import tiktoken

    file = RankFile.read(data)
    if file is None:
        return None
    pattern, special = tiktoken.complete(
        data, location, file.n_ranks, file.token, pattern=pattern, special_tokens=special_tokens
    )
    return Loaded(file.encoder(special, pattern))
