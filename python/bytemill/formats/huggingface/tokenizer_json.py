"""Hugging Face's `tokenizer.json`: bytemill's own file format, and the one that most tools open.

Files written here load unchanged in `tokenizers` and give the same ids there. What the format has no field for (ties
and merge counts of training) is in `model.bytemill`: `tokenizers` rejects unknown fields at the top level and ignores
them inside the model.

Files read here give the ids of `tokenizers` with `encode(text, add_special_tokens=False)`. Post-processors and
decoders do not affect ids; they are kept unchanged and written again. Every added token becomes a special token with
its flags. A feature that bytemill does not support exactly is an error that names it.

The core reads vocabulary and merges, or the cache has them; Python reads the rest. Files that the core does not
support, and damaged ones, go to the reader in Python, which says what is wrong (`load_tokenizer_json`,
`from_document`).
"""

from __future__ import annotations

import contextlib
import json
import unicodedata
from dataclasses import asdict, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

from bytemill._core import CharacterJson, TokenizerJson, check_pattern
from bytemill.errors import BytemillError, TokenizerError, TokenizerFileError
from bytemill.formats import compiled_cache
from bytemill.formats.byte_level import (
    CHARACTER_TO_BYTE,
    is_text_of_other_bytes,
    is_vocabulary,
    missing_bytes,
    text_to_bytes,
)
from bytemill.formats.encoder import Loaded
from bytemill.formats.files import (
    array_at,
    is_object,
    is_text,
    parse_json,
    shown,
    wrong_value,
)
from bytemill.formats.huggingface import characters as character_models
from bytemill.formats.huggingface.characters import (
    OWN_BYTES,
    fallback_texts,
    is_character_model,
    settings_of,
)
from bytemill.formats.huggingface.normalizers import NORMALIZERS, from_normalizer, to_normalizer
from bytemill.formats.huggingface.parts import (
    DECODER,
    DECODERS,
    FLAGS,
    MODEL_OPTIONS,
    POST_PROCESSOR,
    POST_PROCESSORS,
    check_decoder,
    check_model,
    metadata_of,
    special_tokens_of,
)
from bytemill.formats.huggingface.pre_tokenizers import (
    PRE_TOKENIZERS,
    PREFIX,
    Splitting,
    own_splitting,
    splitting_of,
    to_pre_tokenizer,
)
from bytemill.formats.huggingface.sidecars import Sidecars
from bytemill.formats.spec import (
    PretokenShape,
    TokenFlags,
    TokenizerMetadata,
    TokenizerSpec,
    checked_record,
    record_of,
    special_rules,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from bytemill._core import Encoder
    from bytemill.formats.huggingface.components import Table
    from bytemill.formats.registry import Content
    from bytemill.formats.spec import CharacterModel, LibraryModel, NormalizerSteps

TABLES: tuple[Table[Any], ...] = (
    NORMALIZERS,
    PRE_TOKENIZERS,
    MODEL_OPTIONS,
    FLAGS,
    POST_PROCESSORS,
    DECODERS,
)
"""Everything of a tokenizer.json that the core runs."""
_FIELDS = frozenset(
    (
        *("version", "truncation", "padding", "added_tokens"),
        *("normalizer", "pre_tokenizer", "post_processor", "decoder", "model"),
    )
)
_COUNTS_PER_LINE = 16
_DEFAULT_FLAGS = TokenFlags()


def recognize(content: Content) -> bool:
    """Return whether a file is a JSON object with a model."""
    document = content.document
    return is_object(document) and "model" in document and not is_vocabulary(document)


def read(content: Content) -> TokenizerSpec:
    """Read a file, with what the files beside it add. Raises TokenizerFileError."""
    sidecars = Sidecars.of_file(content.file)
    content.refuse_arguments()
    spec = from_document(content.document, content.location, sidecars)
    return spec if sidecars is None else replace(spec, metadata=sidecars.metadata(spec.metadata))


def load(content: Content) -> Loaded | None:
    """Load a file with the core, with what the files beside it add. Raises as `load_tokenizer_json`."""
    sidecars = Sidecars.of_file(content.file)
    return _with_metadata(load_tokenizer_json(content.data, content.location, sidecars), sidecars)


def render(spec: TokenizerSpec, path: Path) -> dict[Path, bytes]:
    """Return the file to write; in a folder, it is named tokenizer.json. Raises as `write`."""
    return {(path / "tokenizer.json" if path.is_dir() else path): write(spec).encode()}


def left_out(_: TokenizerSpec) -> list[str]:
    """Describe what the file does not store: nothing."""
    return []


def load_from_cache(path: Path) -> Loaded | None:
    """Load a file of which the cache has the vocabulary; None if it has none, or if the files beside it add tokens.

    Reads the file only to identify it.
    """
    sidecars = Sidecars.of_file(path)
    return _with_metadata(_load_entry(compiled_cache.entry_of_file(path), str(path), sidecars), sidecars)


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
    if (read := _parse(data)) is None or not read[0].n_entries:
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
        core = cast("Encoder", loaded.core)
        compiled_cache.write(entry, lambda: core.compiled(rest, n_entries, n_merges))
    return loaded


def _with_metadata(loaded: Loaded | None, sidecars: Sidecars | None) -> Loaded | None:
    if loaded is None or sidecars is None:
        return loaded
    return replace(loaded, metadata=sidecars.metadata(loaded.metadata))


def _parse(data: bytes) -> tuple[TokenizerJson | CharacterJson, str] | None:
    # Files of BPE over characters never have the word.
    return TokenizerJson.read(data) if b'"ByteLevel"' in data else CharacterJson.read(data)


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
    check_model(document["model"], f"{location}: model")
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
    refuse_unsupported(document, location)
    if isinstance(file, CharacterJson):
        return _load_characters(file, document, location)
    special_tokens, flags = special_tokens_of(
        document.get("added_tokens", []), file.id_of, file.n_entries, f"{location}: added_tokens"
    )
    splitting, record = splitting_and_record(document, file.n_merges, location)
    shape = _shape_of(splitting, model, f"{location}: model", lacks_bytes=file.missing_byte is not None)
    metadata = metadata_of(document, location)
    normalizer = normalizer_of(document, splitting, location)
    _check_decoding(document, special_tokens, flags, normalizer, location)
    core = file.encoder(
        special_tokens,
        splitting.pattern,
        bool(model.get("ignore_merges")),
        special_rules(special_tokens, flags, normalizer),
        normalizer,
        shape,
    )
    if core is None:
        return None
    if sidecars is not None:
        sidecars.warn_of_other_split(splitting.pattern, normalizer)
    return Loaded(
        core,
        record.get("ties"),
        record.get("merge_counts"),
        flags,
        metadata,
        joins_tokens=document.get("decoder") is None,
    )


def _shape_of(
    splitting: Splitting, model: dict[str, Any], location: str, *, lacks_bytes: bool
) -> PretokenShape:
    """Return how the pre-tokens of byte-level BPE change.

    Raises:
        TokenizerFileError: An option of the model does not go with another one, or with missing bytes.
    """
    shape = splitting.shape._replace(
        suffix=model.get("end_of_word_suffix") or None, drops_unknown=lacks_bytes
    )
    if lacks_bytes and (model.get("unk_token") is not None or model.get("byte_fallback") or shape.suffix):
        raise TokenizerFileError(f"{location}.vocab lacks bytes, for which there is another token")
    if model.get("ignore_merges") and (shape.suffix or shape.space_before):
        raise TokenizerFileError(f"{location}.ignore_merges is true, which is not supported for such words")
    return shape


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
        settings.shape,
    )
    if core is None:
        return None
    return Loaded(
        core,
        flags=flags,
        metadata=metadata_of(document, location),
        characters=characters,
        joins_tokens=document.get("decoder") is None,
    )


def _add_named_tokens(document: dict[str, Any], file: CharacterJson, location: str) -> None:
    """Put the tokens into a document's empty vocabulary that are looked up by their text."""
    added = array_at(document.get("added_tokens", []), f"{location}: added_tokens")
    texts = [entry.get("content") for entry in added if is_object(entry)]
    named: dict[str, int] = {}
    for text in (*fallback_texts(document["model"]), *OWN_BYTES, *texts):
        if isinstance(text, str) and is_text(text) and (token_id := file.id_of(text)) is not None:
            named[text] = token_id
    document["model"]["vocab"] = named


def from_text(text: str, location: str = "tokenizer.json") -> TokenizerSpec:
    """Read the text of a tokenizer.json; `location` names the file in errors.

    Raises:
        TokenizerFileError: The file is damaged or has a feature that is not supported exactly.
    """
    return from_document(parse_json(text, location), location)


def for_library(content: Content) -> tuple[str, TokenizerMetadata | None]:
    """Return a file for Hugging Face's library, and its metadata, with what the files beside it add.

    Raises:
        TokenizerFileError: A file is damaged.
    """
    document: dict[str, Any] = content.document
    metadata = metadata_of(document, content.location)
    sidecars = Sidecars.of_file(content.file)
    if sidecars is None:
        return content.text, metadata
    vocab: Any = document["model"].get("vocab") if is_object(document["model"]) else None
    if isinstance(vocab, list):  # of a Unigram model: pieces and their scores
        pieces = enumerate(cast("list[Any]", vocab))
        vocab = {cast("Any", each[0]): index for index, each in pieces if isinstance(each, list) and each}
    amended = sidecars.amended(document, vocab.get, len(vocab)) if is_object(vocab) else document
    text = content.text if amended is document else json.dumps(amended)
    return text, sidecars.metadata(metadata)


def from_document(document: Any, location: str, sidecars: Sidecars | None = None) -> TokenizerSpec:
    """Read a parsed tokenizer.json, with what the files beside it add; `location` names it in errors. See `read`."""
    if not is_object(document) or not is_object(document.get("model")):
        raise TokenizerFileError(f"{location}: not a tokenizer.json: there is no 'model' object")
    model: dict[str, Any] = document["model"]
    check_model(model, f"{location}: model")
    refuse_unsupported(document, location)
    if sidecars is not None and is_object(vocab := model.get("vocab")):
        document = sidecars.amended(document, vocab.get, len(vocab))
    if character_models.is_character_model(document):
        return _character_spec(document, location)
    special_tokens, flags, vocab, merges = read_model(model, document.get("added_tokens", []), location)
    splitting, record = splitting_and_record(document, len(merges), location)
    lacks_bytes = missing_bytes(vocab.values()) is not None
    shape = _shape_of(splitting, model, f"{location}: model", lacks_bytes=lacks_bytes)
    metadata = metadata_of(document, location)
    normalizer = normalizer_of(document, splitting, location)
    _check_decoding(document, special_tokens, flags, normalizer, location)
    if sidecars is not None:
        sidecars.warn_of_other_split(splitting.pattern, normalizer)
    return TokenizerSpec(
        pattern=splitting.pattern,
        special_tokens=special_tokens,
        vocab=vocab,
        merges=merges,
        ignore_merges=bool(model.get("ignore_merges")),
        ties=record.get("ties"),
        merge_counts=record.get("merge_counts"),
        normalizer=normalizer,
        flags=flags,
        shape=shape,
        joins_tokens=document.get("decoder") is None,
        metadata=metadata,
    )


def _check_decoding(
    document: dict[str, Any],
    special_tokens: Iterable[str],
    flags: Mapping[str, TokenFlags],
    normalizer: NormalizerSteps,
    location: str,
) -> None:
    """Raise TokenizerFileError if byte-level BPE is not decoded by joining the bytes of its tokens."""
    check_decoder(document.get("decoder"), f"{location}: decoder")
    for text in special_tokens if document.get("decoder") is not None else ():
        if not text.isascii() and is_text_of_other_bytes(text):
            raise TokenizerFileError(
                f"{location}: added_tokens: {shown(text)} is decoded as the bytes {text_to_bytes(text)!r}"
            )
        if text in flags and flags[text].normalized and _may_become_bytes(text, normalizer):
            raise TokenizerFileError(
                f"{location}: added_tokens: {shown(text)} may be decoded as bytes when it is normalized"
            )


def _may_become_bytes(text: str, normalizer: NormalizerSteps) -> bool:
    """Return whether a token may be text of other bytes once it is normalized, as it is decoded if it is found then."""
    if any(step[0] == "Replace" and step[1] in text for step in normalizer):
        return True
    text = "".join(step[1] for step in normalizer if step[0] == "Prepend") + text.strip()
    first = (unicodedata.normalize("NFKD", character.lower())[:1] for character in text)
    return bool(normalizer) and not text.isascii() and CHARACTER_TO_BYTE.keys() >= set(first)


def _character_spec(document: dict[str, Any], location: str) -> TokenizerSpec:
    model: dict[str, Any] = document["model"]
    special_tokens, flags, vocab, pairs = checked_model(model, document.get("added_tokens", []), location)
    spec = character_models.read(document, vocab, pairs, special_tokens, location)
    joins_tokens = document.get("decoder") is None
    return replace(spec, flags=flags, metadata=metadata_of(document, location), joins_tokens=joins_tokens)


def read_model(
    model: dict[str, Any], added_tokens: Any, location: str
) -> tuple[dict[str, int], dict[str, TokenFlags], dict[int, bytes], list[tuple[bytes, bytes]]]:
    """Return the special tokens, their flags, the ordinary tokens by id, and the merges.

    Args:
        model: The field `model` of the file.
        added_tokens: The field `added_tokens`.
        location: Name of the file, for errors.

    Raises:
        TokenizerFileError: A field is damaged; the message has its path.
    """
    # Imported late: loading with the core does not need it.
    from bytemill.formats.byte_level import tokens_and_merges

    special_tokens, flags, vocab, pairs = checked_model(model, added_tokens, location)
    tokens, merges = tokens_and_merges(
        vocab,
        pairs,
        special_tokens,
        vocab_location=f"{location}: model.vocab",
        merge_location=lambda index: f"{location}: model.merges[{index}]",
        may_lack_bytes=model.get("unk_token") is None and not model.get("byte_fallback"),
    )
    return special_tokens, flags, tokens, merges


def checked_model(
    model: dict[str, Any], added_tokens: Any, location: str
) -> tuple[dict[str, int], dict[str, TokenFlags], dict[str, int], Sequence[Sequence[str]]]:
    """Return the special tokens, their flags, the vocabulary and the merges as the file has them.

    Arguments and errors are those of `read_model`.
    """
    from bytemill.formats.byte_level import checked_vocab

    vocab = checked_vocab(model.get("vocab"), f"{location}: model.vocab")
    pairs = _checked_pairs(model.get("merges"), f"{location}: model.merges")
    special_tokens, flags = special_tokens_of(
        added_tokens, vocab.get, len(vocab), f"{location}: added_tokens"
    )
    return special_tokens, flags, vocab, pairs


def _checked_pairs(merges: Any, location: str) -> Sequence[Sequence[str]]:
    """Return the merges as pairs of byte-level texts; earlier versions of the format have strings."""
    merges = array_at(merges, location)
    pairs = [merge.split(" ") if isinstance(merge, str) else merge for merge in merges]
    # Checking all at once takes a tenth of the time of checking each.
    if not (
        set(map(type, pairs)) <= {list}
        and set(map(len, pairs)) <= {2}
        and set(map(type, chain.from_iterable(pairs))) <= {str}
    ):
        for index, pair in enumerate(pairs):
            match pair:
                case [str(), str()]:
                    pass
                case _:
                    raise wrong_value(f"{location}[{index}]", merges[index], "a pair of tokens")
    return pairs


def refuse_unsupported(document: dict[str, Any], location: str) -> None:
    """Raise TokenizerFileError for settings outside the model that affect ids and are not supported, or may."""
    version = document.get("version", "1.0")
    if version != "1.0":
        raise TokenizerFileError(f"{location}: version is {shown(version)}; only '1.0' is supported")
    # Hugging Face's library refuses other fields too: a later version of the format may give them a meaning.
    if unknown := [name for name in document if name not in _FIELDS]:
        raise TokenizerFileError(f"{location}: unknown field {shown(unknown[0])}")


def normalizer_of(document: dict[str, Any], splitting: Splitting, location: str) -> NormalizerSteps:
    """Return the steps of the normalizer of byte-level BPE, and of the space before texts. Raises as `read` does."""
    steps = from_normalizer(document.get("normalizer"), f"{location}: normalizer")
    return (*steps, *(PREFIX if splitting.adds_prefix_space else ()))


def splitting_and_record(
    document: dict[str, Any], n_merges: int, location: str
) -> tuple[Splitting, dict[str, Any]]:
    """Return how texts are split, and bytemill's own record, empty in others' files. Raises as `read` does."""
    pre_tokenizer = document.get("pre_tokenizer")
    record = document["model"].get("bytemill")
    record = {} if record is None else checked_record(record, n_merges, f"{location}: model.bytemill")
    if "pattern" in record and (own := _own_splitting(pre_tokenizer, record["pattern"])) is not None:
        return own, record
    return splitting_of(pre_tokenizer, f"{location}: pre_tokenizer"), record


def _own_splitting(pre_tokenizer: Any, pattern: str | None) -> Splitting | None:
    """Return the splitting for which bytemill writes `pre_tokenizer`; None if another tool has changed the file."""
    with contextlib.suppress(TypeError, ValueError):
        check_pattern(pattern)
        own = own_splitting(pre_tokenizer, pattern)
        written = to_pre_tokenizer(pattern, add_prefix_space=own.adds_prefix_space, shape=own.shape)
        return own if written == pre_tokenizer else None
    return None


def write(spec: TokenizerSpec) -> str:
    """Return the text of a tokenizer.json, with a line per token and merge. Equal specs have equal texts.

    Raises:
        TokenizerError: `spec` contradicts itself, or Hugging Face's library could not give the same ids.
    """
    if spec.library is not None:
        return _write_library(spec, spec.library)
    if spec.characters is not None:
        return _write_characters(spec, spec.characters)
    # Imported late: these take as long to import as the core takes to read a vocabulary.
    from bytemill.formats.byte_level import byte_level_vocab
    from bytemill.formats.spec import checked_parts

    tokens, merges = checked_parts(spec)
    if spec.merge_counts is not None and len(spec.merge_counts) != len(merges):
        raise TokenizerError(f"{len(merges)} merges have {len(spec.merge_counts)} counts")
    # tiktoken looks up whole pre-tokens first.
    ignore_merges = spec.ignore_merges or spec.ranks is not None
    # Includes special tokens: `tokenizers` ignores the id of an added token that is not in the vocabulary.
    vocab = byte_level_vocab(spec, tokens, ignore_merges=ignore_merges)

    head = {
        **_head(spec),
        "normalizer": to_normalizer(tuple(step for step in spec.normalizer if step not in PREFIX)),
        "pre_tokenizer": to_pre_tokenizer(
            spec.pattern, add_prefix_space=spec.normalizer[-1:] == PREFIX, shape=spec.shape
        ),
        "post_processor": (spec.metadata and spec.metadata.post_processor) or POST_PROCESSOR,
        "decoder": None if spec.joins_tokens else (spec.metadata and spec.metadata.decoder) or DECODER,
    }
    model_head = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": spec.shape.suffix,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": ignore_merges,
    }
    model_fields = [
        *(f'"{key}": {json.dumps(value)}' for key, value in model_head.items()),
        f'"bytemill": {_record(spec)}',
        # A separator with a line break keeps CPython's fast encoder, which `indent` disables.
        '"vocab": {\n      '
        + json.dumps(vocab, ensure_ascii=False, separators=(",\n      ", ": "))[1:-1]
        + "\n    }",
        f'"merges": {_array(_merge_lines(merges), depth=2)}',
    ]
    model = "{\n    " + ",\n    ".join(model_fields) + "\n  }"
    return json.dumps(head, ensure_ascii=False, indent=2)[:-2] + f',\n  "model": {model}\n}}\n'


def _write_library(spec: TokenizerSpec, model: LibraryModel) -> str:
    if model.library != "tokenizers":
        raise TokenizerError(
            f"a tokenizer.json cannot represent this tokenizer, which {model.library} runs: {model.reason}",
            hint="copy its own file, the .model",
        )
    document = json.loads(model.content)
    if spec.metadata is not None:
        document["post_processor"] = spec.metadata.post_processor or document.get("post_processor")
    return json.dumps(document, ensure_ascii=False, indent=2) + "\n"


def _write_characters(spec: TokenizerSpec, characters: CharacterModel) -> str:
    options, vocab, merges = character_models.model_of(spec, characters)
    objects = character_models.objects_of(spec, characters)
    model = {
        "type": "BPE",
        "dropout": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        **options,
        "vocab": vocab,
        "merges": merges,
    }
    document = {
        **_head(spec),
        "normalizer": objects["normalizer"],
        "pre_tokenizer": objects["pre_tokenizer"],
        "post_processor": spec.metadata and spec.metadata.post_processor,
        "decoder": None if spec.joins_tokens else objects["decoder"],
        "model": model,
    }
    return json.dumps(document, ensure_ascii=False, indent=2) + "\n"


def _head(spec: TokenizerSpec) -> dict[str, Any]:
    added_tokens = [
        {"id": token_id, "content": text, **asdict(spec.flags.get(text, _DEFAULT_FLAGS))}
        for text, token_id in sorted(spec.special_tokens.items(), key=lambda item: item[1])
    ]
    metadata = spec.metadata or TokenizerMetadata()
    options = {"truncation": metadata.truncation, "padding": metadata.padding}
    return {"version": "1.0", **options, "added_tokens": added_tokens}


def _record(spec: TokenizerSpec) -> str:
    """Return `model.bytemill` as text."""
    record = record_of(spec)
    counts = list(map(str, record.pop("merge_counts") or ()))
    lines = [f'"{key}": {json.dumps(value, ensure_ascii=False)}' for key, value in record.items()]
    if spec.merge_counts is not None:
        rows = [", ".join(counts[i : i + _COUNTS_PER_LINE]) for i in range(0, len(counts), _COUNTS_PER_LINE)]
        lines.append(f'"merge_counts": {_array(rows, depth=3)}')
    return "{\n      " + ",\n      ".join(lines) + "\n    }"


def _merge_lines(merges: Sequence[tuple[bytes, bytes]]) -> Iterable[str]:
    """Return one JSON array per merge. Only two of the 256 byte-level characters need escaping in JSON."""
    from bytemill.formats.byte_level import bytes_to_text

    text = {
        part: bytes_to_text(part).replace("\\", "\\\\").replace('"', '\\"')
        for merge in merges
        for part in merge
    }
    return [f'["{text[left]}", "{text[right]}"]' for left, right in merges]


def _array(rows: Iterable[str], *, depth: int) -> str:
    indent = "\n" + "  " * depth
    body = f",{indent}  ".join(rows)
    return f"[{indent}  {body}{indent}]" if body else "[]"
