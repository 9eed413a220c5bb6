"""Patterns as Hugging Face's `pre_tokenizer` objects, both ways."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bytemill import _core
from bytemill.errors import TokenizerError, TokenizerFileError
from bytemill.formats.files import is_array, is_object, shown
from bytemill.formats.oniguruma import ExpressionError, from_oniguruma, to_oniguruma

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    name = _core.named_pattern(pattern)
    if name == "gpt2":
        return _byte_level(use_regex=True)
    if name == "cl100k":
        expression = CL100K_FOR_ONIGURUMA
    else:
        expression = pattern if name is None else _core.NAMED_PATTERNS[name]
        try:
            expression = to_oniguruma(expression)
        except ExpressionError as error:
            raise TokenizerError(
                f"pattern {shown(pattern)} cannot be written for Hugging Face tokenizers exactly: {error}",
                hint="Use \\p{...}, \\s, \\d and plain classes, which both engines read alike.",
            ) from error
    split = {"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [split, _byte_level(use_regex=False)]}


def from_pre_tokenizer(value: Any, where: str) -> str | None:
    """The pattern (an expression; None: no splitting) that splits as the `pre_tokenizer` object does.

    Raises TokenizerFileError where it is damaged or not ByteLevel alone or ByteLevel after one Split.
    """
    steps = list(_steps(value, where))
    if not steps or steps[-1][0].get("type") != "ByteLevel":
        raise TokenizerFileError(
            f"{where}: is {_kinds(steps)}, which does not end with ByteLevel",
            hint="bytemill reads byte-level BPE tokenizers only.",
        )
    splits = steps[:-1]
    byte_level, place = steps[-1]
    if byte_level.get("add_prefix_space", True):
        raise TokenizerFileError(
            f"{place}.add_prefix_space: is true",
            hint="bytemill does not change the text: put the space there yourself and set this to false.",
        )
    use_regex = byte_level.get("use_regex", True)
    if not splits:
        return _core.NAMED_PATTERNS["gpt2"] if use_regex else None
    if use_regex or len(splits) > 1:
        raise TokenizerFileError(
            f"{where}: splits more than once ({_kinds(steps)}), which bytemill cannot do"
        )
    return _split_pattern(*splits[0])


def _byte_level(*, use_regex: bool) -> dict[str, Any]:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


def _steps(value: Any, where: str) -> Iterator[tuple[dict[str, Any], str]]:
    """The pre-tokenizers in order, sequences opened, each with its place in the file."""
    waiting = [(value, where)]
    while waiting:
        step, place = waiting.pop()
        if not is_object(step):
            raise TokenizerFileError(f"{place}: is {shown(step)}, not a pre-tokenizer of byte-level BPE")
        if step.get("type") == "Sequence":
            parts = step.get("pretokenizers")
            if not is_array(parts):
                raise TokenizerFileError(f"{place}.pretokenizers: is {shown(parts)}, not an array")
            waiting.extend(
                (part, f"{place}.pretokenizers[{i}]") for i, part in reversed(list(enumerate(parts)))
            )
        else:
            yield step, place


def _kinds(steps: list[tuple[dict[str, Any], str]]) -> str:
    return " + ".join(shown(step.get("type")).strip("'") for step, _ in steps) or "empty"


def _split_pattern(split: dict[str, Any], place: str) -> str:
    if split.get("type") != "Split":
        raise TokenizerFileError(f"{place}: bytemill has no {shown(split.get('type'))} pre-tokenizer")
    pattern = split.get("pattern")
    expression = pattern.get("Regex") if is_object(pattern) else None
    if not isinstance(expression, str):
        raise TokenizerFileError(f"{place}.pattern: is no {{'Regex': …}}")
    name, found = _recognised(expression, f"{place}.pattern.Regex")
    behaviour, invert = split.get("behavior"), split.get("invert", False)
    # Isolated keeps matches and what lies between them, inverted or not. Removed and inverted throws away
    # what lies between: nothing where the expression matches every character, which the named patterns do.
    if behaviour == "Isolated" or (behaviour == "Removed" and invert is True and name is not None):
        return found
    raise TokenizerFileError(f"{place}: a Split of behaviour {shown(behaviour)} with invert {shown(invert)}")


def _recognised(expression: str, place: str) -> tuple[str | None, str]:
    """The name of the pattern that `expression` (in Oniguruma's syntax) is, if any, and the expression for
    Rust."""
    if expression == CL100K_FOR_ONIGURUMA:
        return "cl100k", _core.NAMED_PATTERNS["cl100k"]
    try:
        translated = from_oniguruma(expression)
        _core.check_pattern(translated)
    except ValueError as error:
        raise TokenizerFileError(
            f"{place}: {shown(expression)} cannot be followed exactly: {error}",
        ) from error
    name = _core.named_pattern(translated)
    return name, translated if name is None else _core.NAMED_PATTERNS[name]
