"""The pre-tokenizer of a tokenizer.json, as a pattern.

A pattern of several steps, each of which splits the output of the previous one, joins their expressions with
`STEP_SEPARATOR`. Steps after `ByteLevel` see a character for each byte; they follow `BYTES_SEPARATOR`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bytemill._core import NAMED_PATTERNS, check_pattern, named_pattern
from bytemill.errors import TokenizerError, TokenizerFileError
from bytemill.formats.files import bool_at, shown
from bytemill.formats.huggingface.components import Table, steps_of
from bytemill.formats.spec import BYTES_SEPARATOR, STEP_SEPARATOR, PretokenShape

if TYPE_CHECKING:
    from bytemill.formats.spec import NormalizerSteps

PREFIX: NormalizerSteps = (("Metaspace", "always"),)
"""The step of a normalizer for `add_prefix_space`: a space before each text that does not begin with one."""

# Published files have up to four steps; each costs one pass over the text.
_MAX_STEPS = 16

# Digits steps, by `individual_digits`. Hugging Face's library uses `char::is_numeric`, which is \p{N}.
_DIGITS = {True: r"\p{N}", False: r"\p{N}+"}
# Punctuation steps, by `behavior`. Their library knows ASCII's punctuation and Unicode's of version 8, in which two
# characters were punctuation that no longer are.
_PUNCTUATION_CLASS = r"[[\p{P}&&\p{Age=8.0}]$+<=>^`|~\x{166D}\x{111C9}]"
_PUNCTUATION = {"Isolated": _PUNCTUATION_CLASS, "Contiguous": _PUNCTUATION_CLASS + "+"}
_WORDS = {"Whitespace": r"\w+|[^\w\s]+", "WhitespaceSplit": r"\S+"}
# cl100k as in Hugging Face's own conversions, which other readers of tokenizer.json recognize (JavaScript has neither
# possessive quantifiers nor \z). The alternative with (?![\s\S]), the end of the text, distinguishes it from Llama 3's
# pattern: trailing white space stays in one pre-token even if it contains a line break.
CL100K_FOR_ONIGURUMA = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s+(?![\s\S])|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_OF_CLIP = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
# What these match is white space, or what they do not match.
_WHITE_SPACE = frozenset((r"\s", r"\s+"))
_NO_WHITE_SPACE = frozenset((r"\S+", _OF_CLIP, r"<\|startoftext\|>|<\|endoftext\|>|" + _OF_CLIP))


@dataclass(frozen=True)
class Step:
    """What a step of a pre-tokenizer does."""

    pattern: str | None = None
    drops_white_space: bool = False
    """Leave out pre-tokens of white space. No other pre-token begins with white space."""
    is_byte_level: bool = False
    adds_space: bool = False
    """Put a space before each pre-token that does not begin with one."""


@dataclass(frozen=True)
class Splitting:
    """What a pre-tokenizer does: a pattern, and how pre-tokens change."""

    pattern: str | None
    shape: PretokenShape = PretokenShape()  # noqa: RUF009  # immutable
    adds_prefix_space: bool = False
    """Put a space before a text that does not begin with one."""


PRE_TOKENIZERS: Table[Step] = Table("pre-tokenizer", "pretokenizers")


def _flag(step: dict[str, Any], field: str, path: str, *, default: bool) -> bool:
    return bool_at(step.get(field, default), f"{path}.{field}")


@PRE_TOKENIZERS.row(
    "ByteLevel",
    settings="`add_prefix_space` after another step only without `use_regex`; `Split`, `Digits` and "
    "`Punctuation` may follow",
)
def _byte_level(step: dict[str, Any], path: str) -> Step:
    uses_regex = _flag(step, "use_regex", path, default=True)
    adds_space = _flag(step, "add_prefix_space", path, default=True)
    return Step(NAMED_PATTERNS["gpt2"] if uses_regex else None, is_byte_level=True, adds_space=adds_space)


@PRE_TOKENIZERS.row("Whitespace", "WhitespaceSplit", settings="not after `ByteLevel`")
def _words(step: dict[str, Any], _: str) -> Step:
    return Step(_WORDS[step["type"]], drops_white_space=True)


@PRE_TOKENIZERS.row("BertPreTokenizer", settings="not after `ByteLevel`")
def _bert(_: dict[str, Any], __: str) -> Step:
    steps = (_WORDS["WhitespaceSplit"], _PUNCTUATION["Isolated"])
    return Step(STEP_SEPARATOR.join(steps), drops_white_space=True)


@PRE_TOKENIZERS.row("Metaspace", settings="`replacement` `▁`, as the only step, without `ByteLevel`")
def _metaspace(_: dict[str, Any], path: str) -> Step:
    # Alone, it belongs to the spaces of a text: see `characters`.
    raise TokenizerFileError(f"{path} is 'Metaspace', which is not supported beside other steps")


@PRE_TOKENIZERS.row("Punctuation", settings="`behavior` Isolated or Contiguous")
def _punctuation(step: dict[str, Any], path: str) -> Step:
    behavior = step.get("behavior", "Isolated")
    if isinstance(behavior, str) and behavior in _PUNCTUATION:
        return Step(_PUNCTUATION[behavior])
    raise TokenizerFileError(f"{path}: Punctuation with behavior {shown(behavior)} is not supported")


@PRE_TOKENIZERS.row("Digits")
def _digits(step: dict[str, Any], path: str) -> Step:
    return Step(_DIGITS[_flag(step, "individual_digits", path, default=False)])


@PRE_TOKENIZERS.row(
    "Split",
    settings="`behavior` Isolated with any expression that both engines read alike; Removed with known expressions, "
    "if nothing or white space is removed",
)
def _split(step: dict[str, Any], path: str) -> Step:
    pattern = step.get("pattern")
    match pattern:
        case {"Regex": str(expression)} if len(pattern) == 1:
            name, found = _recognized(expression, f"{path}.pattern.Regex")
        case {"String": str(text)} if len(pattern) == 1 and text:
            expression = found = re.sub(r"([\\.+*?()|\[\]{}^$#&~-])", r"\\\1", text)
            name = None
        case _:
            raise TokenizerFileError(f"{path}.pattern is neither {{'Regex': …}} nor {{'String': …}}")
    behavior, invert = step.get("behavior"), _flag(step, "invert", path, default=False)
    # Isolated keeps matches and the text between them, inverted or not. Removed with invert drops the text between
    # matches: nothing, if the expression matches every character, as the known patterns do.
    if behavior == "Isolated" or (behavior == "Removed" and invert and name is not None):
        return Step(found)
    if behavior == "Removed" and expression in (_NO_WHITE_SPACE if invert else _WHITE_SPACE):
        return Step(found if invert else _WORDS["WhitespaceSplit"], drops_white_space=True)
    raise TokenizerFileError(
        f"{path}: a Split with behavior {shown(behavior)} and invert {shown(invert)} is not supported"
    )


def _recognized(expression: str, path: str) -> tuple[str | None, str]:
    """Return the name of the known pattern, if any, and the expression in Rust's syntax, for one in Oniguruma's."""
    if expression == CL100K_FOR_ONIGURUMA:
        return "cl100k", NAMED_PATTERNS["cl100k"]
    from bytemill.formats.huggingface.oniguruma import from_oniguruma

    try:
        translated = from_oniguruma(expression)
        check_pattern(translated)
    except ValueError as error:
        raise TokenizerFileError(f"{path}: {shown(expression)} has no exact equivalent: {error}") from error
    name = named_pattern(translated)
    return name, translated if name is None else NAMED_PATTERNS[name]


def splitting_of(value: Any, location: str) -> Splitting:
    """Return what a `pre_tokenizer` object does that is not null.

    Raises:
        TokenizerFileError: The object is damaged, or a step is not supported where it is.
    """
    steps = PRE_TOKENIZERS.read_all(value, location)
    if len(steps) > _MAX_STEPS:
        raise TokenizerFileError(f"{location} has {len(steps)} steps; at most {_MAX_STEPS} are supported")
    at = next((index for index, step in enumerate(steps) if step.is_byte_level), len(steps))
    before, byte_level, after = steps[:at], Step() if at == len(steps) else steps[at], steps[at + 1 :]
    drops = any(step.drops_white_space for step in before)
    adds_space = byte_level.adds_space and bool(before)
    if adds_space and (byte_level.pattern or after):
        raise TokenizerFileError(
            f"{location}: ByteLevel with add_prefix_space after another step, and a further split, is not supported"
        )
    if any(step.is_byte_level or step.drops_white_space for step in after) or (after and drops):
        raise TokenizerFileError(f"{location}: these steps after ByteLevel are not supported")
    shape = PretokenShape(drops_white_space=drops, space_before=adds_space)
    of_texts = STEP_SEPARATOR.join(step.pattern for step in (*before, byte_level) if step.pattern)
    prefix = byte_level.adds_space and not before
    if not after:
        return Splitting(of_texts or None, shape, prefix)
    of_bytes = STEP_SEPARATOR.join(step.pattern for step in after if step.pattern)
    try:
        check_pattern(BYTES_SEPARATOR + of_bytes)
    except ValueError as error:
        raise TokenizerFileError(f"{location}: after ByteLevel, {error}") from error
    return Splitting(of_texts + BYTES_SEPARATOR + of_bytes, shape, prefix)


def own_splitting(value: Any, pattern: str | None) -> Splitting:
    """Return what a `pre_tokenizer` object that was written for a pattern does with it. Raises as `splitting_of`."""
    steps = [step for step, _ in steps_of(value, "pre_tokenizer", "pretokenizers", "a pre-tokenizer")]
    adds_space = any(step.get("type") == "ByteLevel" and step.get("add_prefix_space") for step in steps)
    is_first = steps[0].get("type") == "ByteLevel" if steps else False
    drops = any(map(_drops_white_space, steps))
    return Splitting(pattern, PretokenShape(drops, adds_space and not is_first), adds_space and is_first)


def from_pre_tokenizer(value: Any, location: str) -> str | None:
    """Return the pattern of a `pre_tokenizer` object that splits texts and changes nothing; None for no splitting.

    Raises:
        TokenizerFileError: As `splitting_of`, and for a splitting that changes pre-tokens.
    """
    splitting = splitting_of(value, location)
    if splitting.shape != PretokenShape():
        raise TokenizerFileError(f"{location} leaves out white space, or puts spaces before words")
    return splitting.pattern


def to_pre_tokenizer(
    pattern: str | None,
    *,
    add_prefix_space: bool = False,
    shape: PretokenShape = PretokenShape(),  # noqa: B008  # immutable
    is_byte_level: bool = True,
) -> dict[str, Any] | None:
    """Return the `pre_tokenizer` object of a pattern; None if there is nothing to do.

    Args:
        pattern: The pattern.
        add_prefix_space: Put a space before texts.
        shape: How pre-tokens change.
        is_byte_level: Whether the tokens are those of bytes.

    Raises:
        TokenizerError: Hugging Face's library has no exact equivalent.
    """
    of_texts, _, of_bytes = (pattern or "").partition(BYTES_SEPARATOR)
    before = of_texts.split(STEP_SEPARATOR) if of_texts else []
    ends_with_gpt2 = (
        is_byte_level and not shape.space_before and bool(before) and named_pattern(before[-1]) == "gpt2"
    )
    steps = [
        _step_object(expression, drops=shape.drops_white_space)
        for expression in (before[:-1] if ends_with_gpt2 else before)
    ]
    if shape.drops_white_space and not any(map(_drops_white_space, steps)):
        # No pre-token has white space and other characters.
        steps.append({"type": "WhitespaceSplit"})
    if steps and add_prefix_space:
        raise TokenizerError(
            "tokenizer.json cannot represent a space before texts that a pattern of steps splits"
        )
    if is_byte_level:
        steps.append(
            {
                "type": "ByteLevel",
                "add_prefix_space": add_prefix_space or shape.space_before,
                "trim_offsets": True,
                "use_regex": ends_with_gpt2,
            }
        )
    steps += [_step_object(expression) for expression in (of_bytes.split(STEP_SEPARATOR) if of_bytes else [])]
    if len(steps) > 1:
        return {"type": "Sequence", "pretokenizers": steps}
    return steps[0] if steps else None


def _step_object(pattern: str, *, drops: bool = False) -> dict[str, Any]:
    """Return the object of one step: one without an expression if it is exactly that, else Split."""
    for behavior, expression in _PUNCTUATION.items():
        if pattern == expression:
            return {"type": "Punctuation", "behavior": behavior}
    for kind, expression in _WORDS.items():
        if drops and pattern == expression:
            return {"type": kind}
    name = named_pattern(pattern)
    if name == "cl100k":
        expression = CL100K_FOR_ONIGURUMA
    else:
        expression = pattern if name is None else NAMED_PATTERNS[name]
        from bytemill.formats.huggingface.oniguruma import ExpressionError, to_oniguruma

        try:
            expression = to_oniguruma(expression)
        except ExpressionError as error:
            raise TokenizerError(
                f"pattern {shown(pattern)} has no exact equivalent in Hugging Face tokenizers: {error}",
                hint="use \\p{...}, \\s, \\d and plain classes, which have the same meaning in both engines",
            ) from error
    removes = drops and expression in _NO_WHITE_SPACE
    behavior = "Removed" if removes else "Isolated"
    return {"type": "Split", "pattern": {"Regex": expression}, "behavior": behavior, "invert": removes}


def _drops_white_space(step: dict[str, Any]) -> bool:
    """Return whether a step that was written here leaves out white space."""
    return step.get("type") in _WORDS or step.get("behavior") == "Removed"
