"""Hugging Face's `tokenizer.json`: bytemill's own file format, and the one that most tools open.

What is written loads unchanged in `tokenizers` and gives the same ids there. What bytemill alone knows (how
ties were broken, how often each merge's pair stood in the corpus) lies in `model.bytemill`: `tokenizers`
refuses unknown fields at the top of the file and passes over them inside the model.

What is read gives the ids that `tokenizers` gives with `encode(text, add_special_tokens=False)`. Post-processors,
which only put tokens around a text and move offsets, decide none of them, nor do decoders: both are kept as they
are and written again. Every added token, special or not, becomes a special token, with its flags. What cannot be
followed exactly is refused by name.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from bytemill._core import NAMED_PATTERNS, check_pattern
from bytemill.errors import TokenizerError, TokenizerFileError
from bytemill.formats.files import decode_utf8, is_array, is_object, parse_json, read_bytes, shown
from bytemill.formats.huggingface.model import read_model, refuse_other_models
from bytemill.formats.huggingface.post_processor import DECODER, metadata_of, post_processor_of
from bytemill.formats.huggingface.pre_tokenizer import from_pre_tokenizer, to_pre_tokenizer
from bytemill.formats.spec import Normalizer, TokenFlags, TokenizerSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

RECORD_FORMAT = 1
"""Version of `model.bytemill`."""

_COUNTS_PER_LINE = 16
_USUAL = TokenFlags()


def write(spec: TokenizerSpec) -> str:
    """The text of a tokenizer.json that is `spec`.

    One spec gives one text, with a line for each token and each merge. Raises TokenizerError where `spec`
    contradicts itself or Hugging Face's library could not give the same ids.
    """
    # Brought in only here: together they take as long to import as the core takes to read a vocabulary.
    from bytemill.formats.byte_level import byte_level_vocab
    from bytemill.formats.ranks import merges_of_ranks
    from bytemill.formats.vocabulary import check_merges, check_special_tokens, ordinary_tokens

    tokens = ordinary_tokens(spec)
    check_special_tokens(spec, tokens)
    if spec.merges is None:
        merges = merges_of_ranks(spec.ranks or {})
    else:
        merges = spec.merges
        check_merges(merges, tokens.values())
    if spec.merge_counts is not None and len(spec.merge_counts) != len(merges):
        raise TokenizerError(f"{len(merges)} merges have {len(spec.merge_counts)} counts")
    # Ranks are looked up by whole pre-tokens first, as tiktoken does.
    ignore_merges = spec.ignore_merges or spec.ranks is not None
    # Special tokens are in the vocabulary too: an added token that is not gets the next free id from
    # `tokenizers`, whatever id the file says.
    vocab = byte_level_vocab(spec, tokens, ignore_merges=ignore_merges)

    head = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": token_id,
                "content": text,
                "single_word": flags.single_word,
                "lstrip": flags.lstrip,
                "rstrip": flags.rstrip,
                "normalized": flags.normalized,
                "special": flags.special,
            }
            for text, token_id in sorted(spec.special_tokens.items(), key=lambda item: item[1])
            for flags in [spec.flags.get(text, _USUAL)]
        ],
        "normalizer": None if spec.normalizer is None else {"type": spec.normalizer},
        "pre_tokenizer": to_pre_tokenizer(spec.pattern),
        "post_processor": post_processor_of(spec, vocab),
        "decoder": DECODER if spec.metadata is None else spec.metadata.decoder or DECODER,
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
        # A separator with a line break keeps CPython's fast encoder, which `indent` would turn off.
        '"vocab": {\n      '
        + json.dumps(vocab, ensure_ascii=False, separators=(",\n      ", ": "))[1:-1]
        + "\n    }",
        f'"merges": {_array(_merge_lines(merges), depth=2)}',
    ]
    model = "{\n    " + ",\n    ".join(model_fields) + "\n  }"
    return json.dumps(head, ensure_ascii=False, indent=2)[:-2] + f',\n  "model": {model}\n}}\n'


def read(source: str | os.PathLike[str]) -> TokenizerSpec:
    """The tokenizer in a tokenizer.json, given by its path or as its text (a string that starts with `{`).

    Raises TokenizerFileError naming the place, where the file is damaged or asks for what bytemill cannot do
    exactly.
    """
    if isinstance(source, str) and source.lstrip().startswith("{"):
        location, text = "tokenizer.json", source
    else:
        location = os.fspath(source)
        text = decode_utf8(read_bytes(source), location)
    return from_document(parse_json(text, location), location)


def from_document(document: Any, location: str) -> TokenizerSpec:
    """The tokenizer in the parsed JSON of a tokenizer.json.

    Raises TokenizerFileError as `read` does, with `location` as the name of the file.
    """
    if not is_object(document) or not is_object(document.get("model")):
        raise TokenizerFileError(f"{location}: not a tokenizer.json: it has no 'model' object")
    model: dict[str, Any] = document["model"]
    refuse_other_models(model, location)
    refuse_unsupported(document, location)
    special_tokens, flags, vocab, merges = read_model(model, document.get("added_tokens", []), location)
    pattern, record = pattern_and_record(document, len(merges), location)
    return TokenizerSpec(
        pattern=pattern,
        special_tokens=special_tokens,
        vocab=vocab,
        merges=merges,
        ignore_merges=bool(model.get("ignore_merges")),
        ties=record.get("ties"),
        merge_counts=record.get("merge_counts"),
        normalizer=normalizer_of(document, flags, location),
        flags=flags,
        metadata=metadata_of(document, location),
    )


def pattern_and_record(
    document: dict[str, Any], n_merges: int, location: str
) -> tuple[str | None, dict[str, Any]]:
    """The pattern, and what bytemill has noted in the model.

    Raises TokenizerFileError as `read` does.
    """
    pre_tokenizer = document.get("pre_tokenizer")
    noted = document["model"].get("bytemill")
    record = _read_record(noted, n_merges=n_merges, location=f"{location}: model.bytemill")
    if "pattern" in record and _splits_like(pre_tokenizer, record["pattern"]):
        return record["pattern"], record
    return from_pre_tokenizer(pre_tokenizer, f"{location}: pre_tokenizer"), record


def _record(spec: TokenizerSpec) -> str:
    """`model.bytemill` as text."""
    # Another expression that splits like a named one stays as it is: it is part of the fingerprint.
    names = {expression: name for name, expression in NAMED_PATTERNS.items()}
    pattern = None if spec.pattern is None else names.get(spec.pattern, spec.pattern)
    fields = {"format": RECORD_FORMAT, "pattern": pattern, "ties": spec.ties}
    lines = [f'"{key}": {json.dumps(value, ensure_ascii=False)}' for key, value in fields.items()]
    if spec.merge_counts is not None:
        counts = [str(count) for count in spec.merge_counts]
        rows = [", ".join(counts[i : i + _COUNTS_PER_LINE]) for i in range(0, len(counts), _COUNTS_PER_LINE)]
        lines.append(f'"merge_counts": {_array(rows, depth=3)}')
    return "{\n      " + ",\n      ".join(lines) + "\n    }"


def _merge_lines(merges: Sequence[tuple[bytes, bytes]]) -> Iterable[str]:
    """One JSON array a merge. Only two of the 256 characters need a backslash in JSON."""
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
    """Raise TokenizerFileError where something outside the model would change ids in a way bytemill cannot."""
    version = document.get("version", "1.0")
    if version != "1.0":
        raise TokenizerFileError(f"{location}: version is {shown(version)}, and only '1.0' is known")
    for field in ("truncation", "padding"):
        if document.get(field) is not None:
            raise TokenizerFileError(
                f"{location}: {field} is set, and bytemill encodes a text to its own length",
                hint=f"Set {field!r} to null and do it where the ids are used.",
            )


def normalizer_of(document: dict[str, Any], flags: dict[str, TokenFlags], location: str) -> Normalizer | None:
    """What the document's `normalizer` does to a text: nothing, or NFC.

    Raises TokenizerFileError for all else, and where `flags` has a token that is looked for in normalized text but
    could not stand there.
    """
    place = f"{location}: normalizer"
    normalizer = document.get("normalizer")
    steps: list[Any] = [normalizer]
    if is_object(normalizer) and normalizer.get("type") == "Sequence":
        place += ".normalizers"
        inner = normalizer.get("normalizers")
        if not is_array(inner):
            raise TokenizerFileError(f"{place} is {shown(inner)}, not an array")
        steps = inner
    elif normalizer is None:
        return None
    for step in steps:
        if step != {"type": "NFC"}:
            kind = shown(step.get("type")) if is_object(step) else shown(step)
            raise TokenizerFileError(
                f"{place} is {kind}, and bytemill normalizes texts to NFC or not at all",
                hint="Normalize texts before you encode them, and set 'normalizer' to null.",
            )
    if not steps:
        return None
    for text, flag in flags.items():
        if flag.normalized and not text.isascii():
            raise TokenizerFileError(
                f"{location}: added_tokens: {shown(text)} is 'normalized', which bytemill does with ASCII alone"
            )
    return "NFC"


def _read_record(record: Any, *, n_merges: int, location: str) -> dict[str, Any]:
    """The checked fields of `model.bytemill`; empty where the file was written by another tool."""
    if record is None:
        return {}
    if not is_object(record):
        raise TokenizerFileError(f"{location} is {shown(record)}, not an object")
    version = record.get("format")
    if not isinstance(version, int) or version < 1:
        raise TokenizerFileError(f"{location}.format is {shown(version)}, not a version number")
    if version > RECORD_FORMAT:
        raise TokenizerFileError(
            f"{location}.format is {version}, and this bytemill knows {RECORD_FORMAT}",
            hint="The file was written by a newer bytemill: upgrade.",
        )
    ties = record.get("ties")
    if ties not in (None, "bytes", "huggingface"):
        raise TokenizerFileError(f"{location}.ties is {shown(ties)}, neither 'bytes' nor 'huggingface'")
    counts = record.get("merge_counts")
    if counts is not None:
        if not is_array(counts) or not {type(count) for count in counts} <= {int}:
            raise TokenizerFileError(f"{location}.merge_counts is not an array of whole numbers")
        if len(counts) != n_merges:
            raise TokenizerFileError(
                f"{location}.merge_counts has {len(counts)} counts for {n_merges} merges"
            )
    fields: dict[str, Any] = {"ties": ties, "merge_counts": counts}
    pattern = record.get("pattern")
    if pattern is None or isinstance(pattern, str):
        fields["pattern"] = None if pattern is None else NAMED_PATTERNS.get(pattern, pattern)
    return fields


def _splits_like(pre_tokenizer: Any, pattern: str | None) -> bool:
    """Whether `pre_tokenizer` is what bytemill writes for `pattern`; if not, the file was changed since."""
    try:
        check_pattern(pattern)
        return to_pre_tokenizer(pattern) == pre_tokenizer
    except ValueError:
        return False
