"""Pattern names are checked; regular expressions must be explicit."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import bytemill
from bytemill import Pattern
from bytemill._core import NAMED_PATTERNS
from bytemill.errors import TokenizerError
from bytemill.formats.patterns import resolve_pattern

if TYPE_CHECKING:
    from collections.abc import Callable

BYTES = {byte: bytes([byte]) for byte in range(256)}


@pytest.mark.parametrize("name", list(NAMED_PATTERNS))
def test_a_name_and_its_own_expression_are_the_same_pattern(name: str) -> None:
    expression = NAMED_PATTERNS[name]
    assert resolve_pattern(name) == resolve_pattern(expression) == Pattern.named(name).expression
    assert Pattern.named(name).name == Pattern.regex(expression).name == name


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("gpt-2", "gpt2"),
        ("GPT2", "gpt2"),
        ("cl100k_base", "cl100k"),
        ("o200k_base", "o200k"),
        ("llama-3", "llama3"),
    ],
)
def test_a_mistyped_name_is_refused_with_a_suggestion(wrong: str, meant: str) -> None:
    for refused in (
        lambda: bytemill.Tokenizer(BYTES, [], pattern=wrong),
        lambda: bytemill.train("missing.txt", 257, pattern=wrong),
        lambda: bytemill.train_from_iterator(["text"], 257, pattern=wrong),
        lambda: Pattern.named(wrong),
    ):
        with pytest.raises(TokenizerError, match=f"unknown pattern '{wrong}'") as caught:
            refused()
        assert caught.value.hint is not None
        assert caught.value.hint.startswith(
            f"use '{meant}'; the known patterns are {', '.join(NAMED_PATTERNS)}"
        )
        assert "Pattern.regex" in caught.value.hint
        assert "regex:" in caught.value.hint


def test_files_that_store_no_pattern_take_a_checked_one(tmp_path: Path) -> None:
    bytemill.Tokenizer(BYTES, []).save(tmp_path / "vocab.json", format="gpt2")
    vocab, merges = tmp_path / "vocab.json", tmp_path / "merges.txt"
    loaders: list[Callable[[str | Pattern], bytemill.Tokenizer]] = [
        lambda pattern: bytemill.Tokenizer.load(vocab, pattern=pattern),
        lambda pattern: bytemill.Tokenizer.from_files(vocab, merges, pattern=pattern),
    ]
    for load in loaders:
        assert load("cl100k").pattern == NAMED_PATTERNS["cl100k"]
        assert load(Pattern.regex(r"\w+")).pattern == r"\w+"
        with pytest.raises(TokenizerError, match=r"unknown pattern '\\\\w\+'"):
            load(r"\w+")


def test_a_regular_expression_that_equals_a_name_is_not_that_name() -> None:
    tokenizer = bytemill.Tokenizer(BYTES, [], pattern=Pattern.regex("gpt2"))
    assert tokenizer.pattern == "(?:gpt2)"


def test_a_pattern_of_another_type_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="pattern must be a str, a Pattern or None, not int"):
        bytemill.Tokenizer(BYTES, [], pattern=5)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("expression", "matcher"),
    [
        ("gpt2", "masks"),
        (NAMED_PATTERNS["llama3"].replace("{1,3}", "{1,5}"), "masks"),
        (r"\p{N}(?#then)" + NAMED_PATTERNS["gpt2"], "masks"),
        (r"\w+|\W", "automaton"),
        (r"\p{N}{2}(?#then)" + NAMED_PATTERNS["gpt2"], "automaton"),
        (r"(?<=a)b|.", "backtracking"),
    ],
)
def test_a_pattern_says_what_matches_it(expression: str, matcher: str):
    pattern = Pattern.named(expression) if expression == "gpt2" else Pattern.regex(expression)
    assert pattern.matcher == matcher
    assert pattern.backtracks == (matcher == "backtracking")
