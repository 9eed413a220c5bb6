"""Patterns whose last steps split bytes, as Falcon's: they may divide a character."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import bytemill
from bytemill import Pattern, Tokenizer, reference
from bytemill.errors import TokenizerError

EXPRESSION = r"gpt2(?#bytes)\p{N}+(?#then)[0-9][0-9][0-9]"
TEXTS = [
    "ò 12345²! An é in 2026, a ² or ½ of 1000000 «òò²³»",
    "ò²³¹¼½¾ é " * 40,
    "12 123 1234 12345 " * 30,
]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return bytemill.train_from_iterator(TEXTS, 270, ["<|end|>"], pattern=Pattern.regex(EXPRESSION))


@pytest.fixture(scope="module")
def by_definition() -> reference.ReferenceTokenizer:
    vocab, merges = reference.train(TEXTS, 270, special_tokens=["<|end|>"], pattern=EXPRESSION)
    return reference.ReferenceTokenizer(vocab, merges, ["<|end|>"], pattern=EXPRESSION)


def test_the_same_merges_are_learned(tokenizer: Tokenizer, by_definition: reference.ReferenceTokenizer):
    assert dict(tokenizer.vocab) == by_definition.vocab
    # No token has the two bytes of ò, of which the second is ² in GPT-2's table.
    assert not any("ò".encode() in token for token in tokenizer.vocab.values())
    assert any("é".encode() in token for token in tokenizer.vocab.values())


@given(text=st.text("ò²³¹¼½¾óé12ab !<|end>", max_size=60) | st.text(max_size=20))
def test_ids_are_those_by_definition(
    tokenizer: Tokenizer, by_definition: reference.ReferenceTokenizer, text: str
):
    expected = by_definition.encode(text)
    assert tokenizer.encode(text) == expected
    assert list(tokenizer.encode_iterable([text])) == expected
    assert tokenizer.decode(expected) == text
    assert [token_id for part in tokenizer.explain(text) for token_id in part.ids] == expected
    assert b"".join(token for part in tokenizer.explain(text) for token in part.tokens) == text.encode()


def test_a_divided_character_is_explained(tokenizer: Tokenizer):
    assert [part.text for part in tokenizer.explain("aò")] == ["a�", "�"]
    assert [len(part.tokens) for part in tokenizer.explain("aò")] == [2, 1]


@pytest.mark.parametrize("after", ["a*b", "(?=a)b", "("])
def test_steps_on_bytes_are_bounded(after: str):
    with pytest.raises(TokenizerError, match="the steps on bytes"):
        Pattern.regex(f"gpt2(?#bytes){after}")
