"""Metrics computed by hand on small texts, and properties of any text."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bytemill.analysis.baselines import ByteTokenizer, CharacterTokenizer
from bytemill.analysis.metrics import (
    TextMetrics,
    compression_ratio,
    measure,
    token_size_histogram,
    vocabulary_use,
)
from bytemill.errors import CorpusError, TokenizerError
from bytemill.reference import ReferenceTokenizer, train

text_of_many_scripts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=60)


class Silent:
    """A tokenizer without a token for anything."""

    def encode(self, _: str) -> list[int]:
        return []


def test_a_text_is_measured_in_bytes_characters_words_and_tokens() -> None:
    vocab, merges = train("naïve naïve naïve", 256 + 5)
    tokenizer = ReferenceTokenizer(vocab, merges)
    text = "naïve\u00a0naïve  \n x"
    metrics = measure(tokenizer, text)
    assert dataclasses.astuple(metrics)[:3] == (len(text.encode()), 16, 3)
    assert metrics.n_tokens == len(tokenizer.encode(text))
    assert metrics.n_distinct_tokens == len(set(tokenizer.encode(text))) < metrics.n_tokens


def test_the_ratios_are_those_of_the_counts() -> None:
    metrics = TextMetrics(n_bytes=30, n_characters=24, n_words=4, n_tokens=12, n_distinct_tokens=5)
    assert metrics.bytes_per_token == 2.5
    assert metrics.characters_per_token == 2.0
    assert metrics.tokens_per_word == 3.0


@given(text=text_of_many_scripts)
def test_bytes_compress_to_one_and_characters_to_their_mean_size(text: str) -> None:
    assert compression_ratio(ByteTokenizer(), text) == 1.0
    characters = measure(CharacterTokenizer.train(text), text)
    assert characters.bytes_per_token == pytest.approx(len(text.encode()) / len(text))
    assert characters.characters_per_token == 1.0
    assert characters.n_distinct_tokens == len(set(text))


@given(words=st.lists(st.text("abé世", min_size=1, max_size=6), min_size=1, max_size=8))
def test_white_space_of_any_kind_separates_words(words: list[str]) -> None:
    for space in (" ", "\n\n", " \t", "\u3000", "\u00a0"):
        text = space + space.join(words) + space
        assert measure(ByteTokenizer(), text).n_words == len(words)
        assert measure(ByteTokenizer(), text).tokens_per_word == len(text.encode()) / len(words)


def test_an_empty_text_has_no_ratio() -> None:
    for metric in (measure, compression_ratio):
        with pytest.raises(CorpusError, match="the text is empty") as raised:
            metric(ByteTokenizer(), "")
        assert raised.value.hint


def test_a_text_without_words_has_no_fertility_but_a_compression_ratio() -> None:
    with pytest.raises(CorpusError, match="no words, only white space"):
        _ = measure(ByteTokenizer(), " \n").tokens_per_word
    assert compression_ratio(ByteTokenizer(), " \n") == 1.0


def test_a_tokenizer_without_tokens_for_a_text_is_refused() -> None:
    with pytest.raises(TokenizerError, match="no tokens for a text of 3 characters"):
        compression_ratio(Silent(), "abc")


def test_token_sizes_are_counted_in_bytes_smallest_first() -> None:
    vocab, merges = train("naïve naïve", 256 + 3, ["<|end|>"])
    assert [vocab[256], vocab[257]] == ["ï".encode(), "ïv".encode()]
    histogram = token_size_histogram(vocab.values())
    assert histogram == {1: 256, 2: 1, 3: 1, 7: 1}
    assert list(histogram) == [1, 2, 3, 7]
    tokenizer = ReferenceTokenizer(vocab, merges, ["<|end|>"])
    text = "naïve<|end|>naïve<|end|>"
    of_text = token_size_histogram(tokenizer.decode_tokens_bytes(tokenizer.encode(text)))
    assert of_text[7] == 2
    assert sum(size * n_tokens for size, n_tokens in of_text.items()) == len(text.encode())
    assert token_size_histogram([]) == {}


def test_vocabulary_use_counts_each_id_once() -> None:
    assert vocabulary_use([0, 3, 3, 0], 4) == 0.5
    assert vocabulary_use(iter([0, 1, 2]), 3) == 1.0
    assert vocabulary_use([], 3) == 0.0


@pytest.mark.parametrize(
    ("ids", "n_vocab", "message"),
    [
        ([0, 4], 4, "id 4 is outside a vocabulary of 4"),
        ([-1], 4, "id -1 is outside"),
        ([], 0, "n_vocab is 0"),
    ],
)
def test_ids_outside_the_vocabulary_have_no_use(ids: list[int], n_vocab: int, message: str) -> None:
    with pytest.raises(TokenizerError, match=message):
        vocabulary_use(ids, n_vocab)
