"""SentencePiece's `.model` files with the BPE algorithm, such as those of Llama 2, Mistral 7B and Gemma.

A `.model` is a protocol buffer with pieces, their scores and types, and the settings of the trainer and of the
normalizer. Field numbers: https://github.com/google/sentencepiece/blob/master/src/sentencepiece_model.proto

SentencePiece merges the two neighbors whose concatenation has the highest score, the leftmost ones of equal score. So
every way to split a piece into two pieces is a merge, and the merges are in the order of the scores of their results.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from bytemill._core import piece_merges, read_pieces
from bytemill.errors import TokenizerError, TokenizerFileError
from bytemill.formats.encoder import Loaded, character_encoder
from bytemill.formats.files import shown
from bytemill.formats.huggingface.characters import as_bytes
from bytemill.formats.spec import CharacterModel, NormalizerSteps, TokenFlags, TokenizerSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bytemill.formats.registry import Content

_META = "\N{LOWER ONE EIGHTH BLOCK}"
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = 1, 2, 3, 4, 5, 6
_ALGORITHMS = {1: "Unigram", 2: "BPE", 3: "Word", 4: "Char"}
_BPE = 2
_MAX_PIECES = 1 << 21

Value: TypeAlias = int | float | bytes


@dataclass
class Model:
    """The pieces of a model, and the fields of its trainer and of its normalizer by number."""

    texts: list[str] = field(default_factory=list[str])
    scores: list[float] = field(default_factory=list[float])
    kinds: list[int] = field(default_factory=list[int])
    trainer: dict[int, Value] = field(default_factory=dict[int, Value])
    normalizer: dict[int, Value] = field(default_factory=dict[int, Value])


def recognize(content: Content) -> bool:
    """Return whether a file's content may be a SentencePiece model."""
    return looks_like_model(content.data)


def read(content: Content) -> TokenizerSpec:
    """Read a file. Raises TokenizerFileError."""
    content.refuse_arguments()
    return from_bytes(content.data, content.location)


def looks_like_model(data: bytes) -> bool:
    """Return whether a file's content may be a SentencePiece model: its first field is a piece.

    >>> looks_like_model(b"\\x0a\\x0e\\x0a\\x05<unk>\\x15\\x00\\x00\\x00\\x00\\x18\\x02"), looks_like_model(b"{}")
    (True, False)
    """
    # A message (field 1) of at most 127 bytes that begins with a string (field 1). Both have the tag 0x0A.
    return len(data) > 4 and data[0] == data[2] == 0x0A and data[3] + 2 <= data[1] < 0x80


def load(content: Content) -> Loaded:
    """Load a file with the core. Raises TokenizerFileError."""
    return load_model(_parse(content.data, content.location), content.location)


def load_model(model: Model, location: str) -> Loaded:
    """Load a model with the core. Errors are those of `from_bytes`."""
    spec, scores = _spec(model, location)
    try:
        return Loaded(character_encoder(spec, scores), flags=spec.flags, characters=spec.characters)
    except TokenizerError as error:
        raise TokenizerFileError(f"{location}: {error}", hint=error.hint) from error


def from_bytes(data: bytes, location: str) -> TokenizerSpec:
    """Read the content of a `.model`; `location` names the file in errors.

    Control symbols such as `<s>` become special tokens, which are recognized in a text unless `allowed_special`
    excludes them. SentencePiece itself does not recognize them.

    Raises:
        TokenizerFileError: The file is damaged, is not BPE, or has a feature that is not supported exactly.
    """
    spec, scores = _spec(_parse(data, location), location)
    merges, ranks = piece_merges(spec.vocab, scores)
    return replace(spec, merges=merges, merge_ranks=ranks)


def _parse(data: bytes, location: str) -> Model:
    model = Model()
    try:
        rest = data
        if (read := read_pieces(data)) is not None:
            model.texts, model.scores, model.kinds, rest = read
        for number, value in fields(rest):
            if number == 1 and isinstance(value, bytes):
                _add_piece(model, dict(fields(value)))
            elif number == 2 and isinstance(value, bytes):
                model.trainer.update(fields(value))
            elif number == 3 and isinstance(value, bytes):
                model.normalizer.update(fields(value))
    except (WireError, UnicodeDecodeError) as error:
        raise TokenizerFileError(
            f"{location}: not a SentencePiece model: {error}",
            hint="the file may be truncated: download it again",
        ) from error
    return model


def _add_piece(model: Model, content: Mapping[int, Value]) -> None:
    if len(model.texts) == _MAX_PIECES:
        raise WireError(f"more than {_MAX_PIECES} pieces")
    text, score, kind = content.get(1, b""), content.get(2, 0.0), content.get(3, _NORMAL)
    if not (isinstance(text, bytes) and isinstance(score, float) and isinstance(kind, int)):
        raise WireError("a piece has fields of wrong types")
    model.texts.append(text.decode())
    model.scores.append(score)
    model.kinds.append(kind)


def _refuse_unsupported(model: Model, location: str) -> None:
    algorithm = model.trainer.get(3, 1)
    if algorithm != _BPE:
        name = (
            _ALGORITHMS.get(algorithm, shown(algorithm)) if isinstance(algorithm, int) else shown(algorithm)
        )
        raise TokenizerFileError(
            f"{location}: a SentencePiece model of type {name}; only BPE is supported",
            hint="use the sentencepiece package for it",
        )
    symbols = _symbols(model)
    if model.normalizer.get(2, b"") and any(" " in symbol or _META in symbol for symbol in symbols):
        raise TokenizerFileError(
            f"{location}: a normalizer with rules and user-defined symbols with spaces together are not supported",
            hint="use the sentencepiece package for it, or train with normalization_rule_name='identity'",
        )
    if model.trainer.get(24, 0):
        raise TokenizerFileError(f"{location}: 'treat_whitespace_as_suffix' is not supported")
    if not model.normalizer.get(5, 1):
        raise TokenizerFileError(f"{location}: 'escape_whitespaces' is off, which is not supported")
    if "" not in model.texts and {*model.kinds} <= {_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _BYTE}:
        return
    for index, (text, kind) in enumerate(zip(model.texts, model.kinds, strict=True)):
        if not text:
            raise TokenizerFileError(f"{location}: piece {index} is empty")
        if kind == _UNUSED:
            raise TokenizerFileError(f"{location}: piece {index}, {shown(text)}, is of the type UNUSED")
        if not _NORMAL <= kind <= _BYTE:
            raise TokenizerFileError(f"{location}: piece {index} has the unknown type {kind}")


def _symbols(model: Model) -> list[str]:
    """Return the user-defined symbols."""
    return [text for text, kind in zip(model.texts, model.kinds, strict=True) if kind == _USER_DEFINED]


def _spec(model: Model, location: str) -> tuple[TokenizerSpec, dict[int, float]]:
    """Return the tokenizer without its merges, and the scores of the pieces that are merged, by id."""
    _refuse_unsupported(model, location)
    texts, kinds = model.texts, model.kinds
    _refuse_repeated(texts, location)
    special_tokens: dict[str, int] = {}
    flags: dict[str, TokenFlags] = {}
    byte_ids: dict[int, int] = {}
    unknown: int | None = None
    for token_id in [index for index, kind in enumerate(kinds) if kind != _NORMAL]:
        text = texts[token_id]
        match kinds[token_id]:
            case 2:
                unknown = token_id
                special_tokens[text] = token_id
            case 3:
                special_tokens[text] = token_id
            case 4 if " " not in text:
                # Searched in the text as the vocabulary has it, with spaces.
                symbol = text.replace(_META, " ")
                special_tokens[symbol] = token_id
                flags[symbol] = TokenFlags(normalized=True, special=False)
            case 6:
                byte_ids[_byte_of(text, location)] = token_id
            case _:
                pass
    has_fallback = bool(model.trainer.get(35, 0))
    if has_fallback and len(byte_ids) != 256:
        raise TokenizerFileError(
            f"{location}: 'byte_fallback' is on, but {256 - len(byte_ids)} bytes have no piece"
        )
    if not has_fallback and unknown is None:
        raise TokenizerFileError(f"{location}: there is no piece for unknown characters")
    normalizer = _normalizer(model)
    ids = [index for index, kind in enumerate(kinds) if kind == _NORMAL]
    vocab = dict(zip(ids, as_bytes([texts[index] for index in ids], has_meta=True), strict=True))
    vocab |= _unfindable(model, vocab, special_tokens, location)
    characters = CharacterModel(
        byte_ids if has_fallback else None,
        unk_id=None if has_fallback else unknown,
        fuse_unk=not has_fallback,
        decode_strip="each"
        if model.normalizer.get(4, 1)
        else "one"
        if model.normalizer.get(3, 1)
        else "none",
        # A normalizer that only writes spaces does not change user-defined symbols.
        verbatim_symbols=bool(flags) and len(normalizer) > 1,
    )
    spec = TokenizerSpec(
        pattern=None,
        special_tokens=special_tokens,
        vocab=vocab,
        normalizer=normalizer,
        characters=characters,
        flags=flags,
    )
    return spec, {index: model.scores[index] for index in ids}


def _unfindable(
    model: Model, vocab: Mapping[int, bytes], special_tokens: Mapping[str, int], location: str
) -> dict[int, bytes]:
    """Return the user-defined symbols with a space as tokens that no merges make.

    SentencePiece never finds them, because it searches the text after every space has become `▁`.
    """
    found: dict[int, bytes] = {}
    unfindable = [text for text in _symbols(model) if " " in text]
    known = {*vocab.values(), *(token.encode() for token in special_tokens)} if unfindable else set[bytes]()
    for text in unfindable:
        token, token_id = text.replace(_META, " ").encode(), model.texts.index(text)
        if token in known:
            raise TokenizerFileError(
                f"{location}: piece {token_id}, {shown(text)}, is another one with a space instead of "
                f"{_META!r}, which SentencePiece never finds in a text",
                hint="train the model again without this user-defined symbol",
            )
        known.add(token)
        found[token_id] = token
    return found


def _refuse_repeated(texts: Sequence[str], location: str) -> None:
    if len(set(texts)) == len(texts):
        return
    ids: dict[str, int] = {}
    for token_id, text in enumerate(texts):
        if ids.setdefault(text, token_id) != token_id:
            raise TokenizerFileError(f"{location}: pieces {ids[text]} and {token_id} are both {shown(text)}")


def _byte_of(text: str, location: str) -> int:
    try:
        if len(text) == 6 and text.startswith("<0x") and text.endswith(">"):
            return int(text[3:5], 16)
    except ValueError:
        pass
    raise TokenizerFileError(f"{location}: {shown(text)} is of the type BYTE but names no byte")


def _normalizer(model: Model) -> NormalizerSteps:
    steps: list[tuple[str, ...]] = []
    charsmap = model.normalizer.get(2, b"")
    if charsmap and isinstance(charsmap, bytes):
        # The rules leave user-defined symbols alone; the core sorts them like this.
        symbols = sorted(_symbols(model), key=lambda symbol: -len(symbol.encode()))
        steps.append(("CharsMap", charsmap.hex(), *symbols))
    is_trimmed = model.normalizer.get(4, 1)  # remove_extra_whitespaces
    if is_trimmed:
        steps += [("TrimSpaces", "left"), ("JoinSpaces",)]
    if model.normalizer.get(3, 1):  # add_dummy_prefix
        # Also before a text of which the rules leave nothing, unless its spaces are trimmed afterwards.
        steps.insert(len(steps) if is_trimmed else 0, ("Prepend", " "))
    steps.append(("Replace", _META, " "))
    if is_trimmed:
        steps.append(("TrimSpaces", "right"))
    return tuple(steps)


_MAX_VARINT_BYTES = 10


class WireError(ValueError):
    """The bytes are not a message."""


def fields(data: bytes) -> Iterator[tuple[int, Value]]:
    """Yield the number and the value of each field of a protocol buffer message, in order.

    Source: https://protobuf.dev/programming-guides/encoding/

    Strings and embedded messages are bytes; fields of 32 bits are floats. Nothing is copied or nested here, so time and
    memory are bounded by the size of `data`.

    Raises:
        WireError: A field is cut off or of an unknown type.
    """
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        if number == 0:
            raise WireError(f"a field without a number at byte {at}")
        match kind:
            case 0:
                value, at = _varint(data, at)
                yield number, value
            case 1:
                yield number, struct.unpack("<d", _taken(data, at, 8))[0]
                at += 8
            case 2:
                n_bytes, at = _varint(data, at)
                yield number, _taken(data, at, n_bytes)
                at += n_bytes
            case 5:
                yield number, struct.unpack("<f", _taken(data, at, 4))[0]
                at += 4
            case _:
                raise WireError(f"field {number} at byte {at} has the unknown type {kind}")


def _taken(data: bytes, at: int, n_bytes: int) -> bytes:
    if n_bytes > len(data) - at:
        raise WireError(f"{n_bytes} bytes are announced at byte {at}, but {len(data) - at} follow")
    return data[at : at + n_bytes]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number of variable length and the offset after it."""
    value = 0
    for index in range(_MAX_VARINT_BYTES):
        if at + index >= len(data):
            raise WireError(f"the data end inside a number at byte {at}")
        byte = data[at + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, at + index + 1
    raise WireError(f"a number of more than {_MAX_VARINT_BYTES} bytes at byte {at}")
