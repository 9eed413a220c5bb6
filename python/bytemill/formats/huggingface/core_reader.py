"""Fast loading of `tokenizer.json`: vocabulary and merges by the core, the rest by Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bytemill._core import CharacterJson, TokenizerJson
from bytemill.errors import TokenizerFileError
from bytemill.formats.files import array_at, is_object, parse_json
from bytemill.formats.huggingface import tokenizer_json
from bytemill.formats.huggingface.characters import fallback_texts, is_character_model, settings_of
from bytemill.formats.huggingface.model import refuse_other_models, special_tokens_of
from bytemill.formats.huggingface.post_processor import metadata_of
from bytemill.formats.ids import is_text
from bytemill.formats.loaded import Loaded
from bytemill.formats.spec import special_rules

if TYPE_CHECKING:
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
    # Files of BPE over characters never have the word.
    read = TokenizerJson.read(data) if b'"ByteLevel"' in data else CharacterJson.read(data)
    if read is None:
        return None
    file, rest = read
    document = _checked_document(rest, location)
    if sidecars is not None:
        document = sidecars.amended(document, file.id_of, file.n_entries)
    if isinstance(file, CharacterJson):
        _add_named_tokens(document, file, location)
    return _load(file, document, location, sidecars)


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
