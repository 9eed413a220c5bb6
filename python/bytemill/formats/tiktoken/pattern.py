"""Patterns for tiktoken, which drops text that its pattern does not match."""

from __future__ import annotations

from bytemill._core import NAMED_PATTERNS, named_pattern
from bytemill.errors import TokenizerError
from bytemill.formats.files import shown
from bytemill.formats.huggingface.oniguruma import ExpressionError, check_matches_something
from bytemill.formats.pattern_coverage import coverage_gap

# tiktoken requires a pattern. This one makes the whole text one pre-token.
_EVERYTHING = r"(?s:.+)"


def pattern_from(expression: str) -> str | None:
    """Return the pattern of an expression for tiktoken, the inverse of `pattern_to`."""
    if expression == _EVERYTHING:
        return None
    if expression in NAMED_PATTERNS:  # tiktoken does not take it for a name
        return f"(?:{expression})"
    pattern = expression[: (len(expression) - len(_with_gaps(""))) // 2]
    return pattern if expression == _with_gaps(pattern) else expression


def pattern_to(pattern: str | None) -> str:
    """Return an expression with which tiktoken splits like bytemill does with `pattern`.

    Raises:
        TokenizerError: The text between matches cannot be matched by an expression.
    """
    if pattern is None:
        return _EVERYTHING
    if named_pattern(pattern) is not None or coverage_gap(pattern) is None:
        return pattern
    try:
        check_matches_something(pattern)  # also rejects named groups and references: it can be repeated
    except ExpressionError as error:
        raise TokenizerError(
            "tiktoken drops text that its pattern does not match, and "
            f"{shown(pattern)} cannot be extended to match all text: {error}",
            hint="write a tokenizer.json",
        ) from error
    return _with_gaps(pattern)


def _with_gaps(pattern: str) -> str:
    """Extend `pattern` to also match the text up to its next match or the end."""
    return rf"{pattern}|(?s:.)+?(?=(?:{pattern})|\z)"
