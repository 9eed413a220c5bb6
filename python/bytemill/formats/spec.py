"""The contents of a tokenizer file, independent of its format."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, cast

from bytemill.errors import TokenizerError

Ties: TypeAlias = Literal["bytes", "huggingface"]
NormalizerSteps: TypeAlias = tuple[tuple[str, ...], ...]
"""Steps of a normalizer in order, each a name and its arguments: `NFC`, `NFD`, `NFKC`, `NFKD`, `Lowercase`,
`StripAccents`, `Replace` (from, to), `Prepend` (text), `Strip` (`left`, `right` or `both`), `TrimSpaces` (`left` or
`right`), `JoinSpaces`, `CharsMap` (SentencePiece's compiled rules in hexadecimal) and, as the last one, `Metaspace`
(`always` or `first`)."""
SpecialTokens: TypeAlias = Mapping[str, int] | Iterable[str]
"""User-supplied special tokens: with explicit ids, or for the next free ids."""

STEP_SEPARATOR = "(?#then)"
"""Separates the steps of a pattern, each of which splits the output of the previous one. A comment that no real
expression contains."""
BYTES_SEPARATOR = "(?#bytes)"
"""Separates the steps that split texts from those that split their bytes, each as the character that GPT-2's table has
for it. The latter may divide a character."""


@dataclass(frozen=True)
class TokenFlags:
    """Flags of an added token in Hugging Face's files. The defaults are those of an ordinary special token."""

    single_word: bool = False
    """Match only if no letter, mark, digit or underscore is adjacent."""
    lstrip: bool = False
    """Absorb white space before the token; decoding loses it."""
    rstrip: bool = False
    """Absorb white space after the token."""
    normalized: bool = False
    """Match only in text that the other special tokens leave over."""
    special: bool = True
    """False for an ordinary word added later. Affects `skip_special_tokens`, not ids."""


@dataclass(frozen=True)
class TokenizerMetadata:
    """Contents of Hugging Face's files that do not affect ids. Kept unchanged and written again."""

    post_processor: Any = None
    """`post_processor` of tokenizer.json, unless it is bytemill's default."""
    decoder: Any = None
    """`decoder` of tokenizer.json, unless it is bytemill's default."""
    config: dict[str, Any] | None = None
    """tokenizer_config.json."""
    special_tokens_map: dict[str, Any] | None = None
    """special_tokens_map.json."""
    chat_template: str | None = None
    """chat_template.jinja."""


@dataclass(frozen=True)
class CharacterModel:
    """BPE over characters instead of bytes, as in SentencePiece: what byte-level BPE does without.

    Tokens contain spaces where the files have U+2581 (`▁`), and the normalizer replaces that character by a space.
    """

    byte_ids: dict[int, int] | None
    """Id of the token of each byte (`byte_fallback`); None if unknown characters become `unk_id`."""
    unk_id: int | None = None
    """Id that stands for an unknown character. None with `byte_ids`."""
    fuse_unk: bool = False
    """One `unk_id` for several unknown characters in a row."""
    writes_spaces_as_meta: bool = True
    """Files write spaces in tokens as `▁`. False for a vocabulary without that convention."""
    decode_strip: Literal["none", "one", "token", "each"] = "none"
    """Spaces that decoding removes from the start of a text: none, one, those of the first token, or one from each
    token until there is text."""
    verbatim_symbols: bool = False
    """Search late special tokens as they are, without normalizing them (SentencePiece's user-defined symbols)."""


@dataclass(frozen=True)
class TokenizerSpec:
    """A tokenizer as plain data: the result of every reader and the input of every writer.

    Exactly one of `merges` and `ranks` is set. `ranks` (token bytes -> id, which is also the priority) comes from
    tiktoken's rank files, which store no merges.
    """

    pattern: str | None
    """Regular expression of the pre-tokenizer; None for no pre-tokenization."""
    special_tokens: dict[str, int]
    vocab: dict[int, bytes] = field(default_factory=dict[int, bytes])
    """Ordinary tokens by id. Empty if `ranks` is set."""
    merges: list[tuple[bytes, bytes]] | None = None
    ranks: dict[bytes, int] | None = None
    ignore_merges: bool = False
    """Encode a pre-token that is itself a token as that token, even if merges would not produce it."""
    ties: Ties | None = None
    """Tie-breaking rule of training, if known."""
    merge_counts: list[int] | None = None
    """Count of each merge's pair in the training corpus when it was merged, if known."""
    normalizer: NormalizerSteps = ()
    """Changes of the text between special tokens."""
    characters: CharacterModel | None = None
    """Set for BPE over characters; None for byte-level BPE."""
    flags: dict[str, TokenFlags] = field(default_factory=dict[str, TokenFlags])
    """Flags of the special tokens whose flags differ from the defaults."""
    metadata: TokenizerMetadata | None = None
    """Metadata that does not affect ids, if any."""


def explicit_ids(special_tokens: SpecialTokens) -> Mapping[str, int] | None:
    """Return the special tokens with their ids, or None if they have no explicit ids."""
    return cast("Mapping[str, int]", special_tokens) if isinstance(special_tokens, Mapping) else None


_SINGLE_WORD, _LSTRIP, _RSTRIP, _LATE, _VERBATIM = 1, 2, 4, 8, 16


def special_rules(
    special_tokens: Mapping[str, int],
    flags: Mapping[str, TokenFlags],
    normalizer: NormalizerSteps,
    *,
    verbatim: bool = False,
) -> dict[str, int]:
    """Return the matching rules of special tokens as the core's bit masks; tokens without a rule are absent.

    `normalized` matters only if there is a normalizer or if just some of the tokens have it.

    Args:
        special_tokens: Special tokens and their ids.
        flags: Their flags.
        normalizer: Steps of the normalizer.
        verbatim: Late tokens are searched as they are (`CharacterModel.verbatim_symbols`).
    """
    is_mixed = len({token in flags and flags[token].normalized for token in special_tokens}) > 1
    is_mixed |= bool(normalizer)
    rules: dict[str, int] = {}
    for token, flag in flags.items():
        bits = _SINGLE_WORD * flag.single_word + _LSTRIP * flag.lstrip + _RSTRIP * flag.rstrip
        if flag.normalized and is_mixed:
            bits += _LATE + _VERBATIM * verbatim
        if bits:
            rules[token] = bits
    return rules


def describe_normalizer(steps: NormalizerSteps) -> str:
    """Return the names of the steps for messages.

    >>> describe_normalizer((("NFD",), ("Replace", "a", "b")))
    "NFD, Replace('a', 'b')"
    """
    return ", ".join(
        name + (f"({', '.join(map(repr, arguments))})" if arguments and name != "CharsMap" else "")
        for name, *arguments in steps
    )


def check_expressible(spec: TokenizerSpec, files: str) -> None:
    """Raise TokenizerError if `spec` has a feature that only tokenizer.json can store.

    Args:
        spec: The tokenizer.
        files: The output format, for the message.
    """
    rules = special_rules(spec.special_tokens, spec.flags, ())
    if spec.characters is not None:
        reason = "tokens of characters instead of bytes"
    elif spec.normalizer:
        reason = f"its {describe_normalizer(spec.normalizer)} normalizer"
    elif rules:
        reason = f"the matching rules of special token {next(iter(rules))!r}"
    elif spec.pattern is not None and (STEP_SEPARATOR in spec.pattern or BYTES_SEPARATOR in spec.pattern):
        reason = "its pattern of several steps"
    else:
        return
    raise TokenizerError(
        f"{files} cannot represent this tokenizer: no room for {reason}", hint="write a tokenizer.json"
    )
