"""Patterns for tiktoken, which drops text that its pattern does not match; bytemill makes it a pre-token.

If the pattern matches every character of every text, both do the same. `coverage_gap` proves that for patterns that
never match the empty string and have enough *plain* alternatives: sequences of atoms that each match one character,
with or without a quantifier.

Proof. Let a plain alternative match the text c, a single character: one atom has matched c, and all others have
matched nothing. Then it matches wherever c occurs in a longer text. The atoms before it can match nothing there too,
unless one is possessive and matches c; but then it would have matched the c of the text c as well. The atoms after it
can match nothing whatever the others matched. So if every character has a plain alternative that matches it alone,
the pattern matches at every position of a text, with this alternative or an earlier one.
"""

from __future__ import annotations

import re
import sys
from functools import lru_cache

from bytemill._core import NAMED_PATTERNS, named_pattern, pretoken_spans
from bytemill.errors import TokenizerError
from bytemill.formats.files import shown
from bytemill.formats.huggingface.oniguruma import ExpressionError, check_matches_something

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


_ATOM = re.compile(
    r"""\\[pP](?:\{[^{}]*\}|[A-Za-z])|\\[sSdDwWnrtf]|\\[^A-Za-z0-9<>]   # a class or an escaped sign
    |\[\^?(?:\\[pP](?:\{[^{}]*\}|[A-Za-z])|\\[sSdDwWnrtf]|\\[^A-Za-z0-9]|[^\\\[\]])+\]
    |[^\\\[\](){}?*+|^$]""",
    re.VERBOSE,
)
_QUANTIFIER = re.compile(r"(?:([?*])|(\+)|\{(\d+)(?:,\d*)?\})([?+]?)")
_ZERO_TIMES = re.compile(r"\{0+(,0+)?\}")


@lru_cache(maxsize=64)
def coverage_gap(pattern: str) -> str | None:
    """Return why `pattern` may leave characters unmatched, or None if it provably matches every character.

    >>> coverage_gap(r"\\w+|\\s+(?!\\S)|[^\\w\\s]|\\s")
    >>> coverage_gap(r"\\w+|\\s+(?!\\S)|[^\\w\\s]")
    'no plain alternative matches U+0009'
    """
    if named_pattern(pattern) is not None:
        return None
    try:
        check_matches_something(pattern)
    except ExpressionError as error:
        return str(error)
    alone = "".join(found for part in _alternatives(pattern) for found in _matches_alone(part))
    missing = f"[^{alone}]"
    characters = _all_characters()
    # The pre-tokens are the missing characters and the text between them: a single one if nothing is missing.
    spans = pretoken_spans(characters, missing) if alone else [(0, 1), (1, 2)]
    if len(spans) == 1:
        return None
    data = characters.encode()
    first, second = (data[start : start + 4].decode("utf-8", "ignore")[0] for start, _ in spans[:2])
    is_missing = not alone or len(pretoken_spans(2 * first, missing)) == 2
    return f"no plain alternative matches U+{ord(first if is_missing else second):04X}"


def _all_characters() -> str:
    return "".join(map(chr, (*range(0xD800), *range(0xE000, sys.maxunicode + 1))))


def _alternatives(pattern: str) -> list[str]:
    """Split a pattern at each "|" outside groups and classes."""
    parts, start, at, depth, in_class = list[str](), 0, 0, 0, False
    while at < len(pattern):
        character = pattern[at]
        if character == "\\":
            at += 1
        elif in_class:
            in_class = character != "]"
        elif character == "[":
            in_class = True
        elif character == "|" and depth == 0:
            parts.append(pattern[start:at])
            start = at + 1
        else:
            depth += (character == "(") - (character == ")")
        at += 1
    return [*parts, pattern[start:]]


def _matches_alone(alternative: str) -> list[str]:
    """Return classes of the characters that an alternative matches alone; none if it is not plain."""
    atoms: list[tuple[str, int, bool]] = []
    at = 0
    while at < len(alternative):
        atom = _ATOM.match(alternative, at)
        if atom is None:
            return []
        quantifier = _QUANTIFIER.match(alternative, atom.end())
        at = atom.end() if quantifier is None else quantifier.end()
        fewest, possessive = 1, False
        if quantifier is not None:
            if _ZERO_TIMES.match(quantifier[0]):
                return []
            fewest = 0 if quantifier[1] else 1 if quantifier[2] else int(quantifier[3])
            possessive = quantifier[4] == "+"
        atoms.append((atom[0], fewest, possessive))
    found: list[str] = []
    for position, (atom, fewest, _) in enumerate(atoms):
        if fewest <= 1 and not any(others for i, (_, others, _) in enumerate(atoms) if i != position):
            taken_before = "".join(_in_class(earlier) for earlier, _, takes in atoms[:position] if takes)
            found.append(f"[{_in_class(atom)}--[{taken_before}]]" if taken_before else _in_class(atom))
    return found


def _in_class(atom: str) -> str:
    """Return an atom as part of a class."""
    if atom == ".":
        return r"[^\n]"
    return atom if len(atom) > 1 else re.escape(atom)
