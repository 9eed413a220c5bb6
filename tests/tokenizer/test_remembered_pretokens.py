"""Cached pre-tokens keep their ids, also after they were evicted."""

import random
import string
from functools import lru_cache

import pytest
import tiktoken
from hypothesis import given
from hypothesis import strategies as st

import bytemill
from bytemill import reference
from bytemill.formats.spec import TokenizerSpec

BYTES = {byte: bytes([byte]) for byte in range(256)}
PATTERN = r" ?\S+|\s"
TRAINING = "abab abcabc aabb ca cab bca aaaa bbbb cccccccc abcabcabcabc \0\0 ffff " * 5


@lru_cache
def trained() -> bytemill.Tokenizer:
    return bytemill.train_from_iterator([TRAINING], vocab_size=285, pattern=bytemill.Pattern.regex(PATTERN))


@lru_cache
def in_tiktoken() -> tiktoken.Encoding:
    ranks = {token: i for i, token in trained().vocab.items()}
    return tiktoken.Encoding("trained", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={})


def fresh() -> bytemill.Tokenizer:
    """The same tokenizer, which remembers nothing yet."""
    return bytemill.Tokenizer(trained().vocab, trained().merges, pattern=bytemill.Pattern.regex(PATTERN))


@lru_cache(maxsize=1 << 16)
def by_reference(pretoken: str) -> list[int]:
    merge_ranks = {pair: rank for rank, pair in enumerate(trained().merges)}
    return [trained().encode_single_token(t) for t in reference.apply_merges(pretoken.encode(), merge_ranks)]


@pytest.mark.parametrize("alphabet", ["a", "ab", "abc", "xyz", "é", "\0", "\0a", "一😀a"])
def test_pretokens_of_every_length_are_cached(alphabet: str) -> None:
    ours = fresh()
    chance = random.Random(alphabet)
    words = ["".join(chance.choices(alphabet, k=n)) for n in range(1, 140) for _ in range(3)]
    for turn in range(3):
        for word in words:
            assert ours.encode(word) == by_reference(word), (turn, word)
        chance.shuffle(words)
    # In one call, so that blocks of many pre-tokens are tried too.
    for glue in (" ", "\n"):
        text = glue.join(words)
        expected = in_tiktoken().encode_ordinary(text)
        assert ours.encode(text) == fresh().encode(text) == expected
        assert ours.encode_to_numpy(text).tolist() == expected


def test_without_merges_every_byte_is_an_id() -> None:
    for pattern in ("gpt2", "cl100k", "o200k", "llama3", None):
        ours = bytemill.Tokenizer(BYTES, [], pattern=pattern)
        for n in range(1, 300):
            text = "a" * n
            assert ours.encode(text) == list(text.encode())
            assert ours.encode(text + " b") == list((text + " b").encode())
        text = "internationalization of every single-word utterance 123456789012345678901234567890 "
        for _ in range(2):
            assert ours.encode(text) == list(text.encode())


@given(words=st.lists(st.text("abc\0", min_size=1, max_size=40), min_size=1, max_size=12))
def test_repeated_pretokens_have_the_same_ids(words: list[str]) -> None:
    ours = fresh()
    text = " ".join(words)
    expected = in_tiktoken().encode_ordinary(text)
    assert ours.encode(text) == ours.encode(text) == expected
    backwards = " ".join(reversed(words))
    assert ours.encode(backwards) == in_tiktoken().encode_ordinary(backwards)
    assert ours.encode(text) == expected


def test_pretokens_that_differ_in_one_byte_are_distinguished() -> None:
    ours = fresh()
    chance = random.Random(1)
    for n in (1, 7, 8, 9, 14, 15, 16, 17, 23, 24, 25, 30, 31, 32, 33, 63, 64, 65):
        base = "".join(chance.choices("abc", k=n))
        words = [base[:k] + other + base[k + 1 :] for k in range(n) for other in "abc\0f"]
        words += [base + "\0", base + "\0\0", "\0" + base, base[:-1] or "a", base + "a"]
        text = " ".join(words + words[::-1])
        assert ours.encode(text) == in_tiktoken().encode_ordinary(text), n


@pytest.mark.parametrize("n_characters", [4, 10, 20, 40])
def test_more_pretokens_than_the_cache_holds_are_encoded(n_characters: int) -> None:
    ours = fresh()
    chance = random.Random(n_characters)
    words = ["".join(chance.choices("abcxyz", k=n_characters)) for _ in range(60_000)]
    for _ in range(2):
        text = " ".join(words)
        ids = ours.encode_to_numpy(text, num_threads=1)
        assert ids.tolist() == in_tiktoken().encode_ordinary(text)
        chance.shuffle(words)


def test_the_last_pretoken_is_not_read_beyond_its_end() -> None:
    ours = fresh()
    tail = "abcabcabcabcabcabcabc" + string.ascii_lowercase * 2
    for n in range(1, len(tail)):
        for prefix in ("", "x ", "ab " * 30):
            text = prefix + tail[:n]
            assert ours.encode(text) == in_tiktoken().encode_ordinary(text)


def test_pretokens_that_are_looked_up_whole_are_cached() -> None:
    long = b"abcdefghijklmnopqrstuvwxyz0123456789"
    ranks = {
        token: i
        for i, token in enumerate([*BYTES.values(), b"abcd", long, b"ab", b"cd", long[:31], long[:16]])
    }
    spec = TokenizerSpec(pattern=PATTERN, special_tokens={}, ranks=ranks)
    ours = bytemill.Tokenizer.from_spec(spec)
    theirs = tiktoken.Encoding("ranks", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={})
    assert ours.core.ignore_merges
    words = [
        "abcd",
        "abcdabcd",
        long.decode(),
        long[:31].decode(),
        long[:16].decode(),
        long[:30].decode(),
        "abcdx",
    ]
    for _ in range(2):
        for word in words:
            assert ours.encode(word) == theirs.encode_ordinary(word), word
        text = "\n".join(words * 3)
        assert ours.encode(text) == theirs.encode_ordinary(text)
