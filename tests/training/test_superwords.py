"""Tokens of several words: learned as the definition says, and encoded alike by Hugging Face's library."""

import warnings
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

import bytemill
from bytemill import reference
from bytemill.errors import TokenizerError
from bytemill.training.superwords import superword_pattern, train_superwords

PIECES = [
    *(
        "of the mill",
        " of the",
        " the day",
        "don't go",
        ", and",
        "\n",
        "  ",
        " 1234",
        " été là",
        "HTTPServer",
        " x",
    ),
    *("今日 は", "e\u0301 e\u0301", "\u00a0", "\t a b", "."),
]
texts = st.lists(st.sampled_from(PIECES), min_size=1, max_size=40).map("".join)


def trained(path: Path, *args: Any, **options: Any) -> bytemill.Tokenizer:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bytemill.TrainingStoppedEarly)
        return train_superwords(path, *args, **options)


@given(
    text=texts,
    n=st.integers(1, 30),
    n_more=st.integers(0, 30),
    max_words=st.integers(2, 4),
    pattern=st.sampled_from(["gpt2", "cl100k", "o200k"]),
    ties=st.sampled_from(["bytes", "huggingface"]),
)
def test_merges_are_those_of_the_definition(
    tmp_path_factory: pytest.TempPathFactory,
    text: str,
    n: int,
    n_more: int,
    max_words: int,
    pattern: str,
    ties: Any,
) -> None:
    path = tmp_path_factory.mktemp("superwords") / "text.txt"
    path.write_text(text, encoding="utf-8", newline="")
    ours = trained(
        path, 256 + n + n_more, [], words_size=256 + n, max_words=max_words, pattern=pattern, ties=ties
    )
    _, first = reference.train_naive(text, 256 + n, pattern=pattern, ties=ties)
    _, expected = reference.train_naive(
        text,
        256 + n + n_more,
        pattern=superword_pattern(pattern).expression,
        ties=ties,
        first=first,
        forbids=lambda token: len(token.split()) > max_words,
    )
    assert ours.merges == expected
    theirs = tokenizers.Tokenizer.from_str(ours.to_huggingface().to_str())
    for some in (text, text[::-1], text.upper()):
        assert ours.encode(some) == theirs.encode(some, add_special_tokens=False).ids
        assert ours.decode(ours.encode(some)) == some


def test_several_words_become_one_token_up_to_a_limit(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("at the end of the day we all go home and sleep.\n" * 50, encoding="utf-8")
    for max_words in (2, 4):
        tok = trained(path, 400, [], words_size=290, max_words=max_words)
        most = max(len(token.split()) for token in tok.vocab.values())
        assert most == max_words
        assert not any(b"\n" in token and token.strip() for token in tok.vocab.values())
    path.write_text("one two\nthree four\n" * 50, encoding="utf-8")
    tok = trained(path, 330, [], words_size=280)
    assert b"one two" in tok.vocab.values()
    assert tok.encode("one two\nthree four") == tok.encode("one two") + tok.encode("\n") + tok.encode(
        "three four"
    )


def test_memory_and_threads_change_nothing(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("at the end of the day we all go home and sleep. No, never!\n" * 3000, encoding="utf-8")
    options: dict[str, Any] = {"words_size": 300, "counts": None}
    one = trained(path, 330, **options, num_threads=1)
    assert trained(path, 330, **options, num_threads=2).merges == one.merges
    assert trained(path, 330, **options, max_memory="64GB").merges == one.merges
    counts = tmp_path / "text.counts"
    assert trained(path, 330, words_size=300, counts=counts).merges == one.merges
    assert (tmp_path / "text.counts.superwords").exists()
    assert trained(path, 330, words_size=300, counts=counts).merges == one.merges


def test_impossible_sizes_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("a text", encoding="utf-8")
    refused: list[tuple[dict[str, Any], str]] = [
        ({"words_size": 257}, "words_size is 257"),
        ({"words_size": 400}, "words_size is 400"),
        ({"words_size": 290, "max_words": 1}, "max_words is 1"),
        ({"words_size": 290, "pattern": None}, "without a pattern"),
    ]
    for options, message in refused:
        with pytest.raises(TokenizerError, match=message):
            train_superwords(path, 300, **options)
    with pytest.raises(TokenizerError, match="can be read only once"):
        train_superwords(bytemill.Corpus.from_texts(iter(["a"])), 300, words_size=290)
