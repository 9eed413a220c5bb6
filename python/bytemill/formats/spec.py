"""The contents of a tokenizer file, independent of its format."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, cast

from bytemill.errors import TokenizerError

Ties: TypeAlias = Literal["bytes", "huggingface"]
Normalizer: TypeAlias = Literal["NFC"]
SpecialTokens: TypeAlias = Mapping[str, int] | Iterable[str]
"""User-supplied special tokens: with explicit ids, or for the next free ids."""

STEP_SEPARATOR = "(?#then)"
"""Separates the steps of a pattern, each of which splits the output of the previous one. A comment that no real
expression contains."""


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
    normalizer: Normalizer | None = None
    """Unicode normalization of the text between special tokens."""
    flags: dict[str, TokenFlags] = field(default_factory=dict[str, TokenFlags])
    """Flags of the special tokens whose flags differ from the defaults."""
    metadata: TokenizerMetadata | None = None
    """Metadata that does not affect ids, if any."""


def explicit_ids(special_tokens: SpecialTokens) -> Mapping[str, int] | None:
    """Return the special tokens with their ids, or None if they have no explicit ids."""
    return cast("Mapping[str, int]", special_tokens) if isinstance(special_tokens, Mapping) else None


_SINGLE_WORD, _LSTRIP, _RSTRIP, _LATE = 1, 2, 4, 8


def special_rules(
    special_tokens: Mapping[str, int], flags: Mapping[str, TokenFlags], normalizer: Normalizer | None
) -> dict[str, int]:
    """Return the matching rules of special tokens as the core's bit masks; tokens without a rule are absent.

    `normalized` matters only if there is a normalizer or if just some of the tokens have it.
    """
    is_mixed = len({token in flags and flags[token].normalized for token in special_tokens}) > 1
    is_mixed |= normalizer is not None
    rules: dict[str, int] = {}
    for token, flag in flags.items():
        bits = _SINGLE_WORD * flag.single_word + _LSTRIP * flag.lstrip + _RSTRIP * flag.rstrip
        bits += _LATE * (flag.normalized and is_mixed)
        if bits:
            rules[token] = bits
    return rules


def check_expressible(spec: TokenizerSpec, files: str) -> None:
    """Raise TokenizerError if `spec` has a feature that only tokenizer.json can store.

    Args:
        spec: The tokenizer.
        files: The output format, for the message.
    """
    rules = special_rules(spec.special_tokens, spec.flags, None)
    if spec.normalizer is not None:
        reason = f"its {spec.normalizer} normalizer"
    elif rules:
        reason = f"the matching rules of special token {next(iter(rules))!r}"
    elif spec.pattern is not None and STEP_SEPARATOR in spec.pattern:
        reason = "its pattern of several steps"
    else:
        return
    raise TokenizerError(
        f"{files} cannot represent this tokenizer: no room for {reason}", hint="write a tokenizer.json"
    )
