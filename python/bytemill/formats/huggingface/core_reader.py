"""Fast loading of `tokenizer.json`: vocabulary and merges by the core or from the cache, the rest by Python."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from bytemill._core import TokenizerJson
from bytemill.errors import BytemillError
from bytemill.formats import compiled_cache
from bytemill.formats.files import is_object, parse_json
from bytemill.formats.huggingface import tokenizer_json
from bytemill.formats.huggingface.characters import is_character_model
from bytemill.formats.huggingface.model import refuse_other_models, special_tokens_of
from bytemill.formats.huggingface.normalizer import from_normalizer
from bytemill.formats.huggingface.post_processor import metadata_of
from bytemill.formats.loaded import Loaded
from bytemill.formats.spec import special_rules

if TYPE_CHECKING:
    from pathlib import Path


def load_tokenizer_json(data: bytes, location: str) -> Loaded | None:
    """Load a `tokenizer.json` with the core; None if the core does not support the file.

    Args:
        data: Content of the file.
        location: Name of the file, for errors.

    Raises:
        TokenizerFileError: The file is damaged or unsupported.
    """
    entry = compiled_cache.entry_of(data)
    if (loaded := _load_entry(entry, location)) is not None:
        return loaded
    read = TokenizerJson.read(data)
    if read is None:
        return None
    file, rest = read
    n_entries, n_merges = file.n_entries, file.n_merges
    loaded = _load(file, rest, location)
    if loaded is not None:
        compiled_cache.write(entry, lambda: loaded.core.compiled(rest, n_entries, n_merges))
    return loaded


def load_from_cache(path: Path) -> Loaded | None:
    """Load a file of which the cache has the vocabulary; None if it has none. Reads the file only to identify it."""
    return _load_entry(compiled_cache.entry_of_file(path), str(path))


def _load_entry(entry: Path | None, location: str) -> Loaded | None:
    block = compiled_cache.read(entry)
    if block is None or (read := TokenizerJson.read_compiled(block)) is None:
        return None
    with contextlib.suppress(BytemillError):
        return _load(*read, location)
    return None


def _load(file: TokenizerJson, rest: str, location: str) -> Loaded | None:
    # `rest` is the file with an empty vocabulary and no merges.
    document: Any = parse_json(rest, location)
    if not is_object(document) or not is_object(document.get("model")):
        return None
    model: dict[str, Any] = document["model"]
    refuse_other_models(model, location)
    if is_character_model(document):
        return None
    tokenizer_json.refuse_unsupported(document, location)
    special_tokens, flags = special_tokens_of(
        document.get("added_tokens", []), file.id_of, file.n_entries, f"{location}: added_tokens"
    )
    pattern, record = tokenizer_json.pattern_and_record(document, file.n_merges, location)
    metadata = metadata_of(document, location)
    normalizer = from_normalizer(document.get("normalizer"), f"{location}: normalizer")
    rules = special_rules(special_tokens, flags, normalizer)
    core = file.encoder(special_tokens, pattern, bool(model.get("ignore_merges")), rules, normalizer)
    if core is None:
        return None
    return Loaded(core, record.get("ties"), record.get("merge_counts"), flags, metadata)
