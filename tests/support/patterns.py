"""Patterns of tests, which name known patterns and regular expressions alike."""

from bytemill import Pattern
from bytemill._core import NAMED_PATTERNS


def as_pattern(pattern: str | None) -> Pattern | None:
    """Return the pattern of a known name or of a regular expression."""
    return None if pattern is None else Pattern(NAMED_PATTERNS.get(pattern, pattern))
