"""Fast loading of `tokenizer.json`: vocabulary and merges by the core or from the cache, the rest by Python."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

from bytemill._core import CharacterJson, TokenizerJson
from bytemill.errors import BytemillError, TokenizerFileError
from bytemill.formats import compiled_cache
from bytemill.formats.files import array_at, is_object, parse_json
from bytemill.formats.huggingface import tokenizer_json
from bytemill.formats.huggingface.characters import fallback_texts, is_character_model, settings_of
from bytemill.formats.huggingface.model import refuse_other_models, special_tokens_of
from bytemill.formats.huggingface.post_processor import metadata_of
from bytemill.formats.ids import is_text
from bytemill.formats.loaded import Loaded
from bytemill.formats.spec import special_rules

if TYPE_CHECKING:
    from pathlib import Path

    from bytemill.formats.huggingface.sidecars import Sidecars


def load_tokenizer_json(data: bytes, location: str, sidecars: Sidecars | None = None) -> Loaded | None:
    """Load a `tokenizer.json` with the core; None if the core does not support the file.

    Args:
        data: Content of the file.
        location: Name of the file, for errors.
        sidecars: The files beside it.

    Raises:
        TokenizerFileError: The file is damaged or unsupported.
    """
    entry = compiled_cache.entry_of(data)
    if (loaded := _load_entry(entry, location, sidecars)) is not None:
        return loaded
    if (read := _parse(data)) is None:
        return None
    file, rest = read
    document = _checked_document(rest, location)
    if sidecars is not None:
        amended = sidecars.amended(document, file.id_of, file.n_entries)
        # An entry of the cache belongs to the content of the file alone.
        document, entry = amended, entry if amended is document else None
    if isinstance(file, CharacterJson):
        _add_named_tokens(document, file, location)
        rest = json.dumps(document)
    loaded = _load(file, document, location, sidecars)
    if loaded is not None:
        n_entries, n_merges = file.n_entries, file.n_merges
        compiled_cache.write(entry, lambda: loaded.core.compiled(rest, n_entries, n_merges))
    return loaded


def _parse(data: bytes) -> tuple[TokenizerJson | CharacterJson, str] | None:
    # Files of BPE over characters never have the word.
    return TokenizerJson.read(data) if b'"ByteLevel"' in data else CharacterJson.read(data)


def load_from_cache(path: Path, sidecars: Sidecars | None = None) -> Loaded | None:
    """Load a file of which the cache has the vocabulary; None if it has none, or if the files beside it add tokens.

    Reads the file only to identify it.
    """
    return _load_entry(compiled_cache.entry_of_file(path), str(path), sidecars)


def _load_entry(entry: Path | None, location: str, sidecars: Sidecars | None) -> Loaded | None:
    block = compiled_cache.read(entry)
    if block is None or (read := TokenizerJson.read_compiled(block)) is None:
        return None
    with contextlib.suppress(BytemillError):
        file, rest = read
        document = _checked_document(rest, location)
        if sidecars is None or not sidecars.change(document):
            return _load(file, document, location, sidecars)
    return None


def _checked_document(rest: str, location: str) -> dict[str, Any]:
    """Parse a file with an empty vocabulary and no merges. Raises TokenizerFileError for models other than BPE."""
    document: Any = parse_json(rest, location)
    if not is_object(document) or not is_object(document.get("model")):
        raise TokenizerFileError(f"{location}: not a tokenizer.json: there is no 'model' object")
    refuse_other_models(document["model"], location)
    return document


def _load(
    file: TokenizerJson | CharacterJson,
    document: dict[str, Any],
    location: str,
    sidecars: Sidecars | None,
) -> Loaded | None:
    if is_character_model(document) != isinstance(file, CharacterJson):
        return None
    model: dict[str, Any] = document["model"]
    tokenizer_json.refuse_unsupported(document, location)
    if isinstance(file, CharacterJson):
        return _load_characters(file, document, location)
    special_tokens, flags = special_tokens_of(
        document.get("added_tokens", []), file.id_of, file.n_entries, f"{location}: added_tokens"
    )
    pattern, record = tokenizer_json.pattern_and_record(document, file.n_merges, location)
    metadata = metadata_of(document, location)
    normalizer = tokenizer_json.normalizer_of(document, location)
    rules = special_rules(special_tokens, flags, normalizer)
    core = file.encoder(special_tokens, pattern, bool(model.get("ignore_merges")), rules, normalizer)
    if core is None:
        return None
    if sidecars is not None:
        sidecars.warn_of_other_split(pattern, normalizer)
    return Loaded(core, record.get("ties"), record.get("merge_counts"), flags, metadata)


def _load_characters(file: CharacterJson, document: dict[str, Any], location: str) -> Loaded | None:
    model: dict[str, Any] = document["model"]
    vocab: dict[str, int] = model["vocab"]
    special_tokens, flags = special_tokens_of(
        document.get("added_tokens", []), vocab.get, file.n_entries, f"{location}: added_tokens"
    )
    settings = settings_of(document, vocab, location)
    characters = settings.characters
    core = file.encoder(
        special_tokens,
        settings.pattern,
        bool(model.get("ignore_merges")),
        characters.writes_spaces_as_meta,
        None if characters.unk_id is None else (characters.unk_id, characters.fuse_unk),
        special_rules(special_tokens, flags, settings.normalizer),
        settings.normalizer,
    )
    if core is None:
        return None
    return Loaded(core, flags=flags, metadata=metadata_of(document, location), characters=characters)


def _add_named_tokens(document: dict[str, Any], file: CharacterJson, location: str) -> None:
    """Put the tokens into a document's empty vocabulary that are looked up by their text."""
    added = array_at(document.get("added_tokens", []), f"{location}: added_tokens")
    texts = [entry.get("content") for entry in added if is_object(entry)]
    named: dict[str, int] = {}
    for text in (*fallback_texts(document["model"]), *texts):
        if isinstance(text, str) and is_text(text) and (token_id := file.id_of(text)) is not None:
            named[text] = token_id
    document["model"]["vocab"] = named
