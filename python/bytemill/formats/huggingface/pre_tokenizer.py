"""Conversion between patterns and Hugging Face's `pre_tokenizer` objects.

A pattern of several steps, each of which splits the output of the previous one, joins their expressions with
`STEP_SEPARATOR`. Steps after `ByteLevel` see a character for each byte; they follow `BYTES_SEPARATOR`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from bytemill._core import NAMED_PATTERNS, check_pattern, named_pattern
from bytemill.errors import TokenizerError, TokenizerFileError
from bytemill.formats.files import bool_at, shown
from bytemill.formats.huggingface.sequence import steps_of
from bytemill.formats.spec import BYTES_SEPARATOR, STEP_SEPARATOR

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
# cl100k as in Hugging Face's own conversions, which other readers of tokenizer.json recognize (JavaScript has neither
# possessive quantifiers nor \z). The alternative with (?![\s\S]), the end of the text, distinguishes it from Llama 3's
# pattern: trailing white space stays in one pre-token even if it contains a line break.
CL100K_FOR_ONIGURUMA = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s+(?![\s\S])|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def to_pre_tokenizer(pattern: str | None, *, add_prefix_space: bool = False) -> dict[str, Any]:
    """Return the `pre_tokenizer` object of a pattern.

    Args:
        pattern: The pattern.
        add_prefix_space: Put a space before texts.

    Raises:
        TokenizerError: Hugging Face's library has no exact equivalent.
    """
    of_texts, _, of_bytes = (pattern or "").partition(BYTES_SEPARATOR)
    before = of_texts.split(STEP_SEPARATOR) if of_texts else []
    ends_with_gpt2 = bool(before) and named_pattern(before[-1]) == "gpt2"
    steps = [_step(expression) for expression in (before[:-1] if ends_with_gpt2 else before)]
    if steps and add_prefix_space:
        raise TokenizerError(
            "tokenizer.json cannot represent a space before texts that a pattern of steps splits"
        )
    steps.append(_byte_level(use_regex=ends_with_gpt2, add_prefix_space=add_prefix_space))
    steps += [_step(expression) for expression in (of_bytes.split(STEP_SEPARATOR) if of_bytes else [])]
    return {"type": "Sequence", "pretokenizers": steps} if len(steps) > 1 else steps[0]


def _step(pattern: str) -> dict[str, Any]:
    """Return the object of one step: Punctuation if it is exactly that, else Split."""
    for behavior, expression in _PUNCTUATION.items():
        if pattern == expression:
            return {"type": "Punctuation", "behavior": behavior}
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
    return {"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", "invert": False}


def from_pre_tokenizer(value: Any, location: str) -> str | None:
    """Return the pattern of a `pre_tokenizer` object; None for no pre-tokenization.

    Raises:
        TokenizerFileError: The object is damaged, or is not ByteLevel with any number of Split, Digits and Punctuation
            steps before and after it.
    """
    steps = list(steps_of(value, location, "pretokenizers", "a pre-tokenizer of byte-level BPE"))
    at = next((index for index, (step, _) in enumerate(steps) if step.get("type") == "ByteLevel"), None)
    if at is None:
        raise TokenizerFileError(
            f"{location} is {_kinds(steps)}, which has no ByteLevel",
            hint="bytemill reads byte-level BPE tokenizers only",
        )
    byte_level, path = steps[at]
    if _flag(byte_level, "add_prefix_space", path, default=True) and at > 0:
        raise TokenizerFileError(
            f"{path}.add_prefix_space is true, which is not supported after another step",
            hint="set it to false and add the space to the text yourself",
        )
    if len(steps) > _MAX_STEPS:
        raise TokenizerFileError(f"{location} has {len(steps)} steps; at most {_MAX_STEPS} are supported")
    patterns = [_step_pattern(step, step_path) for step, step_path in steps[:at]]
    if _flag(byte_level, "use_regex", path, default=True):
        patterns.append(NAMED_PATTERNS["gpt2"])
    of_texts = STEP_SEPARATOR.join(patterns)
    if at == len(steps) - 1:
        return of_texts or None
    of_bytes = STEP_SEPARATOR.join(_step_pattern(step, step_path) for step, step_path in steps[at + 1 :])
    try:
        check_pattern(BYTES_SEPARATOR + of_bytes)
    except ValueError as error:
        raise TokenizerFileError(f"{location}: after ByteLevel, {error}") from error
    return of_texts + BYTES_SEPARATOR + of_bytes


def adds_prefix_space(value: Any) -> bool:
    """Return whether the first step of a `pre_tokenizer` object puts a space before texts."""
    for step, _ in steps_of(value, "pre_tokenizer", "pretokenizers", "a pre-tokenizer"):
        return step.get("type") == "ByteLevel" and step.get("add_prefix_space", True) is True
    return False


def _flag(step: dict[str, Any], field: str, path: str, *, default: bool) -> bool:
    return bool_at(step.get(field, default), f"{path}.{field}")


def _byte_level(*, use_regex: bool, add_prefix_space: bool) -> dict[str, Any]:
    return {
        "type": "ByteLevel",
        "add_prefix_space": add_prefix_space,
        "trim_offsets": True,
        "use_regex": use_regex,
    }


def _kinds(steps: list[tuple[dict[str, Any], str]]) -> str:
    kinds = [shown(step.get("type")).strip("'") for step, _ in steps]
    return " + ".join([*kinds[:_MAX_STEPS], *(["…"] if len(kinds) > _MAX_STEPS else [])]) or "empty"


def _step_pattern(step: dict[str, Any], path: str) -> str:
    """Return the pattern of one step before or after ByteLevel."""
    kind = step.get("type")
    if kind == "Punctuation":
        behavior = step.get("behavior", "Isolated")
        if isinstance(behavior, str) and behavior in _PUNCTUATION:
            return _PUNCTUATION[behavior]
        raise TokenizerFileError(f"{path}: Punctuation with behavior {shown(behavior)} is not supported")
    if kind == "Digits":
        return _DIGITS[_flag(step, "individual_digits", path, default=False)]
    if kind != "Split":
        raise TokenizerFileError(
            f"{path}: the pre-tokenizer {shown(kind)} is not supported"
            + (" a second time" if kind == "ByteLevel" else "")
        )
    pattern = step.get("pattern")
    match pattern:
        case {"Regex": str(expression)} if len(pattern) == 1:
            name, found = _recognized(expression, f"{path}.pattern.Regex")
        case {"String": str(text)} if len(pattern) == 1 and text:
            name, found = None, re.sub(r"([\\.+*?()|\[\]{}^$#&~-])", r"\\\1", text)
        case _:
            raise TokenizerFileError(f"{path}.pattern is neither {{'Regex': …}} nor {{'String': …}}")
    behavior, invert = step.get("behavior"), _flag(step, "invert", path, default=False)
    # Isolated keeps matches and the text between them, inverted or not. Removed with invert drops the text between
    # matches: nothing, if the expression matches every character, as the known patterns do.
    if behavior == "Isolated" or (behavior == "Removed" and invert and name is not None):
        return found
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
