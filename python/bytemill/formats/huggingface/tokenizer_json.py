"""Hugging Face's `tokenizer.json`: bytemill's own file format, and the one that most tools open.

Files written here load unchanged in `tokenizers` and give the same ids there. What the format has no field for (ties
and merge counts of training) is in `model.bytemill`: `tokenizers` rejects unknown fields at the top level and ignores
them inside the model.

Files read here give the ids of `tokenizers` with `encode(text, add_special_tokens=False)`. Post-processors and decoders
do not affect ids; they are kept unchanged and written again. Every added token becomes a special token with its flags.
A feature that bytemill does not support exactly is an error that names it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from bytemill._core import check_pattern
from bytemill.errors import TokenizerError, TokenizerFileError
from bytemill.formats.files import is_object, parse_json, shown
from bytemill.formats.huggingface import characters as character_models
from bytemill.formats.huggingface.model import checked_model, read_model, refuse_other_models
from bytemill.formats.huggingface.normalizer import from_normalizer, to_normalizer
from bytemill.formats.huggingface.post_processor import DECODER, POST_PROCESSOR, metadata_of
from bytemill.formats.huggingface.pre_tokenizer import (
    PREFIX,
    adds_prefix_space,
    from_pre_tokenizer,
    to_pre_tokenizer,
)
from bytemill.formats.record import checked_record, record_of
from bytemill.formats.spec import TokenFlags, TokenizerSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bytemill.formats.huggingface.sidecars import Sidecars
    from bytemill.formats.spec import CharacterModel, NormalizerSteps

_COUNTS_PER_LINE = 16
_DEFAULT_FLAGS = TokenFlags()


def write(spec: TokenizerSpec) -> str:
    """Return the text of a tokenizer.json, with a line per token and merge. Equal specs have equal texts.

    Raises:
        TokenizerError: `spec` contradicts itself, or Hugging Face's library could not give the same ids.
    """
    if spec.characters is not None:
        return _write_characters(spec, spec.characters)
    # Imported late: these take as long to import as the core takes to read a vocabulary.
    from bytemill.formats.byte_level import byte_level_vocab
    from bytemill.formats.vocabulary import checked_parts

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
        "pre_tokenizer": to_pre_tokenizer(spec.pattern, add_prefix_space=spec.normalizer[-1:] == PREFIX),
        "post_processor": (spec.metadata and spec.metadata.post_processor) or POST_PROCESSOR,
        "decoder": (spec.metadata and spec.metadata.decoder) or DECODER,
    }
    model_head = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
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


def _head(spec: TokenizerSpec) -> dict[str, Any]:
    added_tokens = [
        {"id": token_id, "content": text, **asdict(spec.flags.get(text, _DEFAULT_FLAGS))}
        for text, token_id in sorted(spec.special_tokens.items(), key=lambda item: item[1])
    ]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added_tokens}


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
        "decoder": objects["decoder"],
        "model": model,
    }
    return json.dumps(document, ensure_ascii=False, indent=2) + "\n"


def read(text: str, location: str = "tokenizer.json") -> TokenizerSpec:
    """Read the text of a tokenizer.json; `location` names the file in errors.

    Raises:
        TokenizerFileError: The file is damaged or has a feature that is not supported exactly.
    """
    return from_document(parse_json(text, location), location)


def from_document(document: Any, location: str, sidecars: Sidecars | None = None) -> TokenizerSpec:
    """Read a parsed tokenizer.json, with what the files beside it add; `location` names it in errors. See `read`."""
    if not is_object(document) or not is_object(document.get("model")):
        raise TokenizerFileError(f"{location}: not a tokenizer.json: there is no 'model' object")
    model: dict[str, Any] = document["model"]
    refuse_other_models(model, location)
    refuse_unsupported(document, location)
    if sidecars is not None and is_object(vocab := model.get("vocab")):
        document = sidecars.amended(document, vocab.get, len(vocab))
    if character_models.is_character_model(document):
        return _character_spec(document, location)
    special_tokens, flags, vocab, merges = read_model(model, document.get("added_tokens", []), location)
    pattern, record = pattern_and_record(document, len(merges), location)
    normalizer = normalizer_of(document, location)
    if sidecars is not None:
        sidecars.warn_of_other_split(pattern, normalizer)
    return TokenizerSpec(
        pattern=pattern,
        special_tokens=special_tokens,
        vocab=vocab,
        merges=merges,
        ignore_merges=bool(model.get("ignore_merges")),
        ties=record.get("ties"),
        merge_counts=record.get("merge_counts"),
        normalizer=normalizer,
        flags=flags,
        metadata=metadata_of(document, location),
    )


def _character_spec(document: dict[str, Any], location: str) -> TokenizerSpec:
    model: dict[str, Any] = document["model"]
    special_tokens, flags, vocab, pairs = checked_model(model, document.get("added_tokens", []), location)
    spec = character_models.read(document, vocab, pairs, special_tokens, location)
    return replace(spec, flags=flags, metadata=metadata_of(document, location))


def normalizer_of(document: dict[str, Any], location: str) -> NormalizerSteps:
    """Return the steps of the normalizer of byte-level BPE, and of the space before texts. Raises as `read` does."""
    steps = from_normalizer(document.get("normalizer"), f"{location}: normalizer")
    return (*steps, *(PREFIX if adds_prefix_space(document.get("pre_tokenizer")) else ()))


def pattern_and_record(
    document: dict[str, Any], n_merges: int, location: str
) -> tuple[str | None, dict[str, Any]]:
    """Return the pattern and bytemill's own record, empty in other tools' files. Raises as `read` does."""
    pre_tokenizer = document.get("pre_tokenizer")
    record = document["model"].get("bytemill")
    record = {} if record is None else checked_record(record, n_merges, f"{location}: model.bytemill")
    if "pattern" in record and _splits_like(pre_tokenizer, record["pattern"]):
        return record["pattern"], record
    return from_pre_tokenizer(pre_tokenizer, f"{location}: pre_tokenizer"), record


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
    from bytemill.formats.bytes_to_unicode import bytes_to_text

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


def refuse_unsupported(document: dict[str, Any], location: str) -> None:
    """Raise TokenizerFileError for settings outside the model that affect ids and are not supported."""
    version = document.get("version", "1.0")
    if version != "1.0":
        raise TokenizerFileError(f"{location}: version is {shown(version)}; only '1.0' is supported")
    for field in ("truncation", "padding"):
        if document.get(field) is not None:
            raise TokenizerFileError(
                f"{location}: {field} is set, which is not supported",
                hint=f"set {field!r} to null and apply it where the ids are used",
            )


def _splits_like(pre_tokenizer: Any, pattern: str | None) -> bool:
    """Return whether `pre_tokenizer` is what bytemill writes for `pattern`. If not, another tool changed the file."""
    try:
        check_pattern(pattern)
        prefix = adds_prefix_space(pre_tokenizer)
        return to_pre_tokenizer(pattern, add_prefix_space=prefix) == pre_tokenizer
    except (TypeError, ValueError):
        return False
