"""Pre-tokenization patterns: known names and regular expressions."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Literal, Self

from bytemill._core import NAMED_PATTERNS, check_pattern, matcher, named_pattern
from bytemill.errors import TokenizerError
from bytemill.formats.files import shown


def _kimi_k2() -> str:
    upper, lower = (rf"[\p{{{case}}}\p{{Lm}}\p{{Lo}}\p{{M}}&&[^\p{{Han}}]]" for case in ("Lu}\\p{Lt", "Ll"))
    contraction = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
    return (
        rf"[\p{{Han}}]+|[^\r\n\p{{L}}\p{{N}}]?{upper}*{lower}+{contraction}?"
        rf"|[^\r\n\p{{L}}\p{{N}}]?{upper}+{lower}*{contraction}?"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )


KIMI_K2: str = _kimi_k2()
"""Pattern of Kimi K2 and K3: words without Chinese characters, which are apart."""


@dataclass(frozen=True)
class Pattern:
    """A pattern that splits text into pre-tokens. Create one with `named` or `regex`.

    >>> Pattern.named("gpt2").name
    'gpt2'
    >>> Pattern.regex(r"[a-z]+").expression
    '[a-z]+'
    """

    expression: str
    """The regular expression."""

    @classmethod
    def named(cls, name: str) -> Self:
        """Return a known pattern.

        Args:
            name: A name in `bytemill._core.NAMED_PATTERNS`, such as `gpt2` or `cl100k`.

        Raises:
            TokenizerError: `name` is unknown.
        """
        if name not in NAMED_PATTERNS:
            raise _unknown(name)
        return cls(NAMED_PATTERNS[name])

    @classmethod
    def regex(cls, expression: str) -> Self:
        r"""Return a pattern for a regular expression.

        Text between two matches is a pre-token as well, so no text is lost.

        Args:
            expression: A regular expression in the syntax of the Rust crate fancy-regex, such as `r"\w+|\W"`.

        Raises:
            TokenizerError: `expression` does not compile.
        """
        if expression in NAMED_PATTERNS:
            expression = f"(?:{expression})"  # the core would take it for the name
        check_pattern(expression)
        return cls(expression)

    @property
    def matcher(self) -> Literal["masks", "automaton", "backtracking"]:
        r"""What matches the pattern.

        "masks" are the patterns of most published tokenizers: contractions, letters, digits, others and white space in
        known variants. An "automaton" is several times slower, "backtracking" slower again: look-around (except
        `\s+(?!\S)`), back-references, anchors and possessive quantifiers need it.
        """
        return matcher(self.expression)

    @property
    def backtracks(self) -> bool:
        """Whether the pattern needs a backtracking engine; see `matcher`."""
        return self.matcher == "backtracking"

    @property
    def name(self) -> str | None:
        """The name of the known pattern with this meaning, or None."""
        return named_pattern(self.expression)


def resolve_pattern(pattern: str | Pattern | None) -> str | None:
    """Return the regular expression of a user-supplied pattern.

    Args:
        pattern: A known name, a known pattern's own expression, a `Pattern`, or None for no pre-tokenization.

    Raises:
        TokenizerError: `pattern` is a str that is neither a known name nor the expression of a known pattern.
        TypeError: `pattern` has another type.

    >>> resolve_pattern("gpt2") == Pattern.named("gpt2").expression
    True
    """
    if pattern is None:
        return None
    if isinstance(pattern, Pattern):
        return pattern.expression
    if not isinstance(pattern, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(
            f"pattern must be a str, a Pattern or None, not {type(pattern).__name__} ({pattern!r:.40})"
        )
    if pattern in NAMED_PATTERNS:
        return NAMED_PATTERNS[pattern]
    if named_pattern(pattern) is None:
        raise _unknown(pattern)
    return pattern


def checked_pattern(pattern: str | None) -> str | None:
    """Return the regular expression of a known name or a regular expression.

    Raises:
        TokenizerError: `pattern` does not compile.
    """
    if pattern is None:
        return None
    try:
        check_pattern(pattern)
    except ValueError as error:
        raise TokenizerError(f"pattern {shown(pattern)}: {error}") from error
    return NAMED_PATTERNS.get(pattern, pattern)


def _unknown(name: str) -> TokenizerError:
    close = difflib.get_close_matches(name.lower(), NAMED_PATTERNS, n=1)
    suggestion = f"use {close[0]!r}" if close else f"use one of {', '.join(NAMED_PATTERNS)}"
    rest = f"; the known patterns are {', '.join(NAMED_PATTERNS)}" if close else ""
    short = name if len(name) <= 60 else name[:59] + "…"
    return TokenizerError(
        f"unknown pattern {short!r}",
        hint=f"{suggestion}{rest}; pass a regular expression as Pattern.regex(...), "
        "or as regex:EXPR on the command line",
    )
