"""The tokenizers in GGUF files other than GPT-2's, as files of the libraries that have them.

`tokenizer.ggml.model` names the kind. SentencePiece's models (`llama`, `t5`) become a `.model`; WordPiece (`bert`) and
BPE over characters (`gemma4`, `whitespace`) become a tokenizer.json. The options are those with which llama.cpp gives
its ids.
"""

from __future__ import annotations

import json
import re
import struct
from array import array
from typing import TYPE_CHECKING, Any

from bytemill._core import StringArray
from bytemill.errors import TokenizerFileError
from bytemill.formats.files import shown
from bytemill.formats.huggingface.characters import LINES
from bytemill.formats.sentencepiece import Model

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bytemill.formats import sentencepiece
    from bytemill.formats.gguf_metadata import Value
    from bytemill.formats.spec import TokenFlags

_PREFIX = "tokenizer.ggml."
KEYS = frozenset(
    _PREFIX + name
    for name in (
        *("scores", "add_space_prefix", "remove_extra_whitespaces", "precompiled_charsmap"),
        *("normalizer.lowercase", "normalizer.strip_accents"),
    )
)
"""What is read here besides the tokens, their types and the merges."""

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = 1, 2, 3, 4, 5, 6
_UNIGRAM, _BPE = 1, 2
_META = "\N{LOWER ONE EIGHTH BLOCK}"
_NO_LIMIT = 1 << 30


def sentencepiece_model(values: Mapping[str, Value], location: str) -> Model:
    """Return the SentencePiece model of a file of the kind `llama` or `t5`.

    Raises:
        TokenizerFileError: A field is missing or has a wrong type.
    """
    is_unigram = values.get(_PREFIX + "model") == "t5"
    tokens = tokens_of(values, location)
    types = types_of(values, len(tokens), location) or [_NORMAL] * len(tokens)
    scores = values.get(_PREFIX + "scores")
    if not isinstance(scores, array) or len(scores) != len(tokens):
        raise TokenizerFileError(f"{location}: {_PREFIX}scores is not an array of a number per token")
    # SentencePiece has one unknown piece.
    known = values.get(_PREFIX + "unknown_token_id")
    unknown = known if type(known) is int else types.index(_UNKNOWN) if _UNKNOWN in types else 0
    types = [_CONTROL if kind == _UNKNOWN else kind for kind in types]
    if 0 <= unknown < len(types):
        types[unknown] = _UNKNOWN
    charsmap = values.get(_PREFIX + "precompiled_charsmap")
    rules = (
        bytes(int(each) % 256 for each in charsmap)
        if isinstance(charsmap, array) and charsmap.typecode in "bB"
        else b""
    )
    prefix = values.get(_PREFIX + "add_space_prefix", True)
    is_trimmed = values.get(_PREFIX + "remove_extra_whitespaces", is_unigram)
    return Model(
        tokens,
        [float(score) for score in scores],
        types,
        {3: _UNIGRAM if is_unigram else _BPE, 35: int(_BYTE in types)},
        {2: rules, 3: int(bool(prefix)), 4: int(bool(is_trimmed))},
    )


def wordpiece_document(values: Mapping[str, Value], location: str) -> dict[str, Any]:
    """Return the tokenizer.json of a file of the kind `bert`, whose tokens have `▁` where a word begins.

    Raises:
        TokenizerFileError: A field is missing or has a wrong type.
    """
    tokens = tokens_of(values, location)
    types = types_of(values, len(tokens), location) or [_NORMAL] * len(tokens)
    vocab: dict[str, int] = {}
    for token_id, (token, kind) in enumerate(zip(tokens, types, strict=True)):
        if kind in (_UNKNOWN, _CONTROL, _USER_DEFINED):
            text = token
        else:
            text = token[1:] if token.startswith(_META) else f"##{token}"
        vocab.setdefault(text, token_id)
    unknown = values.get(_PREFIX + "unknown_token_id", 100)
    if not isinstance(unknown, int) or not 0 <= unknown < len(tokens):
        raise TokenizerFileError(f"{location}: {_PREFIX}unknown_token_id is {shown(unknown)}, which is no id")
    lowercase = bool(values.get(_PREFIX + "normalizer.lowercase", True))
    strips = values.get(_PREFIX + "normalizer.strip_accents", lowercase)
    return {
        **_head(tokens, types),
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": bool(strips),
            "lowercase": lowercase,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": tokens[unknown],
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": _NO_LIMIT,
            "vocab": vocab,
        },
    }


def character_bpe_document(
    values: Mapping[str, Value], merges: Sequence[str], location: str
) -> dict[str, Any]:
    """Return the tokenizer.json of BPE over characters (`gemma4`), which does not merge across line ends.

    Raises:
        TokenizerFileError: A field is missing or has a wrong type.
    """
    tokens = tokens_of(values, location)
    types = types_of(values, len(tokens), location) or [_NORMAL] * len(tokens)
    lines = {"type": "Split", "pattern": {"Regex": LINES}, "behavior": "Isolated", "invert": False}
    return {
        **_head(tokens, types),
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": _META},
        "pre_tokenizer": lines,
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": _META}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
            ],
        },
        "model": {
            "type": "BPE",
            "byte_fallback": True,
            "ignore_merges": False,
            "vocab": {token: token_id for token_id, token in enumerate(tokens)},
            "merges": list(merges),
        },
    }


def words_document(values: Mapping[str, Value], merges: Sequence[str], location: str) -> dict[str, Any]:
    """Return the tokenizer.json of BPE over the characters of words between white space (`whitespace`).

    Characters without a token vanish after merging, so they are pre-tokens of their own. As a pre-tokenizer of `gpt2`,
    white space vanishes only if it has no token.

    Raises:
        TokenizerFileError: A field is missing or has a wrong type.
    """
    tokens = tokens_of(values, location)
    types = types_of(values, len(tokens), location) or [_NORMAL] * len(tokens)
    is_kind = values.get(_PREFIX + "model") == "whitespace"
    words = {"type": "Split", "pattern": {"Regex": r"\S+"}, "behavior": "Isolated", "invert": False}
    unknown = f"[^{_ranges(sorted({ord(token) for token in tokens if len(token) == 1}))}]"
    steps = [
        {"type": "WhitespaceSplit"} if is_kind else words,
        {"type": "Split", "pattern": {"Regex": unknown}, "behavior": "Isolated", "invert": False},
    ]
    lowers = is_kind and values.get(_PREFIX + "normalizer.lowercase", False)
    # Rust's lower case of this letter is two characters.
    dotted = {
        "type": "Replace",
        "pattern": {"String": "\N{LATIN CAPITAL LETTER I WITH DOT ABOVE}"},
        "content": "i",
    }
    lower = {"type": "Sequence", "normalizers": [dotted, {"type": "Lowercase"}]}
    return {
        **_head(tokens, types),
        "normalizer": lower if lowers else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps},
        "decoder": {"type": "Fuse"},
        "model": {
            "type": "BPE",
            "vocab": {token: token_id for token_id, token in enumerate(tokens)},
            "merges": list(merges),
        },
    }


def _ranges(codes: Sequence[int]) -> str:
    """Return characters in ascending order as the inside of a character class."""
    ends: list[list[int]] = []
    for code in codes or [0]:
        if ends and code == ends[-1][1] + 1:
            ends[-1][1] = code
        else:
            ends.append([code, code])
    return "".join("-".join(re.escape(chr(code)) for code in dict.fromkeys(pair)) for pair in ends)


def byte_level_document(
    vocab: Mapping[str, int],
    special: Mapping[str, int],
    flags: Mapping[str, TokenFlags],
    merges: Sequence[str],
    pre_tokenizer: Any,
    *,
    ignore_merges: bool,
) -> dict[str, Any]:
    """Return the tokenizer.json of byte-level BPE (`gpt2`)."""
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            _added(token, token_id, is_special=token not in flags)
            for token, token_id in sorted(special.items(), key=lambda item: item[1])
        ],
        "normalizer": None,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": None,
        "decoder": {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": False,
            "use_regex": False,
        },
        "model": {
            "type": "BPE",
            "ignore_merges": ignore_merges,
            "vocab": dict(vocab),
            "merges": list(merges),
        },
    }


def as_file(document: dict[str, Any]) -> bytes:
    """Return the content of a tokenizer.json."""
    return json.dumps(document, ensure_ascii=False).encode()


def tokens_of(values: Mapping[str, Value], location: str) -> list[str]:
    """Return the texts of the tokens by id, with a name for an empty one as llama.cpp gives it."""
    tokens = values.get(_PREFIX + "tokens")
    if not isinstance(tokens, StringArray):
        raise TokenizerFileError(f"{location}: {_PREFIX}tokens is missing or not an array of strings")
    return [token or f"[EMPTY_{index}]" for index, token in enumerate(tokens.texts())]


def types_of(values: Mapping[str, Value], n_tokens: int, location: str) -> list[int] | None:
    """Return the type of each token, or None if the file has no types."""
    types = values.get(_PREFIX + "token_type")
    if types is None:
        return None
    if not isinstance(types, array) or types.typecode in "fd" or len(types) != n_tokens:
        raise TokenizerFileError(f"{location}: {_PREFIX}token_type is not an array of an integer per token")
    return [int(kind) for kind in types]


def _head(tokens: Sequence[str], types: Sequence[int]) -> dict[str, Any]:
    added = [
        _added(token, token_id, is_special=kind != _USER_DEFINED)
        for token_id, (token, kind) in enumerate(zip(tokens, types, strict=True))
        if kind in (_UNKNOWN, _CONTROL, _USER_DEFINED)
    ]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "post_processor": None,
    }


def _added(token: str, token_id: int, *, is_special: bool = True) -> dict[str, Any]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": token_id, "content": token, **flags, "special": is_special}


def model_file(model: Model) -> bytes:
    """Return the content of a `.model`, a protocol buffer: https://protobuf.dev/programming-guides/encoding/."""
    pieces = b"".join(
        _field(1, _field(1, text.encode()) + b"\x15" + struct.pack("<f", score) + _field(3, kind))
        for text, score, kind in zip(model.texts, model.scores, model.kinds, strict=True)
    )
    settings = (
        b"".join(_field(*item) for item in each.items()) for each in (model.trainer, model.normalizer)
    )
    return pieces + b"".join(map(_field, (2, 3), settings))


def _field(number: int, value: sentencepiece.Value) -> bytes:
    if isinstance(value, bytes):
        return _varint(number << 3 | 2) + _varint(len(value)) + value
    return _varint(number << 3) + _varint(int(value))


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])
