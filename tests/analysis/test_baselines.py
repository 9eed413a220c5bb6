"""Byte, character and word-level baselines."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bytemill.analysis.baselines import (
    UNKNOWN,
    ByteTokenizer,
    CharacterTokenizer,
    WordTokenizer,
)
from bytemill.errors import TokenizerError
from bytemill.reference import PATTERNS, pretokenize

TEXT = "the cat, the dog — and the naïve 猫 🐈\u200d⬛; the end.\n\n  the  cat\n"

text_of_many_scripts = st.text(st.characters(codec="utf-8", exclude_categories=["Cn", "Cs"]), max_size=40)
text_of_few_words = st.lists(st.sampled_from(["a", " b", "  c", "\n", "1", "é", "'s"]), max_size=20).map(
    "".join
)


def tokenizers_of(text: str) -> list[ByteTokenizer | CharacterTokenizer | WordTokenizer]:
    return [ByteTokenizer(), CharacterTokenizer.train(text), WordTokenizer.train(text, 1_000)]


@given(text=text_of_many_scripts | text_of_few_words)
def test_the_training_text_round_trips(text: str) -> None:
    for tokenizer in tokenizers_of(text):
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        assert all(0 <= token_id < tokenizer.n_vocab for token_id in ids)


@given(text=text_of_many_scripts | text_of_few_words, other=text_of_many_scripts | text_of_few_words)
def test_any_text_encodes_to_ids_of_the_vocabulary(text: str, other: str) -> None:
    for tokenizer in tokenizers_of(text):
        ids = tokenizer.encode(other)
        assert all(0 <= token_id < tokenizer.n_vocab for token_id in ids)
        assert tokenizer.decode(ids) == other or UNKNOWN in tokenizer.decode(ids)


@pytest.mark.parametrize("wrong", [-1, 10_000])
def test_an_id_that_no_token_has_is_named(wrong: int) -> None:
    for tokenizer in tokenizers_of(TEXT):
        with pytest.raises(KeyError, match=str(wrong)):
            tokenizer.decode([0, wrong, 20_000])
        with pytest.raises(KeyError, match=str(tokenizer.n_vocab)):
            tokenizer.decode([tokenizer.n_vocab])


def test_arrays_decode_as_lists_do() -> None:
    for tokenizer in tokenizers_of(TEXT):
        ids: Any = np.array(tokenizer.encode(TEXT), dtype=np.uint16)
        assert tokenizer.decode(ids) == TEXT


# Bytes


@given(text=text_of_many_scripts)
def test_bytes_are_their_own_ids(text: str) -> None:
    assert bytes(ByteTokenizer().encode(text)) == text.encode()


def test_bytes_cut_inside_a_character_decode_to_the_replacement_character() -> None:
    assert ByteTokenizer().n_vocab == 256
    assert ByteTokenizer().decode([97, 0xC3]) == "a\ufffd"


def test_a_lone_surrogate_has_no_bytes() -> None:
    with pytest.raises(UnicodeEncodeError):
        ByteTokenizer().encode("a\ud800")
    with pytest.raises(UnicodeEncodeError):
        WordTokenizer([]).encode("a\ud800")


# Characters


def test_characters_are_numbered_by_code_point_and_unknown_ones_share_the_last_id() -> None:
    tokenizer = CharacterTokenizer.train(["caéa", "b猫"])
    assert tokenizer.characters == ["a", "b", "c", "é", "猫"]
    assert tokenizer.n_vocab == 6
    assert tokenizer.unknown_id == 5
    assert tokenizer.encode("éxa犬") == [3, 5, 0, 5]
    assert tokenizer.decode([3, 5, 0]) == "é<unk>a"


def test_several_characters_are_not_one() -> None:
    with pytest.raises(TokenizerError, match="'ab' is not one character"):
        CharacterTokenizer(["a", "ab"])
    with pytest.raises(TokenizerError, match="'' is not one character"):
        CharacterTokenizer([""])


# Words


@pytest.mark.parametrize("pattern", [*PATTERNS, None, r"\S+", "[a-z]+"])
@given(text=text_of_many_scripts | text_of_few_words)
def test_words_are_the_most_frequent_pretokens(pattern: str | None, text: str) -> None:
    counts = Counter(pretokenize(text, pattern))
    tokenizer = WordTokenizer.train(text, 4, pattern)
    assert (
        tokenizer.words == [word for _, word in sorted((-count, word) for word, count in counts.items())][:3]
    )
    known = {word: token_id for token_id, word in enumerate(tokenizer.words)}
    assert tokenizer.encode(text) == [known.get(word, len(known)) for word in pretokenize(text, pattern)]


def test_words_beyond_the_vocabulary_share_the_last_id() -> None:
    tokenizer = WordTokenizer.train(["to be or", " not to be"], 4, "gpt2")
    assert tokenizer.words == [" be", " not", " or"]
    assert tokenizer.n_vocab == 4
    assert tokenizer.unknown_id == 3
    assert tokenizer.encode("to be or not to be!") == [3, 0, 2, 1, 3, 0, 3]
    assert tokenizer.decode([3, 0, 2]) == "<unk> be or"


def test_documents_are_counted_apart() -> None:
    assert WordTokenizer.train(["ab", "ab"], 10, None).words == ["ab"]
    assert WordTokenizer.train("abab", 10, None).words == ["abab"]


def test_a_vocabulary_counts_the_unknown_token() -> None:
    assert WordTokenizer.train(TEXT, 1).n_vocab == 1
    assert WordTokenizer.train(TEXT, 1).encode("the cat") == [0, 0]
    assert WordTokenizer.train("a b", 100).n_vocab == 3
    with pytest.raises(TokenizerError, match="vocab_size 0 has no room for <unk>") as raised:
        WordTokenizer.train(TEXT, 0)
    assert raised.value.hint == "use at least 1"


def test_a_word_that_occurs_twice_is_named() -> None:
    with pytest.raises(TokenizerError, match="word ' b' occurs 2 times"):
        WordTokenizer(["a", " b", " b"])


def test_an_expression_that_does_not_compile_is_refused() -> None:
    with pytest.raises(ValueError, match="unclosed"):
        WordTokenizer.train(TEXT, 10, "(unclosed")
