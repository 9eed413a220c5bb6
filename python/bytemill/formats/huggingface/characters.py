"""The part of a tokenizer.json that differs for BPE over characters: SentencePiece-style models.

Spaces are U+2581 (`▁`) in such files. In a `TokenizerSpec` they are spaces: see `CharacterModel`. Two ways to put them
there are in use: the normalizer replaces spaces, or the pre-tokenizer is `Metaspace`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from bytemill.errors import TokenizerError, TokenizerFileError
from bytemill.formats.files import array_at, bool_at, is_object, object_at, shown, wrong_value
from bytemill.formats.huggingface.normalizers import from_normalizer, to_normalizer
from bytemill.formats.huggingface.parts import DECODERS
from bytemill.formats.huggingface.pre_tokenizers import splitting_of, to_pre_tokenizer
from bytemill.formats.spec import CharacterModel, NormalizerSteps, PretokenShape, TokenFlags, TokenizerSpec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Patterns of the core for texts that are not split (see `Spaces`).
_WITHOUT_EFFECT = (None, " *[^ ]+| +", r" *[^ \n]+| +|\n+")
META = "\N{LOWER ONE EIGHTH BLOCK}"
EACH_SPACE = " ?[^ ]+| "
"""Pattern of `Metaspace` with `split`: every space begins a pre-token."""
LINES = r"[^\n]+|[\n]+"
"""Pattern of llama.cpp for Gemma 4: the only other one that models of characters may have."""

_TO_META, _FROM_META = ("Replace", " ", META), ("Replace", META, " ")
_TRIM_RIGHT = ("TrimSpaces", "right")
_DECODER = (
    {"type": "Replace", "pattern": {"String": META}, "content": " "},
    {"type": "ByteFallback"},
    {"type": "Fuse"},
)
_BYTE_NAMES = tuple(f"<0x{byte:02X}>" for byte in range(256))
_REMOVING = ("Strip", "StripAccents", "Replace")
OWN_BYTES = (META, *map(chr, range(128)))
"""Characters of one byte, of which `byte_fallback` needs no byte if they are tokens."""
_BYTE_NAME = re.compile("<0x[0-9A-Fa-f]{2}>")
_STRIP_ONE = {"type": "Strip", "content": " ", "start": 1, "stop": 0}


def is_character_model(document: Mapping[str, Any]) -> bool:
    """Return whether a tokenizer.json is BPE over characters: no step of normalizer or pre-tokenizer is ByteLevel."""
    return not any("'ByteLevel'" in repr(document.get(field)) for field in ("pre_tokenizer", "normalizer"))


def read(
    document: Mapping[str, Any],
    vocab: Mapping[str, int],
    pairs: Sequence[Sequence[str]],
    special_tokens: Mapping[str, int],
    location: str,
) -> TokenizerSpec:
    """Return the model, normalizer and pattern of a document, without flags of special tokens and metadata.

    Args:
        document: The parsed tokenizer.json.
        vocab: `model.vocab`, checked.
        pairs: `model.merges`, checked.
        special_tokens: The added tokens with their ids.
        location: Name of the file, for errors.

    Raises:
        TokenizerFileError: The file is damaged or has a feature that is not supported exactly.
    """
    settings = settings_of(document, vocab, location)
    has_meta = settings.characters.writes_spaces_as_meta

    products = {left + right for left, right in pairs}
    left_out = {text for text in special_tokens if len(text) > 1 and text not in products}
    if document["model"].get("byte_fallback"):
        left_out.update(_BYTE_NAMES)
    elif (unknown := document["model"].get("unk_token")) is not None and (
        unknown in products or any(unknown in pair for pair in pairs)
    ):
        # Hugging Face's library applies them to the unknown token too.
        raise TokenizerFileError(
            f"{location}: model.unk_token: {shown(unknown)} is in merges, which is not supported"
        )
    ordinary = [text for text in vocab if text not in left_out]
    encoded = dict(zip(ordinary, as_bytes(ordinary, has_meta=has_meta), strict=True))
    tokens = {vocab[text]: token for text, token in encoded.items()}
    if len(set(tokens.values())) != len(tokens):
        twice = next(text for text in vocab if has_meta and " " in text and text.replace(" ", META) in vocab)
        raise TokenizerFileError(
            f"{location}: model.vocab has {shown(twice)} with a space and with {META!r}, which means one"
        )
    if not (encoded.keys() >= products and encoded.keys() >= set(chain.from_iterable(pairs))):
        index, text = next(
            (index, text)
            for index, pair in enumerate(pairs)
            for text in (*pair, "".join(pair))
            if text not in encoded
        )
        raise TokenizerFileError(
            f"{location}: model.merges[{index}]: {shown(text)} is not a token of the vocabulary"
        )
    return TokenizerSpec(
        pattern=settings.pattern,
        special_tokens=dict(special_tokens),
        vocab=tokens,
        merges=[(encoded[left], encoded[right]) for left, right in pairs],
        ignore_merges=bool(document["model"].get("ignore_merges")),
        normalizer=settings.normalizer,
        characters=settings.characters,
        shape=settings.shape,
    )


@dataclass(frozen=True)
class CharacterSettings:
    """What a tokenizer.json says about a model of characters beside its tokens and merges."""

    normalizer: NormalizerSteps
    pattern: str | None
    characters: CharacterModel
    shape: PretokenShape


def settings_of(document: Mapping[str, Any], vocab: Mapping[str, int], location: str) -> CharacterSettings:
    """Return the settings of a document. Arguments and errors are those of `read`.

    Of the vocabulary, only the texts of `fallback_texts` and `OWN_BYTES` are looked up.
    """
    steps = from_normalizer(document.get("normalizer"), f"{location}: normalizer")
    normalizer, pattern, has_meta, shape = _spaces(steps, document.get("pre_tokenizer"), location)
    characters, drops_unknown = _fallback(document["model"], vocab, f"{location}: model", has_meta=has_meta)
    if drops_unknown and (has_meta or document["model"].get("ignore_merges")):
        what = f"{META!r} stands for spaces" if has_meta else "model.ignore_merges is true"
        raise TokenizerFileError(
            f"{location}: {what}, which is not supported where unknown characters vanish"
        )
    fuses_within = pattern is not None and characters.fuse_unk
    shape = shape._replace(drops_unknown=drops_unknown, fuses_within=fuses_within)
    characters = replace(characters, writes_spaces_as_meta=has_meta)
    strip = _decode_strip(document.get("decoder"), characters, f"{location}: decoder")
    _check_added_tokens(document.get("added_tokens", []), f"{location}: added_tokens", has_meta=has_meta)
    return CharacterSettings(normalizer, pattern, replace(characters, decode_strip=strip), shape)


def _check_added_tokens(tokens: Any, location: str, *, has_meta: bool) -> None:
    """Raise TokenizerFileError for a token that Hugging Face's library finds or decodes in a way of its own."""
    for index, token in enumerate(array_at(tokens, location)):
        text: Any = token.get("content") if is_object(token) else None
        if isinstance(text, str) and _BYTE_NAME.fullmatch(text):
            raise TokenizerFileError(f"{location}[{index}] is {shown(text)}, which is decoded as a byte")
        absorbs = is_object(token) and (token.get("lstrip") or token.get("rstrip"))
        if has_meta and absorbs and token.get("normalized"):
            raise TokenizerFileError(
                f"{location}[{index}] absorbs white space, but no space that became {META!r}"
            )


def fallback_texts(model: Mapping[str, Any]) -> list[str]:
    """Return the texts of the tokens of a model that stand for unknown characters or their bytes."""
    if model.get("byte_fallback"):
        return list(_BYTE_NAMES)
    unknown = model.get("unk_token")
    return [] if unknown is None else [unknown]


def as_bytes(texts: Sequence[str], *, has_meta: bool) -> list[bytes]:
    """Return texts as UTF-8, with spaces for `▁`. All at once takes a fifth of the time of one after the other."""
    joined = "\0".join(texts)
    if joined.count("\0") != len(texts) - 1:
        return [(text.replace(META, " ") if has_meta else text).encode() for text in texts]
    return (joined.replace(META, " ") if has_meta else joined).encode().split(b"\0")


def _spaces(
    steps: NormalizerSteps, pre_tokenizer: Any, location: str
) -> tuple[NormalizerSteps, str | None, bool, PretokenShape]:
    """Return the normalizer with spaces for `▁`, the pattern, whether files write spaces as `▁`, and the shape."""
    plain = PretokenShape()
    path = f"{location}: pre_tokenizer"
    step: Any = pre_tokenizer
    if is_object(step) and step.get("type") == "Sequence":
        parts = array_at(step.get("pretokenizers"), f"{path}.pretokenizers")
        if len(parts) == 1:
            step, path = parts[0], f"{path}.pretokenizers[0]"
    replaces = _TO_META in steps
    end = steps.index(_TO_META) if replaces else len(steps)
    after = steps[end + 1 :]
    if any(step != _TRIM_RIGHT for step in after) or (not replaces and _TRIM_RIGHT in steps):
        raise TokenizerFileError(
            f"{location}: normalizer: a step after the one that replaces spaces by {META!r}"
        )
    inner = tuple((name, *(part.replace(META, " ") for part in parts)) for name, *parts in steps[:end])
    if step is None:
        return (*inner, *([_FROM_META] if replaces else []), *after), None, replaces, plain
    settings = object_at(step, path, "a pre-tokenizer")
    match settings:
        case {"type": "Split", "pattern": {"Regex": str(expression)}, "behavior": "Isolated"} if (
            expression == LINES
        ):
            return (*inner, *([_FROM_META] if replaces else []), *after), LINES, replaces, plain
        # Without spaces in the text, nothing is split.
        case {"type": "Split", "pattern": {"String": " "}} if replaces:
            return (*inner, _FROM_META, *after), None, True, plain
        case {"type": "Metaspace", "replacement": str(replacement)} if replacement == META:
            scheme: Any = settings.get("prepend_scheme")
            if scheme is None:
                legacy = bool_at(settings.get("add_prefix_space", True), f"{path}.add_prefix_space")
                scheme = "always" if legacy else "never"
            if scheme not in ("always", "first", "never"):
                raise wrong_value(f"{path}.prepend_scheme", scheme, "'always', 'first' or 'never'")
            splits = bool_at(settings.get("split", True), f"{path}.split")
            prefix = [] if scheme == "never" else [("Metaspace", scheme)]
            if scheme == "first" and (removes := [name for name, *_ in inner if name in _REMOVING]):
                raise TokenizerFileError(
                    f"{path}.prepend_scheme is 'first', which is not supported after {removes[0]}: "
                    "it counts characters that the normalizer removed"
                )
            return (*inner, _FROM_META, *after, *prefix), EACH_SPACE if splits else None, True, plain
        case _ if replaces:
            raise TokenizerFileError(
                f"{path} is {shown(settings.get('type'))}, which is not supported for texts with {META!r} for spaces"
            )
        case _:
            splitting = splitting_of(pre_tokenizer, path)
            return inner, splitting.pattern, False, splitting.shape


def _fallback(
    model: Mapping[str, Any], vocab: Mapping[str, int], location: str, *, has_meta: bool
) -> tuple[CharacterModel, bool]:
    """Return what unknown characters become, and whether they vanish."""
    if model.get("byte_fallback"):
        if model.get("ignore_merges"):
            raise TokenizerFileError(
                f"{location} has 'byte_fallback' and 'ignore_merges': pre-tokens like '<0x0A>' are looked up too"
            )
        missing = [byte for byte, name in enumerate(_BYTE_NAMES) if name not in vocab]
        # A character that is a token needs no byte.
        for byte in missing:
            if byte >= 0x80 or (META if byte == 0x20 and has_meta else chr(byte)) not in vocab:
                raise TokenizerFileError(
                    f"{location}.vocab lacks {_BYTE_NAMES[byte]}, which 'byte_fallback' needs",
                    hint="add all 256 of them",
                )
        ids = {byte: vocab[_BYTE_NAMES[byte]] for byte in range(256) if byte not in missing}
        return CharacterModel(ids), False
    unknown = model.get("unk_token")
    if unknown is None:
        return CharacterModel(None), True
    if unknown not in vocab:
        raise TokenizerFileError(f"{location}.unk_token: {shown(unknown)} is not in the vocabulary")
    if len(unknown) == 1 and model.get("fuse_unk"):
        raise TokenizerFileError(
            f"{location}.unk_token: {shown(unknown)} is also a character of texts, "
            "which is not supported with 'fuse_unk'"
        )
    return CharacterModel(None, unk_id=vocab[unknown], fuse_unk=bool(model.get("fuse_unk"))), False


_STRIPS = {
    ("Replace", "ByteFallback"): "none",
    ("Replace", "ByteFallback", "Fuse"): "none",
    ("Replace", "ByteFallback", "Fuse", "Strip"): "one",
    ("Replace", "Strip", "ByteFallback"): "every",
    ("Replace", "Strip", "ByteFallback", "Fuse"): "every",
}
"""`CharacterModel.decode_strip` of the steps of a decoder."""


def _decode_strip(decoder: Any, characters: CharacterModel, location: str) -> Any:
    """Return `CharacterModel.decode_strip` of a `decoder` object.

    Raises:
        TokenizerFileError: It is damaged, or does not join the tokens with `▁` as spaces and bytes as such.
    """
    if decoder is None:
        return "none"
    has_bytes, has_meta = characters.byte_ids is not None, characters.writes_spaces_as_meta
    kinds = DECODERS.read_all(decoder, location)
    if len(kinds) == 1 and kinds[0].startswith("Metaspace") and has_meta and not has_bytes:
        return "none" if kinds[0].endswith("never") else "token"
    # Without bytes among the tokens, ByteFallback changes none; without `▁`, Replace would change texts.
    found = [kind for kind in kinds if has_bytes or kind != "ByteFallback"]
    for known, strip in _STRIPS.items():
        needed = [kind for kind in known if has_bytes or kind != "ByteFallback"]
        if kinds and found == [kind for kind in needed if has_meta or kind != "Replace"]:
            return strip
    raise TokenizerFileError(f"{location} has the steps {kinds}, which is not supported for this model")


def objects_of(spec: TokenizerSpec, characters: CharacterModel) -> dict[str, Any]:
    """Return `normalizer`, `pre_tokenizer` and `decoder` of a tokenizer.json.

    Raises:
        TokenizerError: Hugging Face's library could not give the same ids.
    """
    steps = spec.normalizer
    if any(step[0] == "CharsMap" for step in steps):
        raise TokenizerError(
            "tokenizer.json cannot represent SentencePiece's compiled normalization rules: Hugging Face's library "
            "applies them to groups of characters",
            hint="keep the SentencePiece .model",
        )
    late = any(spec.flags.get(token, TokenFlags()).normalized for token in spec.special_tokens)
    if characters.verbatim_symbols and late and any(step != _FROM_META for step in steps):
        raise TokenizerError(
            "tokenizer.json cannot represent user-defined symbols that are found after a space is put before the text",
            hint="keep the SentencePiece .model",
        )
    pre_tokenizer: dict[str, Any] | None = None
    if spec.pattern != EACH_SPACE and spec.pattern not in _WITHOUT_EFFECT:
        pre_tokenizer = to_pre_tokenizer(spec.pattern, shape=spec.shape, is_byte_level=False)
    if characters.writes_spaces_as_meta:
        scheme = steps[-1][1] if steps and steps[-1][0] == "Metaspace" else "never"
        steps = tuple(step for step in steps if step[0] != "Metaspace")
        before = steps[: steps.index(_FROM_META)] if _FROM_META in steps else steps
        written = tuple((name, *(part.replace(" ", META) for part in parts)) for name, *parts in before)
        if scheme != "never" or spec.pattern == EACH_SPACE:
            splits = spec.pattern == EACH_SPACE
            pre_tokenizer = {
                "type": "Metaspace",
                "replacement": META,
                "prepend_scheme": scheme,
                "split": splits,
            }
            steps = (*before, *([_TO_META, _TRIM_RIGHT] if _TRIM_RIGHT in steps else []))
        else:
            steps = (*written, _TO_META, *([_TRIM_RIGHT] if _TRIM_RIGHT in steps else []))
    decoders: list[dict[str, Any]] = [*_DECODER] if characters.writes_spaces_as_meta else [*_DECODER[1:]]
    if characters.decode_strip != "none":
        decoders.insert(1 if characters.decode_strip == "every" else len(decoders), _STRIP_ONE)
    decoder = (spec.metadata and spec.metadata.decoder) or {"type": "Sequence", "decoders": decoders}
    return {"normalizer": to_normalizer(steps), "pre_tokenizer": pre_tokenizer, "decoder": decoder}


def model_of(
    spec: TokenizerSpec, characters: CharacterModel
) -> tuple[dict[str, Any], dict[str, int], list[list[str]]]:
    """Return the options, the vocabulary and the merges of the model of a tokenizer.json.

    Raises:
        TokenizerError: Hugging Face's library could not load the model.
    """

    def to_text(token: bytes) -> str:
        text = token.decode()
        return text.replace(" ", META) if characters.writes_spaces_as_meta else text

    vocab = {to_text(token): token_id for token_id, token in spec.vocab.items()}
    for byte, token_id in (characters.byte_ids or {}).items():
        vocab[f"<0x{byte:02X}>"] = token_id
    for text, token_id in spec.special_tokens.items():
        if vocab.setdefault(text, token_id) != token_id:
            raise TokenizerError(
                f"special token {text!r} (id {token_id}) is written like the ordinary token with id {vocab[text]}"
            )
    unknown = next((text for text, token_id in vocab.items() if token_id == characters.unk_id), None)
    options = {
        "unk_token": unknown,
        "fuse_unk": characters.fuse_unk,
        "byte_fallback": characters.byte_ids is not None,
        "ignore_merges": spec.ignore_merges,
    }
    by_id = dict(sorted(vocab.items(), key=lambda item: item[1]))
    merges = [[to_text(left), to_text(right)] for left, right in spec.merges or []]
    if (
        missing := next((part for part in chain.from_iterable(merges) if part not in vocab), None)
    ) is not None:
        raise TokenizerError(
            f"tokenizer.json cannot represent merges of {shown(missing)}, which is no token",
            hint="keep the SentencePiece .model",
        )
    return options, by_id, merges
