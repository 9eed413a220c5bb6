"""Patterns as Hugging Face's `pre_tokenizer` objects, both ways.

A pattern of several steps, of which each cuts the pieces of the one before, is written as their expressions with
`STEP_SEPARATOR` in between.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from bytemill._core import NAMED_PATTERNS, check_pattern, named_pattern
from bytemill.errors import TokenizerError, TokenizerFileError
from bytemill.formats.files import is_array, is_object, shown
from bytemill.formats.spec import STEP_SEPARATOR

if TYPE_CHECKING:
    from collections.abc import Iterator

# Published files have up to four; each has its regular expression and its share of every text.
_MAX_STEPS = 16

# A step that isolates digits, in Rust's words: `char::is_numeric` is what Hugging Face's library asks.
_DIGITS = {True: r"\p{N}", False: r"\p{N}+"}
# cl100k in the words that Hugging Face's own conversions use, which also other readers of tokenizer.json know
# (JavaScript's has neither possessive quantifiers nor \z). The alternative with (?![\s\S]), the end of the
# text, sets it apart from Llama 3's pattern: white space at the end stays in one piece even if it holds a
# line break.
CL100K_FOR_ONIGURUMA = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s+(?![\s\S])|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def to_pre_tokenizer(pattern: str | None) -> dict[str, Any]:
    """The `pre_tokenizer` object that splits as `pattern` does.

    Raises TokenizerError where Hugging Face's regex engine has no exact counterpart.
    """
    if pattern is None:
        return _byte_level(use_regex=False)
    *before, last = pattern.split(STEP_SEPARATOR)
    ends_with_gpt2 = named_pattern(last) == "gpt2"
    splits = [_split(step) for step in (before if ends_with_gpt2 else [*before, last])]
    byte_level = _byte_level(use_regex=ends_with_gpt2)
    return {"type": "Sequence", "pretokenizers": [*splits, byte_level]} if splits else byte_level


def _split(pattern: str) -> dict[str, Any]:
    """The Split that is one step."""
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
                f"pattern {shown(pattern)} cannot be written for Hugging Face tokenizers exactly: {error}",
                hint="Use \\p{...}, \\s, \\d and plain classes, which both engines read alike.",
            ) from error
    return {"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", "invert": False}


def from_pre_tokenizer(value: Any, location: str) -> str | None:
    """The pattern (an expression; None: no splitting) that splits as the `pre_tokenizer` object does.

    Raises TokenizerFileError where it is damaged or not ByteLevel, alone or after steps of Split and Digits.
    """
    steps = list(_steps(value, location))
    if not steps or steps[-1][0].get("type") != "ByteLevel":
        raise TokenizerFileError(
            f"{location} is {_kinds(steps)}, which does not end with ByteLevel",
            hint="bytemill reads byte-level BPE tokenizers only.",
        )
    byte_level, place = steps[-1]
    if _flag(byte_level, "add_prefix_space", place, missing=True):
        raise TokenizerFileError(
            f"{place}.add_prefix_space is true",
            hint="bytemill does not change the text: put the space there yourself and set this to false.",
        )
    if len(steps) > _MAX_STEPS:
        raise TokenizerFileError(
            f"{location} has {len(steps)} steps, and bytemill does at most {_MAX_STEPS}"
        )
    patterns = [_step_pattern(step, step_place) for step, step_place in steps[:-1]]
    if _flag(byte_level, "use_regex", place, missing=True):
        patterns.append(NAMED_PATTERNS["gpt2"])
    return STEP_SEPARATOR.join(patterns) or None


def _flag(step: dict[str, Any], field: str, place: str, *, missing: bool) -> bool:
    value = step.get(field, missing)
    if not isinstance(value, bool):
        raise TokenizerFileError(f"{place}.{field} is {shown(value)}, not true or false")
    return value


def _byte_level(*, use_regex: bool) -> dict[str, Any]:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


def _steps(value: Any, location: str) -> Iterator[tuple[dict[str, Any], str]]:
    """The pre-tokenizers in order, sequences opened, each with its place in the file."""
    waiting = [(value, location)]
    while waiting:
        step, place = waiting.pop()
        if not is_object(step):
            raise TokenizerFileError(f"{place} is {shown(step)}, not a pre-tokenizer of byte-level BPE")
        if step.get("type") == "Sequence":
            parts = step.get("pretokenizers")
            if not is_array(parts):
                raise TokenizerFileError(f"{place}.pretokenizers is {shown(parts)}, not an array")
            waiting.extend(
                (part, f"{place}.pretokenizers[{i}]") for i, part in reversed(list(enumerate(parts)))
            )
        else:
            yield step, place


def _kinds(steps: list[tuple[dict[str, Any], str]]) -> str:
    kinds = [shown(step.get("type")).strip("'") for step, _ in steps]
    return " + ".join([*kinds[:_MAX_STEPS], *(["…"] if len(kinds) > _MAX_STEPS else [])]) or "empty"


def _step_pattern(step: dict[str, Any], place: str) -> str:
    """The pattern of one step before ByteLevel."""
    kind = step.get("type")
    if kind == "Digits":
        return _DIGITS[_flag(step, "individual_digits", place, missing=False)]
    if kind != "Split":
        raise TokenizerFileError(
            f"{place}: bytemill has no {shown(kind)} pre-tokenizer",
            hint="What follows ByteLevel would cut inside characters." if kind == "ByteLevel" else None,
        )
    pattern = step.get("pattern")
    match pattern:
        case {"Regex": str(expression)} if len(pattern) == 1:
            name, found = _recognised(expression, f"{place}.pattern.Regex")
        case {"String": str(text)} if len(pattern) == 1 and text:
            name, found = None, re.sub(r"([\\.+*?()|\[\]{}^$#&~-])", r"\\\1", text)
        case _:
            raise TokenizerFileError(f"{place}.pattern is neither {{'Regex': …}} nor {{'String': …}}")
    behaviour, invert = step.get("behavior"), _flag(step, "invert", place, missing=False)
    # Isolated keeps matches and what lies between them, inverted or not. Removed and inverted throws away
    # what lies between: nothing where the expression matches every character, which the named patterns do.
    if behaviour == "Isolated" or (behaviour == "Removed" and invert and name is not None):
        return found
    raise TokenizerFileError(f"{place}: a Split of behaviour {shown(behaviour)} with invert {shown(invert)}")


def _recognised(expression: str, place: str) -> tuple[str | None, str]:
    """The name of the pattern that `expression` (in Oniguruma's syntax) is, if any, and the expression for
    Rust."""
    if expression == CL100K_FOR_ONIGURUMA:
        return "cl100k", NAMED_PATTERNS["cl100k"]
    from bytemill.formats.huggingface.oniguruma import from_oniguruma

    try:
        translated = from_oniguruma(expression)
        check_pattern(translated)
    except ValueError as error:
        raise TokenizerFileError(
            f"{place}: {shown(expression)} cannot be followed exactly: {error}",
        ) from error
    name = named_pattern(translated)
    return name, translated if name is None else NAMED_PATTERNS[name]
