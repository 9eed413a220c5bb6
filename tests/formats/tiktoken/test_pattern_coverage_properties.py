"""Property: patterns that provably match every character do so in any text."""

from collections.abc import Iterator

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bytemill._core import Encoder
from bytemill.formats import tiktoken_patterns
from bytemill.formats.tiktoken_patterns import coverage_gap

ATOMS = st.sampled_from(
    ["a", "b", " ", ".", r"\s", r"\S", r"\w", r"\W", "[ab]", "[^a]", r"[\s\S]", r"\p{L}", "!"]
)
QUANTIFIERS = st.sampled_from(
    ["", "?", "*", "+", "??", "*?", "+?", "?+", "*+", "++", "{0}", "{1,3}", "{2}", "{1,2}+", "{0,2}+"]
)
ALTERNATIVES = st.lists(st.builds(str.__add__, ATOMS, QUANTIFIERS), min_size=1, max_size=3).map("".join)
OTHERS = st.sampled_from([r"\s+(?!\S)", r"\s++$", "(?:ab)?+a", "(?<=a)b", "(?i:AB)", r"(?>a|ab)!"])
LAST = st.sampled_from([r"\s|\S", r"[\s\S]+?", "[^a]|a", "[^a]|b?+ ?a", "[^a]", "[^a]|a?+a", "."])
PATTERNS = st.builds(
    lambda parts, last: "|".join([*parts, last]), st.lists(st.one_of(ALTERNATIVES, OTHERS), max_size=3), LAST
)
PLAIN = st.lists(ALTERNATIVES, min_size=1, max_size=4).map("|".join)


def dropped(pattern: str, text: str) -> str:
    """What is left of `text` where the pattern has dropped what it does not match."""
    ranks = {bytes([byte]): byte for byte in range(256)}
    return bytes(
        Encoder.from_ranks(ranks, {}, pattern, drops_unmatched=True).encode(text, "none", 1)
    ).decode()


@pytest.fixture(scope="module", autouse=True)
def few_characters() -> Iterator[None]:
    """Speed up the test: pretend that only the characters of the texts exist."""
    with pytest.MonkeyPatch.context() as patch:
        tiktoken_patterns.coverage_gap.cache_clear()
        patch.setattr(tiktoken_patterns, "_all_characters", lambda: "\n !abé")
        yield
    tiktoken_patterns.coverage_gap.cache_clear()


@given(pattern=PATTERNS, text=st.text(alphabet="ab! \né", max_size=12))
def test_tiktoken_drops_nothing_if_the_pattern_covers_all_text(pattern: str, text: str) -> None:
    assume(coverage_gap(pattern) is None)
    assert dropped(pattern, text) == text


@given(pattern=PLAIN)
def test_the_reported_character_is_not_matched(pattern: str) -> None:
    assume("{0}" not in pattern)  # an alternative that holds such a part is not looked into: that is no proof
    reason = str(coverage_gap(pattern))
    if "U+" in reason:
        character = chr(int(reason.rpartition("U+")[2], 16))
        assert dropped(pattern, character) == ""
