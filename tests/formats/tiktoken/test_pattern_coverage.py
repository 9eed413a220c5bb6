"""Which patterns provably match every character, and the reason for others."""

import pytest

from bytemill._core import NAMED_PATTERNS
from bytemill.formats.tiktoken_patterns import coverage_gap


@pytest.mark.parametrize(
    "pattern",
    [
        *NAMED_PATTERNS.values(),
        r"[\s\S]",
        r"\S|\s",
        r" ?\w+| ?[^\w\s]+|\s+(?!\S)|\s+",
        r"'(?:s|t)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
        r"[a|b]|[^a|b]",
        r"\||[^|]",
        r"(a|b)+|[\s\S]",
    ],
)
def test_published_patterns_match_all_text(pattern: str) -> None:
    assert coverage_gap(pattern) is None


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("[^\U0001f600]", "U+1F600"),
        ("[^\0]", "U+0000"),
        ("[^\1]", "U+0001"),
        (r"(\s|\S)", "U+0000"),
        (r"(\s|\S)*", "empty"),
        (r"\s|\S{2}", "U+0000"),
        (r"\s|\S{0}a", "U+0000"),
        (r"a?+[\s\S]", "U+0061"),
        ("a*", "empty"),
        (r"\b.|\s", "U+0000"),
        (r"\G.|\s", "G"),
        (r"(?P<x>.)|\s", "(?P<"),
    ],
)
def test_the_reason_for_missing_coverage_is_given(pattern: str, reason: str) -> None:
    assert reason in str(coverage_gap(pattern))
