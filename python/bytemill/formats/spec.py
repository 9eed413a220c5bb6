"""The contents of a tokenizer file, independent of its format: what they must fulfil, and the encoder built of them.

Every reader returns a `TokenizerSpec`, every writer takes one. `checked_parts` has the checks before writing: one
token per id, all 256 bytes, merges of known tokens. `build` makes the core's encoder.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypeVar, cast

from bytemill._core import NAMED_PATTERNS
from bytemill.errors import TokenizerError, TokenizerFileError
from bytemill.formats.files import MAX_ID, array_at, is_text, object_at, shown, wrong_value
from bytemill.formats.ranks import merges_of_ranks

if TYPE_CHECKING:
    from collections.abc import Collection


Key = TypeVar("Key")
Value = TypeVar("Value")

Ties: TypeAlias = Literal["bytes", "huggingface"]
NormalizerSteps: TypeAlias = tuple[tuple[str, ...], ...]
"""Steps of a normalizer in order, each a name and its arguments: `NFC`, `NFD`, `NFKC`, `NFKD`, `Lowercase`,
`StripAccents`, `Replace` (from, to), `Prepend` (text), `Strip` (`left`, `right` or `both`), `TrimSpaces` (`left` or
`right`), `JoinSpaces`, `CharsMap` (SentencePiece's compiled rules in hexadecimal, and texts that they leave alone) and,
as the last one, `Metaspace` (`always` or `first`)."""
SpecialTokens: TypeAlias = Mapping[str, int] | Iterable[str]
"""User-supplied special tokens: with explicit ids, or for the next free ids."""

STEP_SEPARATOR = "(?#then)"
"""Separates the steps of a pattern, each of which splits the output of the previous one. A comment that no real
expression contains."""
BYTES_SEPARATOR = "(?#bytes)"
"""Separates the steps that split texts from those that split their bytes, each as the character that GPT-2's table has
for it. The latter may divide a character."""

SINGLE_BYTES: frozenset[bytes] = frozenset(bytes([byte]) for byte in range(256))
NEVER_IN_UTF8 = frozenset(bytes([byte]) for byte in (0xC0, 0xC1, *range(0xF5, 0x100)))
"""Bytes that no text has, so that vocabularies may lack them."""

RECORD_FORMAT = 1
"""Version of bytemill's own record inside a tokenizer file: what the format itself has no field for."""


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
    """False for an ordinary word added later, which is recognized in a text whatever special tokens are allowed."""


class PretokenShape(NamedTuple):
    """How pre-tokens change before they are merged. The core takes it as a tuple."""

    drops_white_space: bool = False
    """Leave out pre-tokens that begin with white space."""
    space_before: bool = False
    """Put a space before each pre-token that does not begin with one."""
    suffix: str | None = None
    """What the vocabulary writes where a pre-token ends (`</w>`)."""
    drops_unknown: bool = False
    """Bytes, or characters, that are no tokens vanish."""
    fuses_within: bool = False
    """`CharacterModel.fuse_unk` concerns the characters of one pre-token."""


@dataclass(frozen=True)
class TokenizerMetadata:
    """Contents of Hugging Face's files that do not affect ids. Kept unchanged and written again."""

    post_processor: Any = None
    """`post_processor` of tokenizer.json, unless it is bytemill's default."""
    decoder: Any = None
    """`decoder` of tokenizer.json, unless it is bytemill's default."""
    truncation: dict[str, Any] | None = None
    """`truncation` of tokenizer.json: the defaults of a call that cuts."""
    padding: dict[str, Any] | None = None
    """`padding` of tokenizer.json: the defaults of a call that pads."""
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
    decode_strip: Literal["none", "one", "token", "each", "every"] = "none"
    """Spaces that decoding removes from the start of a text: none, one, those of the first token, or one from each
    token until there is text; or one from every token, as Hugging Face's library does if `Strip` precedes `Fuse`."""
    verbatim_symbols: bool = False
    """Search late special tokens as they are, without normalizing them (SentencePiece's user-defined symbols)."""


@dataclass(frozen=True)
class LibraryModel:
    """A tokenizer that the core does not run, as the file of the library that does."""

    library: Literal["tokenizers", "sentencepiece"]
    content: bytes
    """A tokenizer.json or a SentencePiece model."""
    reason: str
    """Why the core does not run it."""


@dataclass(frozen=True)
class TokenizerSpec:
    """A tokenizer as plain data: the result of every reader and the input of every writer.

    Exactly one of `merges`, `ranks` and `library` is set. `ranks` (token bytes -> id, which is also the priority) comes
    from tiktoken's rank files, which store no merges.
    """

    pattern: str | None
    """Regular expression of the pre-tokenizer; None for no pre-tokenization."""
    special_tokens: dict[str, int]
    vocab: dict[int, bytes] = field(default_factory=dict[int, bytes])
    """Ordinary tokens by id. Empty if `ranks` is set."""
    merges: list[tuple[bytes, bytes]] | None = None
    merge_ranks: list[int] | None = None
    """Rank of each merge, if several have one: of these the leftmost in a text comes first. Only with `characters`; the
    core refuses ranks that the order of `merges` cannot replace."""
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
    shape: PretokenShape = PretokenShape()  # noqa: RUF009  # immutable
    """How pre-tokens change before they are merged."""
    joins_tokens: bool = False
    """Decoding joins the tokens as files write them, with spaces between them: the file has no decoder."""
    metadata: TokenizerMetadata | None = None
    """Metadata that does not affect ids, if any."""
    library: LibraryModel | None = None
    """Set for a tokenizer that a library runs. Pattern, vocabulary and normalizer are in its content."""


def explicit_ids(special_tokens: SpecialTokens) -> Mapping[str, int] | None:
    """Return the special tokens with their ids, or None if they have no explicit ids."""
    return cast("Mapping[str, int]", special_tokens) if isinstance(special_tokens, Mapping) else None


_SINGLE_WORD, _LSTRIP, _RSTRIP, _LATE, _VERBATIM, _ORDINARY = 1, 2, 4, 8, 16, 32


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
        bits += _ORDINARY * (not flag.special)
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
    # Formats without flags make all of them special tokens.
    flags = {token: replace(flag, special=True) for token, flag in spec.flags.items()}
    rules = special_rules(spec.special_tokens, flags, ())
    if spec.library is not None:
        reason = f"what {spec.library.library} runs"
    elif spec.characters is not None:
        reason = "tokens of characters instead of bytes"
    elif spec.shape != PretokenShape():
        reason = "words that change before they are merged"
    elif spec.joins_tokens:
        reason = "decoding with spaces between tokens"
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


def training_left_out(spec: TokenizerSpec) -> list[str]:
    """Describe what a file without bytemill's own record does not store of a tokenizer's training, as phrases."""
    phrases: list[str] = []
    if spec.ties is not None:
        phrases.append("the tie-breaking rule of training")
    if spec.merge_counts is not None:
        phrases.append("the count of each merge's pair in the training corpus")
    return phrases


def checked_parts(spec: TokenizerSpec) -> tuple[dict[int, bytes], list[tuple[bytes, bytes]]]:
    """Return the ordinary tokens by id, in id order, and the merges.

    Raises:
        TokenizerError: Vocabulary, merges and special tokens contradict each other.
    """
    tokens = ordinary_tokens(spec)
    _check_special_tokens(spec, tokens)
    if spec.merges is None:
        return tokens, merges_of_ranks(spec.ranks or {})
    _check_merges(spec.merges, tokens.values())
    return tokens, spec.merges


def ordinary_tokens(spec: TokenizerSpec) -> dict[int, bytes]:
    """Return the ordinary tokens by id, in id order.

    Raises:
        TokenizerError: Not exactly one of merges and ranks is set, two ids share a token, or a byte has no token.
    """
    if (spec.merges is None) == (spec.ranks is None):
        raise TokenizerError("a tokenizer needs either merges or ranks, and not both")
    if spec.ranks is not None:
        tokens = {token_id: token for token, token_id in spec.ranks.items()}
        if len(tokens) != len(spec.ranks):
            raise TokenizerError("two tokens have the same rank")
    else:
        tokens = spec.vocab
    tokens = dict(sorted(tokens.items()))
    if (duplicate := first_duplicate(tokens)) is not None:
        raise TokenizerError("ids {} and {} are the same token {!r}".format(*duplicate))
    tokens = _with_ordinary_special_tokens(spec, tokens)
    missing = missing_bytes(tokens.values())
    if missing is not None and not spec.shape.drops_unknown:
        raise TokenizerError(
            f"the vocabulary lacks {missing}", hint="byte-level BPE needs all bytes of UTF-8"
        )
    _check_ids(tokens)
    return tokens


def _with_ordinary_special_tokens(spec: TokenizerSpec, tokens: dict[int, bytes]) -> dict[int, bytes]:
    """Add the special tokens that are also a single byte or part of a merge.

    Some tokenizers leave a token out of the vocabulary because it is special, although merges still need it.
    """
    needed = {
        part for left, right in spec.merges or () for part in (left, right, left + right)
    } | SINGLE_BYTES
    needed.difference_update(tokens.values())
    also_ordinary = {
        token_id: text.encode() for text, token_id in spec.special_tokens.items() if is_text(text)
    }
    more = {token_id: token for token_id, token in also_ordinary.items() if token in needed}
    return dict(sorted((more | tokens).items())) if more else tokens


def _check_ids(ids: Collection[int]) -> None:
    if ids and not (min(ids) >= 0 and max(ids) <= MAX_ID):
        wrong = min(ids) if min(ids) < 0 else max(ids)
        raise TokenizerError(f"token id {wrong} is not between 0 and {MAX_ID}")


def _check_special_tokens(spec: TokenizerSpec, tokens: dict[int, bytes]) -> None:
    _check_ids(list(spec.special_tokens.values()))
    if (duplicate := first_duplicate(spec.special_tokens)) is not None:
        raise TokenizerError("special tokens {!r} and {!r} have the same id {}".format(*duplicate))
    for text, token_id in spec.special_tokens.items():
        if not text:
            raise TokenizerError("a special token is empty")
        if not is_text(text):
            raise TokenizerError(
                f"special token {text!r} contains a lone surrogate, which UTF-8 cannot encode"
            )
        if tokens.get(token_id, text.encode()) != text.encode():
            raise TokenizerError(
                f"special token {text!r} and ordinary token {tokens[token_id]!r} have the same id {token_id}"
            )


def _check_merges(merges: list[tuple[bytes, bytes]], tokens: Collection[bytes]) -> None:
    known = set(tokens)
    for index, (left, right) in enumerate(merges):
        for token in (left, right, left + right):
            if token not in known:
                raise TokenizerError(
                    f"merge {index} ({left!r}, {right!r}): {token!r} is not in the vocabulary"
                )
    if (duplicate := first_duplicate(dict(enumerate(merges)))) is not None:
        raise TokenizerError("merges {} and {} are the same: {!r}".format(*duplicate))


def first_duplicate(values: Mapping[Key, Value]) -> tuple[Key, Key, Value] | None:
    """Return the first two keys with the same value, and the value; None if all values differ.

    >>> first_duplicate({"a": 1, "b": 2, "c": 1})
    ('a', 'c', 1)
    """
    if len(set(values.values())) == len(values):
        return None
    seen: dict[Value, Key] = {}
    return next(
        (seen[value], key, value) for key, value in values.items() if seen.setdefault(value, key) != key
    )


def missing_bytes(tokens: Collection[bytes]) -> str | None:
    """Describe the bytes that have no token although a text may have them, or return None.

    >>> missing_bytes([bytes([byte]) for byte in range(1, 0xf5)])
    '1 of the 256 bytes (0x00)'
    """
    missing = sorted(SINGLE_BYTES.difference(tokens) - NEVER_IN_UTF8)
    if not missing:
        return None
    named = ", ".join(f"0x{byte.hex()}" for byte in missing[:3]) + (", …" if len(missing) > 3 else "")
    return f"{len(missing)} of the 256 bytes ({named})"


def record_of(spec: TokenizerSpec) -> dict[str, Any]:
    """Return bytemill's own record of a tokenizer."""
    names = {expression: name for name, expression in NAMED_PATTERNS.items()}
    return {
        "format": RECORD_FORMAT,
        # An expression that is equivalent to a known pattern stays unchanged.
        "pattern": None if spec.pattern is None else names.get(spec.pattern, spec.pattern),
        "ties": spec.ties,
        "merge_counts": spec.merge_counts,
    }


def checked_record(record: Any, n_merges: int, location: str) -> dict[str, Any]:
    """Return a record from a file, with the pattern as a regular expression.

    Raises:
        TokenizerFileError: The record is invalid or was written by a newer version.
    """
    record = object_at(record, location)
    version, ties, counts = (record.get(field) for field in ("format", "ties", "merge_counts"))
    if type(version) is not int or version < 1:
        raise wrong_value(f"{location}.format", version, "a version number")
    if version > RECORD_FORMAT:
        raise TokenizerFileError(
            f"{location}.format is {version}; this version of bytemill reads up to {RECORD_FORMAT}",
            hint="upgrade bytemill: a newer version wrote the file",
        )
    if ties not in (None, "bytes", "huggingface"):
        raise TokenizerFileError(f"{location}.ties is {shown(ties)}, neither 'bytes' nor 'huggingface'")
    if counts is not None:
        counts = array_at(counts, f"{location}.merge_counts")
        if not set(map(type, counts)) <= {int}:
            raise TokenizerFileError(f"{location}.merge_counts is not an array of integers")
        if len(counts) != n_merges:
            raise TokenizerFileError(
                f"{location}.merge_counts has {len(counts)} counts for {n_merges} merges"
            )
    pattern = record.get("pattern")
    if isinstance(pattern, str):
        return record | {"pattern": NAMED_PATTERNS.get(pattern, pattern)}
    return record
