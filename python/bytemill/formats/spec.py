"""What a tokenizer file says, whatever its format."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, cast

from bytemill.errors import TokenizerError

Ties: TypeAlias = Literal["bytes", "huggingface"]
Normalizer: TypeAlias = Literal["NFC"]


STEP_SEPARATOR = "(?#then)"
"""What stands between the steps of a pattern, of which each cuts the pieces of the one before: a comment, which no
expression has by chance."""


@dataclass(frozen=True)
class TokenFlags:
    """What Hugging Face's files say of an added token beside its text and id. The defaults are a special token's."""

    special: bool = True
    """False: an ordinary word that was added later. It decides what a decoder leaves out, and no ids."""
    single_word: bool = False
    """True: only where no letter, mark, digit or underscore stands beside it."""
    lstrip: bool = False
    """True: the white space before it belongs to it (and is lost in decoding)."""
    rstrip: bool = False
    """True: the white space behind it belongs to it."""
    normalized: bool = False
    """True: looked for only in what the tokens without this leave over."""


@dataclass(frozen=True)
class TokenizerMetadata:
    """What Hugging Face's files say beyond ids: kept as it stands there, and written again."""

    post_processor: Any = None
    """`post_processor` of tokenizer.json, where it is not what bytemill writes by itself."""
    decoder: Any = None
    """`decoder` of tokenizer.json, where it is not what bytemill writes by itself."""
    config: dict[str, Any] | None = None
    """tokenizer_config.json."""
    special_tokens_map: dict[str, Any] | None = None
    """special_tokens_map.json."""
    chat_template: str | None = None
    """chat_template.jinja."""


SpecialTokens: TypeAlias = Mapping[str, int] | Iterable[str]
"""Special tokens that a caller names for a file that does not: with their ids, or for the next free ones."""


@dataclass(frozen=True)
class TokenizerSpec:
    """A tokenizer as data: what the formats read and write, and what `Tokenizer` is built from.

    Exactly one of `merges` and `ranks` is set: `merges` for BPE by an ordered list of merges, `ranks` (token bytes
    -> id, which is also the priority) for tiktoken's rank files, which record no merges.
    """

    pattern: str | None
    """Regular expression of the pre-tokenizer; None: the text between special tokens is one pre-token."""
    special_tokens: dict[str, int]
    vocab: dict[int, bytes] = field(default_factory=dict[int, bytes])
    """Ordinary tokens by id, special tokens left out. Empty when `ranks` is set."""
    merges: list[tuple[bytes, bytes]] | None = None
    ranks: dict[bytes, int] | None = None
    ignore_merges: bool = False
    """True: a pre-token that is itself a token is that token even if no sequence of merges leads there."""
    ties: Ties | None = None
    """How training broke ties between equally frequent pairs, where the file records it."""
    merge_counts: list[int] | None = None
    """How often each merge's pair stood in the corpus when it was merged, where the file records it."""
    normalizer: Normalizer | None = None
    """What is done to a text between its special tokens before it is split; decoding gives back what that has left."""
    flags: dict[str, TokenFlags] = field(default_factory=dict[str, TokenFlags])
    """Flags of the special tokens that have other than the usual ones."""
    metadata: TokenizerMetadata | None = None
    """What came with the tokenizer and decides no ids; None where there was nothing."""


def explicit_ids(special_tokens: SpecialTokens) -> Mapping[str, int] | None:
    """Special tokens and their ids, None where they are named without."""
    return cast("Mapping[str, int]", special_tokens) if isinstance(special_tokens, Mapping) else None


_SINGLE_WORD, _LSTRIP, _RSTRIP, _LATE = 1, 2, 4, 8


def special_rules(
    special_tokens: Mapping[str, int], flags: Mapping[str, TokenFlags], normalizer: Normalizer | None
) -> dict[str, int]:
    """How special tokens are found beyond their text, as the core takes it: bits by token; none without a rule.

    Where all are `normalized` and nothing is, none is looked for after another, as where none is `normalized`.
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
    """Raise TokenizerError, naming `files`, where only a tokenizer.json can say what decides the ids of `spec`."""
    rules = special_rules(spec.special_tokens, spec.flags, None)
    if spec.normalizer is not None:
        reason = f"it brings texts into {spec.normalizer}"
    elif rules:
        reason = f"special token {next(iter(rules))!r} is found by more than its text"
    elif spec.pattern is not None and STEP_SEPARATOR in spec.pattern:
        reason = "its pattern has several steps"
    else:
        return
    raise TokenizerError(
        f"{files} cannot say all of this tokenizer: {reason}", hint="Write a tokenizer.json."
    )
