"""The tokenizer in a GGUF file, the format of llama.cpp's models.

Reading needs no library and only reads the metadata, however large the model is. Tokens and merges are byte-level
text as in GPT-2's files. A GGUF file stores no normalizer, and llama.cpp applies none, even if the model's
tokenizer.json has one.

A file names its pre-tokenizer (`tokenizer.ggml.pre`) without defining it; `gguf_pre_tokenizers` has the patterns.

Writing needs the `gguf` package. Fields without a GGUF key (a pattern that llama.cpp has no name for, and training
ties and counts) are stored in `bytemill.record`, which other tools ignore.
"""

from __future__ import annotations

import io
import json
import os
import tempfile
import warnings
from array import array
from dataclasses import dataclass, replace
from pathlib import Path
from types import EllipsisType
from typing import TYPE_CHECKING, Any, cast

from bytemill._core import StringArray, TokenizerJson, check_pattern
from bytemill.errors import PreTokenizerWarning, TokenizerError, TokenizerFileError
from bytemill.formats import gguf_models, gguf_names, sentencepiece
from bytemill.formats.byte_level import (
    CHARACTER_TO_BYTE,
    byte_level_vocab,
    check_byte_level,
    missing_bytes,
    tokens_and_merges,
)
from bytemill.formats.encoder import Loaded, build_file
from bytemill.formats.files import GGUF_MAGIC, bool_at, parse_json, shown
from bytemill.formats.gguf_metadata import MAX_ELEMENTS, Value, read_metadata
from bytemill.formats.gguf_pre_tokenizers import (
    CHARACTER_PRE_TOKENIZERS,
    PRE_TOKENIZERS,
    ignores_merges,
    matching_name,
    pre_tokenizer,
    same_split,
)
from bytemill.formats.gpt2 import looks_special
from bytemill.formats.huggingface.pre_tokenizers import to_pre_tokenizer
from bytemill.formats.patterns import checked_pattern
from bytemill.formats.registry import Content, load_content, load_with_library, refuse_arguments
from bytemill.formats.spec import (
    PretokenShape,
    TokenFlags,
    TokenizerSpec,
    check_expressible,
    checked_parts,
    checked_record,
    record_of,
    special_rules,
)
from bytemill.system.atomic_files import write_bytes
from bytemill.system.extras import import_library

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bytemill.formats.spec import SpecialTokens

_MODEL, _PRE = "tokenizer.ggml.model", "tokenizer.ggml.pre"
_TOKENS, _TYPES, _MERGES = "tokenizer.ggml.tokens", "tokenizer.ggml.token_type", "tokenizer.ggml.merges"
_RECORD = "bytemill.record"
# The ids under these keys are special tokens, whatever their type. GGUF itself writes "seperator".
_SPECIAL_IDS = frozenset(
    f"tokenizer.ggml.{name}_token_id"
    for name in (
        *("bos", "eos", "eot", "eom", "unknown", "seperator", "padding", "mask"),
        *("fim_pre", "fim_suf", "fim_mid", "fim_pad", "fim_rep", "fim_sep", "prefix", "suffix", "middle"),
    )
)
_WANTED = (
    frozenset({_MODEL, _PRE, _TOKENS, _TYPES, _MERGES, _RECORD})
    | _SPECIAL_IDS
    | gguf_models.KEYS
    | gguf_names.KEYS
)

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = 1, 2, 3, 4, 5, 6

_OTHER_MODELS = {
    "llama": "SentencePiece's BPE",
    "bert": "WordPiece",
    "t5": "SentencePiece's Unigram model",
    "rwkv": "RWKV's greedy tokenizer",
    "gemma4": "BPE on characters",
    "whitespace": "BPE on the characters of words",
    "hybriddna": "BPE and sequences of DNA",
    "none": "no tokenizer",
    "no_vocab": "no tokenizer",
}

_CONTROL_NAMES = frozenset(
    (
        *("<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<end_of_turn>"),
        *(
            "<|endoftext|>",
            "<|end_of_text|>",
            "<EOT>",
            "_<EOT>",
            "<｜end▁of▁sentence｜>",
            "<end_of_utterance>",
        ),
        *("<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "<|code_prefix|>"),
        *("<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "<|code_suffix|>"),
        *("<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "<|code_middle|>"),
        *("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "<|fim_repo|>", "<|repo_name|>", "<fim-repo>"),
        *("<REPO>", "<reponame>", "<|file_sep|>"),
    )
)
"""Tokens that llama.cpp takes for control tokens whatever their type."""


def recognize(content: Content) -> bool:
    """Return whether a file's content is that of a GGUF file."""
    return content.data.startswith(GGUF_MAGIC)


def read(content: Content) -> TokenizerSpec:
    """Read a file's content, where `pattern` is in place of the file's own pre-tokenizer. See `read_file`."""
    refuse_arguments(..., content.special_tokens, content.location)
    return from_bytes(content.data, content.location, content.pattern)


def render(spec: TokenizerSpec, path: Path) -> dict[Path, bytes]:
    """Return the file to write. Raises as `write`."""
    with tempfile.TemporaryDirectory(prefix="bytemill-") as folder:
        file = Path(folder) / "tokenizer.gguf"
        write(spec, file)
        return {path: file.read_bytes()}


def left_out(_: TokenizerSpec) -> list[str]:
    """Describe what the file does not store: nothing."""
    return []


def read_file(
    path: str | os.PathLike[str],
    pattern: str | EllipsisType | None = ...,
    special_tokens: SpecialTokens | None = None,
) -> TokenizerSpec:
    """Read the byte-level BPE tokenizer in a GGUF file.

    Args:
        path: The file.
        pattern: Name, regular expression or None, in place of the file's own pre-tokenizer.
        special_tokens: None; the file stores its own.

    Raises:
        TokenizerFileError: The file is damaged, has another kind of tokenizer, or names a pre-tokenizer without a known
            pattern and `pattern` is not set.
    """
    path = Path(path)
    return _spec(_metadata(path, special_tokens), str(path), pattern)


def from_bytes(data: bytes, location: str, pattern: str | EllipsisType | None = ...) -> TokenizerSpec:
    """Read a file's content; `location` names the file in errors. See `read_file`."""
    return _spec(read_metadata(io.BytesIO(data), len(data), location, _WANTED), location, pattern)


def load(
    path: Path, pattern: str | EllipsisType | None = ..., special_tokens: SpecialTokens | None = None
) -> Loaded:
    """Load the tokenizer in a GGUF file into an encoder. Arguments and errors are those of `read_file`.

    The core makes the vocabulary if it can, in a third of the time: Python objects for 280,000 merges take long. Other
    kinds than GPT-2's, and what the core does not run, become a file of the library that has them.
    """
    values = _metadata(path, special_tokens)
    return gguf_names.with_names(_load(values, str(path), pattern), values)


def _load(values: Mapping[str, Value], location: str, pattern: str | EllipsisType | None) -> Loaded:
    kind = values.get(_MODEL)
    if kind == "gpt2" and pattern is ... and values.get(_PRE) in CHARACTER_PRE_TOKENIZERS:
        kind = "gemma4"
    if kind in ("gpt2", "whitespace") and pattern is ... and values.get(_PRE) == "whitespace":
        kind = "words"
    if kind in ("llama", "t5", "bert", "gemma4", "words"):
        refuse_arguments(pattern, None, location)
        if kind in ("llama", "t5"):
            model = gguf_models.sentencepiece_model(values, location)
            try:
                return sentencepiece.load_model(model, location)
            except TokenizerFileError as error:
                return load_with_library(Content(gguf_models.model_file(model), location), error)
        if kind == "bert":
            data = gguf_models.as_file(gguf_models.wordpiece_document(values, location))
        else:
            merges = _strings(values, _MERGES, location).texts()
            document_of = (
                gguf_models.words_document if kind == "words" else gguf_models.character_bpe_document
            )
            data = gguf_models.as_file(document_of(values, merges, location))
        return load_content(Content(data, location))
    try:
        loaded = _load_with_core(values, location, pattern)
        return loaded or build_file(_spec(values, location, pattern), location)
    except TokenizerFileError as error:
        if kind != "gpt2":
            raise
        document = _document(values, location, pattern)
        return load_with_library(Content(gguf_models.as_file(document), location), error)


def _document(
    values: Mapping[str, Value], location: str, pattern: str | EllipsisType | None
) -> dict[str, Any]:
    """Return the tokenizer.json of a file of the kind `gpt2`. Raises TokenizerFileError."""
    tokens, merges = (_strings(values, key, location).texts() for key in (_TOKENS, _MERGES))
    vocab, special, flags = _vocabulary(values, tokens, location)
    name = _text(values, _PRE, location)
    record = _record(values, name, len(merges), location)
    return gguf_models.byte_level_document(
        vocab,
        special,
        flags,
        merges,
        to_pre_tokenizer(_pattern(pattern, name, record, location)),
        ignore_merges=record.get("ignore_merges", ignores_merges(name)),
    )


def _metadata(path: Path, special_tokens: SpecialTokens | None) -> dict[str, Value]:
    refuse_arguments(..., special_tokens, str(path))
    try:
        with path.open("rb") as file:
            return read_metadata(file, os.fstat(file.fileno()).st_size, str(path), _WANTED)
    except OSError as error:
        raise TokenizerFileError(f"{path}: cannot be read: {error.strerror or error}") from error


def _load_with_core(
    values: Mapping[str, Value], location: str, pattern: str | EllipsisType | None
) -> Loaded | None:
    """Load a tokenizer with the core; None if the reader in Python must read or reject it."""
    _refuse_other_models(values.get(_MODEL), location)
    tokens, merges = _strings(values, _TOKENS, location), _strings(values, _MERGES, location)
    special, flags, unused = _special_tokens(values, tokens.texts(), location)
    file = TokenizerJson.of_strings(tokens, merges, unused)
    if file is None:
        return None
    name = _text(values, _PRE, location)
    record = _record(values, name, merges.n_strings, location)
    core = file.encoder(
        special,
        _pattern(pattern, name, record, location),
        record.get("ignore_merges", ignores_merges(name)),
        special_rules(special, flags, ()),
        shape=PretokenShape(drops_unknown=file.missing_byte is not None),
    )
    return None if core is None else Loaded(core, record.get("ties"), record.get("merge_counts"), flags)


def _spec(values: Mapping[str, Value], location: str, pattern: str | EllipsisType | None) -> TokenizerSpec:
    _refuse_other_models(values.get(_MODEL), location)
    tokens = _strings(values, _TOKENS, location).texts()
    vocab, special, flags = _vocabulary(values, tokens, location)
    check_byte_level(vocab, special, f"{location}: {_TOKENS}")
    pairs = _pairs(values, location)
    ordinary, merges = tokens_and_merges(
        vocab,
        pairs,
        special,
        vocab_location=f"{location}: {_TOKENS}",
        merge_location=lambda index: f"{location}: {_MERGES}[{index}]",
        may_lack_bytes=True,
    )
    name = _text(values, _PRE, location)
    record = _record(values, name, len(merges), location)
    return TokenizerSpec(
        pattern=_pattern(pattern, name, record, location),
        special_tokens=special,
        vocab=ordinary,
        merges=merges,
        ignore_merges=record.get("ignore_merges", ignores_merges(name)),
        ties=record.get("ties"),
        merge_counts=record.get("merge_counts"),
        flags=flags,
        shape=PretokenShape(drops_unknown=missing_bytes(ordinary.values()) is not None),
        metadata=gguf_names.metadata_of(values, special),
    )


def _refuse_other_models(model: Value | None, location: str) -> None:
    if model is None:
        raise TokenizerFileError(f"{location}: contains no tokenizer: {_MODEL} is missing")
    if model != "gpt2":
        kind = _OTHER_MODELS.get(model) if isinstance(model, str) else None
        meaning = f" ({kind})" if kind else ""
        found = shown([] if isinstance(model, StringArray) else model)
        raise TokenizerFileError(
            f"{location}: {_MODEL} is {found}{meaning}; only byte-level BPE ('gpt2') is supported"
        )


def _text(values: Mapping[str, Value], key: str, location: str) -> str | None:
    value = values.get(key)
    if value is not None and not isinstance(value, str):
        raise TokenizerFileError(f"{location}: {key} is not a string")
    return value or None


def _strings(values: Mapping[str, Value], key: str, location: str) -> StringArray:
    value = values.get(key)
    if value is None:
        raise TokenizerFileError(f"{location}: {key} is missing", hint="byte-level BPE has tokens and merges")
    # An empty array may have any element type.
    if isinstance(value, array) and not value:
        return StringArray([])
    if not isinstance(value, StringArray):
        raise TokenizerFileError(f"{location}: {key} is not an array of strings")
    return value


def _pairs(values: Mapping[str, Value], location: str) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for index, merge in enumerate(_strings(values, _MERGES, location).texts()):
        left, _, right = merge.partition(" ")
        if not left or not right or " " in right:
            raise TokenizerFileError(
                f"{location}: {_MERGES}[{index}] is {shown(merge)}, not two tokens separated by a space"
            )
        pairs.append((left, right))
    return pairs


def _types(values: Mapping[str, Value], n_tokens: int, location: str) -> Sequence[int] | None:
    """Return the type of each token, or None if the file has no types."""
    types = values.get(_TYPES)
    if types is None:
        return None
    if not isinstance(types, array) or types.typecode == "d":
        raise TokenizerFileError(f"{location}: {_TYPES} is not an array of integers")
    if len(types) != n_tokens:
        raise TokenizerFileError(f"{location}: {_TYPES} has {len(types)} types for {n_tokens} tokens")
    if not set(types) <= {_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED}:
        index, kind = next((i, kind) for i, kind in enumerate(types) if not _NORMAL <= kind <= _UNUSED)
        meaning = "a byte token" if kind == _BYTE else "unknown"
        raise TokenizerFileError(
            f"{location}: {_TYPES}[{index}] is {shown(kind)} ({meaning}), which byte-level BPE does not have"
        )
    return cast("array[int]", types).tolist()


def _special_ids(values: Mapping[str, Value], location: str) -> set[int]:
    ids: set[int] = set()
    for key in _SPECIAL_IDS & values.keys():
        value = values[key]
        if type(value) is not int:
            raise TokenizerFileError(f"{location}: {key} is not an id")
        ids.add(value)
    return ids


def _vocabulary(
    values: Mapping[str, Value], tokens: Sequence[str], location: str
) -> tuple[dict[str, int], dict[str, int], dict[str, TokenFlags]]:
    """Return all tokens except unused fillers, and the special tokens among them, as text -> id, with their flags."""
    special, flags, unused = _special_tokens(values, tokens, location)
    ids = {token: token_id for token_id, token in enumerate(tokens) if token}
    if len(ids) + tokens.count("") < len(tokens):
        one = next(index for index, token in enumerate(tokens) if token and ids[token] != index)
        other = tokens.index(tokens[one], one + 1)
        raise TokenizerFileError(
            f"{location}: {_TOKENS}: {one} and {other} are the same token {shown(tokens[one])}"
        )
    return {token: token_id for token, token_id in ids.items() if token_id not in unused}, special, flags


def _special_tokens(
    values: Mapping[str, Value], tokens: Sequence[str], location: str
) -> tuple[dict[str, int], dict[str, TokenFlags], set[int]]:
    """Return the special tokens, their flags, and the ids that no text has without them. `tokens` are texts by id.

    These ids are those of unused fillers, and of special tokens that no merge makes.
    """
    types, special_ids = _types(values, len(tokens), location), _special_ids(values, location)
    if types is None:
        types = [_NORMAL] * len(tokens)
        special_ids = special_ids | {index for index, token in enumerate(tokens) if looks_special(token)}
    found = {index for index, kind in enumerate(types) if kind != _NORMAL} | special_ids
    named = [(index, tokens[index]) for index in sorted(found) if 0 <= index < len(tokens) and tokens[index]]
    made = _strings(values, _MERGES, location).results_among([token for _, token in named])
    made |= CHARACTER_TO_BYTE.keys()
    special: dict[str, int] = {}
    unused: set[int] = set()
    for token_id, token in named:
        kind = types[token_id]
        if kind in (_UNKNOWN, _CONTROL, _USER_DEFINED):
            special[token] = token_id
        elif token not in made and kind == _UNUSED:
            unused.add(token_id)
        elif token not in made:
            special[token] = token_id
    return special, _flags(special, types), unused | {i for token, i in special.items() if token not in made}


def _flags(special: Mapping[str, int], types: Sequence[int]) -> dict[str, TokenFlags]:
    """Return the flags of user-defined tokens, which llama.cpp finds in every text, but for those of known names."""
    found = (text for text, token_id in special.items() if types[token_id] == _USER_DEFINED)
    return {text: TokenFlags(special=False) for text in found if text not in _CONTROL_NAMES}


def _pattern(
    explicit: str | EllipsisType | None, name: str | None, record: Mapping[str, Any], location: str
) -> str | None:
    """Return the explicit pattern, the pattern of the pre-tokenizer's name, or the recorded one."""
    if not isinstance(explicit, EllipsisType):
        return checked_pattern(explicit)
    if name is None:
        if "pattern" in record:
            return record["pattern"]
        warnings.warn(
            f"{location}: {_PRE} is missing: texts are split as llama.cpp splits them for such files, and the model's "
            "own tokenizer may split them otherwise; a pattern (--pattern, pattern=) replaces it",
            PreTokenizerWarning,
            stacklevel=4,
        )
        name = "default"
    known = pre_tokenizer(name, location)
    # An expression that is equivalent to a known pattern stays unchanged.
    if "pattern" in record and same_split(record["pattern"], known.pattern):
        return record["pattern"]
    return known.pattern


def _record(values: Mapping[str, Value], name: str | None, n_merges: int, location: str) -> dict[str, Any]:
    """Return the checked `bytemill.record`.

    Empty if another tool wrote the file or changed the name of the pre-tokenizer.
    """
    text = _text(values, _RECORD, location)
    if text is None:
        return {}
    location = f"{location}: {_RECORD}"
    record = checked_record(parse_json(text, location), n_merges, location)
    if record.get("pre") != name:
        return {}
    bool_at(record.get("ignore_merges"), f"{location}.ignore_merges")
    try:
        check_pattern(record.get("pattern"))
    except (TypeError, ValueError) as error:
        raise TokenizerFileError(f"{location}.pattern: {shown(record['pattern'])}: {error}") from error
    return record


def write(
    spec: TokenizerSpec,
    path: str | os.PathLike[str],
    *,
    pre: str | None = None,
    bos_token: str | None = None,
    eos_token: str | None = None,
    architecture: str = "gpt2",
) -> None:
    """Write a GGUF file that contains a tokenizer and no tensors, atomically.

    Args:
        spec: The tokenizer.
        path: The file.
        pre: llama.cpp's name for the pre-tokenizer. By default the name of the pattern; without one, the file names no
            pre-tokenizer and a `PreTokenizerWarning` is issued.
        bos_token: Special token that begins a text; by default the one that the tokenizer names, else chosen by its
            name. Encoding does not add it.
        eos_token: Special token that ends a text; likewise.
        architecture: Name of the model architecture, which every GGUF file must have.

    Raises:
        MissingExtraError: The package `gguf` is not installed.
        TokenizerError: The format cannot represent `spec`.
        OutputError: The file cannot be written.
    """
    gguf = import_library("gguf", "writing GGUF")
    with tempfile.TemporaryDirectory(prefix="bytemill-") as folder:
        # The library opens its file by name and leaves a partial file behind if it fails.
        draft = Path(folder) / "tokenizer.gguf"
        writer = gguf.GGUFWriter(draft, architecture)
        writer.add_string("general.type", "vocab")
        add_tokenizer(writer, spec, pre=pre, bos_token=bos_token, eos_token=eos_token)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        write_bytes(path, draft.read_bytes())


def add_tokenizer(
    writer: Any,
    spec: TokenizerSpec,
    *,
    pre: str | None = None,
    bos_token: str | None = None,
    eos_token: str | None = None,
    turn_token: str | None = None,
    adds_bos: bool = False,
    n_ids: int = 0,
) -> None:
    """Add the tokenizer section to a `gguf.GGUFWriter`.

    Args:
        writer: The writer.
        spec: The tokenizer.
        pre: As in `write`.
        bos_token: As in `write`.
        eos_token: As in `write`.
        turn_token: Special token that ends a turn of a conversation.
        adds_bos: llama.cpp puts the token that begins a text before every text.
        n_ids: Number of ids of the model; ids that the tokenizer does not have become unused tokens.

    Raises:
        TokenizerError: The format cannot represent `spec`.
    """
    parts = _own_parts(spec, pre, n_ids)
    writer.add_tokenizer_model("gpt2")
    if parts.pre is not None:
        writer.add_tokenizer_pre(parts.pre)
    writer.add_token_list(parts.texts)
    writer.add_token_types(parts.types)
    writer.add_token_merges(parts.merges)
    # llama.cpp's defaults depend on the pre-tokenizer; bytemill's encoding adds neither token.
    writer.add_add_bos_token(adds_bos)
    writer.add_add_eos_token(False)
    gguf_names.add_names(writer, spec, bos_token=bos_token, eos_token=eos_token, turn_token=turn_token)
    if parts.record is not None:
        writer.add_string(_RECORD, json.dumps(parts.record, ensure_ascii=False))


@dataclass(frozen=True)
class _Parts:
    """What a GGUF file has of a tokenizer."""

    pre: str | None
    """Name of the pre-tokenizer."""
    texts: list[str]
    """Tokens by id."""
    types: list[int]
    merges: list[str]
    record: dict[str, Any] | None


def _own_parts(spec: TokenizerSpec, pre: str | None, n_ids: int) -> _Parts:
    # A vocabulary may lack bytes.
    whole = replace(spec, shape=spec.shape._replace(drops_unknown=False))
    check_expressible(whole, "a GGUF file")
    tokens, merges = checked_parts(spec)
    if not merges:
        raise TokenizerError("a GGUF file cannot store a tokenizer without merges")
    ignore_merges = spec.ignore_merges or spec.ranks is not None
    name = matching_name(spec.pattern, merges, tokens.values(), ignore_merges=ignore_merges)
    record = record_of(spec)
    if name is None or (pre is not None and not _same_pattern(pre, name)):
        _warn(record["pattern"], pre)
    name = name if pre is None else pre
    record |= {"pre": name, "ignore_merges": ignore_merges}
    vocab = byte_level_vocab(spec, tokens, ignore_merges=ignore_merges)
    texts, types = _listed(vocab, _kinds(spec), n_ids)
    ids = {token: token_id for token_id, token in tokens.items()}
    return _Parts(
        name, texts, types, [f"{texts[ids[left]]} {texts[ids[right]]}" for left, right in merges], record
    )


def _kinds(spec: TokenizerSpec) -> dict[str, int]:
    return {
        text: _CONTROL if spec.flags.get(text, TokenFlags()).special else _USER_DEFINED
        for text in spec.special_tokens
    }


def _same_pattern(pre: str, name: str) -> bool:
    known = PRE_TOKENIZERS.get(pre)
    return known is not None and same_split(known.pattern, PRE_TOKENIZERS[name].pattern)


def _warn(pattern: str | None, pre: str | None) -> None:
    meaning = "without a pattern" if pattern is None else f"for the pattern {shown(pattern)}"
    if pre is None:
        message = (
            f"llama.cpp has no pre-tokenizer {meaning}: the file names none, and ids may differ in llama.cpp"
        )
    else:
        message = f"{shown(pre)} is not known to be the pre-tokenizer {meaning}: ids may differ in llama.cpp"
    warnings.warn(message, PreTokenizerWarning, stacklevel=5)


def _listed(vocab: Mapping[str, int], kinds: Mapping[str, int], n_ids: int) -> tuple[list[str], list[int]]:
    """Return the texts and types of at least `n_ids` tokens by id, with gaps filled by unused tokens."""
    n_ids = max(n_ids, max(vocab.values(), default=-1) + 1)
    if n_ids > MAX_ELEMENTS:
        raise TokenizerError(
            f"the highest id is {n_ids - 1}; a GGUF file lists every id, and at most {MAX_ELEMENTS} are supported"
        )
    texts, types = [""] * n_ids, [_UNUSED] * n_ids
    for text, token_id in vocab.items():
        texts[token_id] = text
        types[token_id] = kinds.get(text, _NORMAL)
    for token_id in range(n_ids):
        if not texts[token_id]:
            filler = f"[PAD{token_id}]"
            while filler in vocab:
                filler += "]"
            texts[token_id] = filler
    return texts, types
