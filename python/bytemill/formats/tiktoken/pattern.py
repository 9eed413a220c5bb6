"""Patterns as tiktoken takes them, which passes over what its pattern does not match."""

from __future__ import annotations

from bytemill._core import NAMED_PATTERNS, named_pattern
from bytemill.errors import TokenizerError
from bytemill.formats.files import shown
from bytemill.formats.huggingface.oniguruma import ExpressionError, check_matches_something
from bytemill.formats.pattern_coverage import coverage_gap

# tiktoken always has a pattern. This one makes one pre-token of all.
_WHOLE = r"(?s:.+)"


def pattern_from(expression: str) -> str | None:
    """The pattern behind an expression that `pattern_to` may have made."""
    if expression == _WHOLE:
        return None
    if expression in NAMED_PATTERNS:  # To tiktoken it is no name.
        return f"(?:{expression})"
    pattern = expression[: (len(expression) - len(_rest_as_well(""))) // 2]
    return pattern if expression == _rest_as_well(pattern) else expression


def pattern_to(pattern: str | None) -> str:
    """An expression with which tiktoken splits as bytemill does with `pattern`.

    Raises TokenizerError where what lies between the matches may be told apart from them in no expression.
    """
    if pattern is None:
        return _WHOLE
    if named_pattern(pattern) is not None or coverage_gap(pattern) is None:
        return pattern
    try:
        check_matches_something(
            pattern
        )  # It knows no groups that are named or referred to: all can stand twice.
    except ExpressionError as error:
        raise TokenizerError(
            "tiktoken passes over text that its pattern does not match, and "
            f"{shown(pattern)} cannot be completed: {error}",
            hint="Write a tokenizer.json.",
        ) from error
    return _rest_as_well(pattern)


def _rest_as_well(pattern: str) -> str:
    """`pattern`, and where it does not match, everything up to its next match or the end."""
    return rf"{pattern}|(?s:.)+?(?=(?:{pattern})|\z)"
