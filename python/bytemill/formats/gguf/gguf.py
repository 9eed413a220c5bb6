"""The tokenizer in a GGUF file, the format of llama.cpp's models.

Reading needs no library and looks at the metadata alone, however large the model behind it is. Tokens and merges
are spelled as in GPT-2's files. The pre-tokenizer is a name (see `gguf_pre_tokenizers`); that text is normalised
first, as some models' tokenizer.json says, a GGUF file does not say, and llama.cpp does not do it.

Writing takes the `gguf` package. What the file is written from but has no place in the format (the pattern, where
llama.cpp has no name for it, ties and counts of training) is in `bytemill.record`, which others pass over.
"""

from __future__ import annotations

import io
import json
import os
import tempfile
import warnings
from array import array
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bytemill._core import NAMED_PATTERNS, check_pattern
from bytemill.errors import MissingExtraError, PreTokenizerWarning, TokenizerError, TokenizerFileError
from bytemill.formats.byte_level import byte_level_vocab, tokens_and_merges
from bytemill.formats.bytes_to_unicode import CHARACTER_TO_BYTE
from bytemill.formats.files import is_array, is_object, parse_json, shown
from bytemill.formats.gguf.metadata import MAX_ELEMENTS, Value, read_head
from bytemill.formats.gguf.pre_tokenizers import (
    ignores_merges,
    matching_name,
    pre_tokenizer,
    same_split,
)
from bytemill.formats.ranks import merges_of_ranks
from bytemill.formats.spec import TokenizerSpec, check_expressible
from bytemill.formats.vocabulary import check_merges, check_special_tokens, ordinary_tokens

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import EllipsisType

RECORD_FORMAT = 1
"""Version of `bytemill.record`."""

_MODEL, _PRE = "tokenizer.ggml.model", "tokenizer.ggml.pre"
_TOKENS, _TYPES, _MERGES = "tokenizer.ggml.tokens", "tokenizer.ggml.token_type", "tokenizer.ggml.merges"
_RECORD = "bytemill.record"
# The tokens that these name are special, whatever their type; "seperator" is how the format spells it.
_SPECIAL_IDS = frozenset(
    f"tokenizer.ggml.{name}_token_id"
    for name in (
        *("bos", "eos", "eot", "eom", "unknown", "seperator", "padding", "mask"),
        *("fim_pre", "fim_suf", "fim_mid", "fim_pad", "fim_rep", "fim_sep", "prefix", "suffix", "middle"),
    )
)
_WANTED = frozenset({_MODEL, _PRE, _TOKENS, _TYPES, _MERGES, _RECORD}) | _SPECIAL_IDS

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED = 1, 2, 3, 4, 5

_OTHER_MODELS = {
    "llama": "SentencePiece's BPE",
    "bert": "WordPiece",
    "t5": "SentencePiece's Unigram model",
    "rwkv": "RWKV's greedy tokenizer",
    "gemma4": "BPE on characters",
    "none": "no tokenizer",
    "no_vocab": "no tokenizer",
}

# What ends and begins a text, in the order of preference.
_EOS = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<|eot_id|>", "<|im_end|>")
_BOS = ("<|begin_of_text|>", "<|startoftext|>", "<s>", "<|endoftext|>")


def read(path: str | os.PathLike[str], pattern: str | EllipsisType | None = ...) -> TokenizerSpec:
    """The tokenizer in a GGUF file of byte-level BPE.

    `pattern` (a name, an expression, or None for no splitting) takes the place of the one that the file names.
    Raises TokenizerFileError, naming the place, where the file is damaged, has another kind of tokenizer, or
    names a pre-tokenizer that bytemill has no pattern for and none is given.
    """
    place = Path(path)
    try:
        with place.open("rb") as file:
            return _read(file, os.fstat(file.fileno()).st_size, str(place), pattern)
    except OSError as error:
        raise TokenizerFileError(f"{place}: cannot be read: {error.strerror or error}") from error


def from_bytes(data: bytes, location: str, pattern: str | EllipsisType | None = ...) -> TokenizerSpec:
    """As `read`, of a file's content; `location` names it in errors."""
    return _read(io.BytesIO(data), len(data), location, pattern)


def _read(file: Any, size: int, location: str, pattern: str | EllipsisType | None) -> TokenizerSpec:
    values = read_head(file, size, location, _WANTED).values
    _refuse_other_models(values.get(_MODEL), location)
    tokens, pairs = _strings(values, _TOKENS, location), _pairs(values, location)
    types = _types(values, len(tokens), location)
    vocab, special = _vocabulary(tokens, types, _special_ids(values, location), pairs, location)
    ordinary, merges = tokens_and_merges(
        vocab,
        pairs,
        special,
        vocab_location=f"{location}: {_TOKENS}",
        merge_location=lambda index: f"{location}: {_MERGES}[{index}]",
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
    )


def _refuse_other_models(model: Value | None, location: str) -> None:
    if model is None:
        raise TokenizerFileError(f"{location} holds no tokenizer: {_MODEL} is missing")
    if model != "gpt2":
        kind = _OTHER_MODELS.get(model) if isinstance(model, str) else None
        meaning = f" ({kind})" if kind else ""
        raise TokenizerFileError(
            f"{location}: {_MODEL} is {shown(model)}{meaning}, and bytemill reads byte-level BPE ('gpt2') only"
        )


def _text(values: Mapping[str, Value], key: str, location: str) -> str | None:
    value = values.get(key)
    if value is not None and not isinstance(value, str):
        raise TokenizerFileError(f"{location}: {key} is no string")
    return value or None


def _strings(values: Mapping[str, Value], key: str, location: str) -> list[str]:
    value = values.get(key)
    if value is None:
        raise TokenizerFileError(
            f"{location}: {key} is missing", hint="Byte-level BPE has tokens and merges."
        )
    # An empty array is one of any type.
    if isinstance(value, array) and not value:
        return []
    if not isinstance(value, list):
        raise TokenizerFileError(f"{location}: {key} is no array of strings")
    return value


def _pairs(values: Mapping[str, Value], location: str) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for index, merge in enumerate(_strings(values, _MERGES, location)):
        left, _, right = merge.partition(" ")
        if not left or not right or " " in right:
            raise TokenizerFileError(
                f"{location}: {_MERGES}[{index}]: is {shown(merge)}, not two tokens with a space between them"
            )
        pairs.append((left, right))
    return pairs


def _types(values: Mapping[str, Value], n_tokens: int, location: str) -> Sequence[int] | None:
    """The type of each token; None where the file does not say."""
    types = values.get(_TYPES)
    if types is None:
        return None
    if not isinstance(types, array) or types.typecode == "d":
        raise TokenizerFileError(f"{location}: {_TYPES} is no array of whole numbers")
    if len(types) != n_tokens:
        raise TokenizerFileError(f"{location}: {_TYPES} has {len(types)} types for {n_tokens} tokens")
    if not set(types) <= {_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED}:
        index, kind = next((i, kind) for i, kind in enumerate(types) if not _NORMAL <= kind <= _UNUSED)
        meaning = "a byte outside the vocabulary's spelling" if kind == 6 else "unknown"
        raise TokenizerFileError(
            f"{location}: {_TYPES}[{index}]: is {shown(kind)} ({meaning}), which byte-level BPE has not"
        )
    return [int(kind) for kind in types]


def _special_ids(values: Mapping[str, Value], location: str) -> set[int]:
    ids: set[int] = set()
    for key in _SPECIAL_IDS & values.keys():
        value = values[key]
        if type(value) is not int:
            raise TokenizerFileError(f"{location}: {key} is no id")
        ids.add(value)
    return ids


def _vocabulary(
    tokens: Sequence[str],
    types: Sequence[int] | None,
    special_ids: set[int],
    pairs: Sequence[tuple[str, str]],
    location: str,
) -> tuple[dict[str, int], dict[str, int]]:
    """All tokens by spelling, those that fill gaps left out, and the special ones among them."""
    ids: dict[str, int] = {}
    for token_id, token in enumerate(tokens):
        if token and ids.setdefault(token, token_id) != token_id:
            raise TokenizerFileError(
                f"{location}: {_TOKENS}: {ids[token]} and {token_id} are the same token {shown(token)}"
            )
    made = {left + right for left, right in pairs} | CHARACTER_TO_BYTE.keys()
    special: dict[str, int] = {}
    unused: list[str] = []
    for token, token_id in ids.items():
        kind = _NORMAL if types is None else types[token_id]
        if kind in (_UNKNOWN, _CONTROL, _USER_DEFINED):
            special[token] = token_id
        elif token not in made:
            if kind == _UNUSED:
                unused.append(token)
            elif token_id in special_ids or (types is None and _looks_special(token)):
                special[token] = token_id
    for token in unused:
        del ids[token]
    return ids, special


def _looks_special(token: str) -> bool:
    """Where a file has no types, they are guessed as for GPT-2's files, which have none either."""
    bracketed = len(token) > 2 and (token[0], token[-1]) in {("<", ">"), ("[", "]")}
    return bracketed or not CHARACTER_TO_BYTE.keys() >= set(token)


def _pattern(
    given: str | EllipsisType | None, name: str | None, record: Mapping[str, Any], location: str
) -> str | None:
    """The expression: the one given, else that of the name, else the recorded one."""
    if given is not ...:
        if given is not None:
            try:
                check_pattern(given)
            except ValueError as error:
                raise TokenizerError(f"pattern {shown(given)}: {error}") from error
            return NAMED_PATTERNS.get(given, given)
        return None
    if name is None:
        if "pattern" in record:
            return record["pattern"]
        raise TokenizerFileError(
            f"{location}: {_PRE} is missing, so that the file does not say how texts are split",
            hint="Give the pattern: an expression or one of " + ", ".join(sorted(NAMED_PATTERNS)) + ".",
        )
    known = pre_tokenizer(name, location)
    # Another expression that splits like a named one stays as it was.
    if "pattern" in record and same_split(record["pattern"], known.pattern):
        return record["pattern"]
    return known.pattern


def _record(values: Mapping[str, Value], name: str | None, n_merges: int, location: str) -> dict[str, Any]:
    """The checked fields of `bytemill.record`.

    Empty where another tool wrote the file, or has since given the pre-tokenizer another name.
    """
    text = _text(values, _RECORD, location)
    if text is None:
        return {}
    location = f"{location}: {_RECORD}"
    record = parse_json(text, location)
    if not is_object(record):
        raise TokenizerFileError(f"{location} is {shown(record)}, not an object")
    if record.get("format") != RECORD_FORMAT:
        raise TokenizerFileError(
            f"{location}.format is {shown(record.get('format'))}, and this bytemill knows {RECORD_FORMAT}",
            hint="The file was written by a newer bytemill: upgrade.",
        )
    if record.get("pre") != name:
        return {}
    counts, pattern = record.get("merge_counts"), record.get("pattern")
    whole = record.get("ignore_merges")
    if record.get("ties") not in (None, "bytes", "huggingface"):
        raise TokenizerFileError(f"{location}.ties is {shown(record['ties'])}")
    if not isinstance(whole, bool):
        raise TokenizerFileError(f"{location}.ignore_merges is {shown(whole)}, not true or false")
    if counts is not None and not (
        is_array(counts) and len(counts) == n_merges and set(map(type, counts)) <= {int}
    ):
        raise TokenizerFileError(f"{location}.merge_counts is no array of {n_merges} whole numbers")
    if pattern is not None:
        try:
            check_pattern(pattern)
        except (TypeError, ValueError) as error:
            raise TokenizerFileError(f"{location}.pattern: {shown(pattern)}: {error}") from error
        record["pattern"] = NAMED_PATTERNS.get(pattern, pattern)
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
    """Writes `spec` as a GGUF file that holds a tokenizer and no tensors.

    `pre` is llama.cpp's name for the pre-tokenizer; left out, it is the one that means the pattern of `spec`.
    Where none does, the file names none, and a `PreTokenizerWarning` says so. `bos_token` and `eos_token` are
    the special tokens at the beginning and the end of a text; left out, they are those whose names say it.
    Encoding adds neither. `architecture` is the name of the model's, without which no GGUF file is valid.

    The file appears under its name once it is whole. Raises `MissingExtraError` without the package `gguf`,
    `TokenizerError` where the format cannot say what `spec` says, and `OutputError` where it cannot be written.
    """
    gguf = _library()
    check_expressible(spec, "a GGUF file")
    tokens = ordinary_tokens(spec)
    check_special_tokens(spec, tokens)
    merges = spec.merges if spec.merges is not None else merges_of_ranks(spec.ranks or {})
    check_merges(merges, tokens.values())
    if not merges:
        raise TokenizerError("a tokenizer without merges: a GGUF file cannot hold an empty list of them")
    whole = spec.ignore_merges or spec.ranks is not None
    name = matching_name(spec.pattern, merges, tokens.values(), ignore_merges=whole)
    if name is None or (pre is not None and not _means_the_same(pre, name)):
        _warn(spec.pattern, pre)
    name = name if pre is None else pre
    vocab = byte_level_vocab(spec, tokens, ignore_merges=whole)
    spellings, types = _listed(vocab, set(spec.special_tokens))
    record = {
        "format": RECORD_FORMAT,
        "pre": name,
        "pattern": _pattern_name(spec.pattern),
        "ignore_merges": whole,
        "ties": spec.ties,
        "merge_counts": spec.merge_counts,
    }
    spelling_of = {token_id: text for text, token_id in vocab.items()}
    ids = {token: token_id for token_id, token in tokens.items()}

    with tempfile.TemporaryDirectory(prefix="bytemill-") as folder:
        # The library opens its file by name and leaves half of one behind where it fails.
        draft = Path(folder) / "tokenizer.gguf"
        writer = gguf.GGUFWriter(draft, architecture)
        writer.add_string("general.type", "vocab")
        writer.add_tokenizer_model("gpt2")
        if name is not None:
            writer.add_tokenizer_pre(name)
        writer.add_token_list(spellings)
        writer.add_token_types(types)
        writer.add_token_merges(
            [f"{spelling_of[ids[left]]} {spelling_of[ids[right]]}" for left, right in merges]
        )
        for add, wanted, usual in (
            (writer.add_bos_token_id, bos_token, _BOS),
            (writer.add_eos_token_id, eos_token, _EOS),
        ):
            token_id = _special_id(spec.special_tokens, wanted, usual)
            if token_id is not None:
                add(token_id)
        # llama.cpp's defaults depend on the pre-tokenizer; `encode` adds nothing.
        writer.add_add_bos_token(False)
        writer.add_add_eos_token(False)
        writer.add_string(_RECORD, json.dumps(record, ensure_ascii=False))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        from bytemill.system.atomic_files import write_bytes

        write_bytes(path, draft.read_bytes())


def _library() -> Any:
    try:
        import gguf
    except ImportError as error:
        raise MissingExtraError(
            "writing GGUF needs the package gguf, which is not installed", hint="pip install gguf"
        ) from error
    return gguf


def _means_the_same(pre: str, name: str) -> bool:
    from bytemill.formats.gguf.pre_tokenizers import PRE_TOKENIZERS

    known = PRE_TOKENIZERS.get(pre)
    return known is not None and same_split(known.pattern, PRE_TOKENIZERS[name].pattern)


def _warn(pattern: str | None, pre: str | None) -> None:
    splits = (
        f"as the pattern {shown(_pattern_name(pattern))} does" if pattern is not None else "nothing at all"
    )
    if pre is None:
        message = f"llama.cpp has no pre-tokenizer that splits {splits}: the file names none, and ids may differ there"
    else:
        message = (
            f"the pre-tokenizer {shown(pre)} is not known to split {splits}: ids may differ in llama.cpp"
        )
    warnings.warn(message, PreTokenizerWarning, stacklevel=3)


def _pattern_name(pattern: str | None) -> str | None:
    names = {expression: name for name, expression in NAMED_PATTERNS.items()}
    return None if pattern is None else names.get(pattern, pattern)


def _listed(vocab: Mapping[str, int], special: set[str]) -> tuple[list[str], list[int]]:
    """The tokens in the order of their ids, gaps filled with unused ones, and the type of each."""
    n_ids = max(vocab.values(), default=-1) + 1
    if n_ids > MAX_ELEMENTS:
        raise TokenizerError(
            f"ids go up to {n_ids - 1}: a GGUF file lists a token for each, and bytemill writes up to {MAX_ELEMENTS}"
        )
    spellings, types = [""] * n_ids, [_UNUSED] * n_ids
    for text, token_id in vocab.items():
        spellings[token_id] = text
        types[token_id] = _CONTROL if text in special else _NORMAL
    for token_id in range(n_ids):
        if not spellings[token_id]:
            filler = f"[PAD{token_id}]"
            while filler in vocab:
                filler += "]"
            spellings[token_id] = filler
    return spellings, types


def _special_id(special: Mapping[str, int], wanted: str | None, usual: Sequence[str]) -> int | None:
    if wanted is not None:
        if wanted not in special:
            raise TokenizerError(f"{wanted!r} is none of the special tokens")
        return special[wanted]
    return next((special[token] for token in usual if token in special), None)
