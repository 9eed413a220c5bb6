"""Long pre-tokens, merged by a queue first and by backtracking later, and pre-tokens that are remembered."""

import random
import string
from functools import lru_cache
from typing import Any

import pytest
import tiktoken
from hypothesis import given
from hypothesis import strategies as st

import bytemill
from bytemill import reference
from bytemill.formats.spec import TokenizerSpec

SMALL = "abcdefghijklmnopqrstuvwxyz"
LENGTHS = (100, 248, 249, 1000, 1024, 4096, 4097, 20_000)
"""Bytes. Among them where pre-tokens become too long to be remembered, cut at seams, or merged without a memo."""

BYTES_BY_QUEUE = 100_000
"""Bytes of long pre-tokens that a tokenizer merges with a queue, more or less, before it makes tables for them."""

ALPHABETS = {
    "random letters": SMALL,
    "frequent letters": "etaoinshrdlu",
    "three letters": "abc",
    "small and capital letters": SMALL + SMALL.upper(),
    "accents": "eéèaàuüñoöß",
    "Cyrillic": "оеаинтсрвлкмдпуяыьгзбч",
    "ideographs": "".join(map(chr, range(0x4E00, 0x9FA6, 7))),
    "Hangul": "".join(map(chr, range(0xAC00, 0xD7A4, 5))),
    "Thai": "กขคงจฉชซฌญดตถทธนบปผฝพ",
    "signs": "=-_*#~.,:;!?+",
    "emoji": "".join(map(chr, range(0x1F300, 0x1F650))),
    "NUL and others that are neither letter nor sign": "\0\x01\u0301\u200d",
}
UNITS = [
    "a", "ab", "the", "aA", "é", "字", "ния", "\u0301", "^", "=-", "\0", "👩\u200d👩\u200d👧", " ", "\r\n",
    "'s",
]  # fmt: skip


def cut_to(text: str, n_bytes: int) -> str:
    """The start of a text, of at most so many bytes."""
    return text.encode()[:n_bytes].decode(errors="ignore")


def drawn(alphabet: str, n_bytes: int, chance: random.Random) -> str:
    return cut_to("".join(chance.choices(alphabet, k=n_bytes)), n_bytes)


def of_stretches(n_bytes: int, chance: random.Random) -> str:
    """Letters of one script, then of another, with runs between them."""
    alphabets = [
        ALPHABETS[name] for name in ("random letters", "accents", "Cyrillic", "ideographs", "Hangul", "Thai")
    ]
    stretches: list[str] = []
    while sum(map(len, stretches)) < n_bytes:
        alphabet = chance.choice(alphabets)
        letters = chance.choices(alphabet, k=chance.randrange(1, 12))
        stretches.append("".join(letters) if chance.random() < 0.8 else letters[0] * chance.randrange(2, 40))
    return cut_to("".join(stretches), n_bytes)


def long_pretokens(seed: int, most_bytes: int = max(LENGTHS)) -> dict[str, str]:
    """Texts of one pre-token each, or of few, by what they are made of."""
    chance = random.Random(seed)
    lengths = [n_bytes for n_bytes in LENGTHS if n_bytes <= most_bytes]
    texts = {
        f"{name}, {n_bytes} bytes": drawn(alphabet, n_bytes, chance)
        for name, alphabet in ALPHABETS.items()
        for n_bytes in lengths
    }
    texts |= {
        f"{unit!r}, {n_bytes} bytes": cut_to(unit * n_bytes, n_bytes) for unit in UNITS for n_bytes in lengths
    }
    return texts | {f"stretches, {n_bytes} bytes": of_stretches(n_bytes, chance) for n_bytes in lengths}


def test_long_pretokens_have_the_ids_of_tiktoken(peer: Any) -> None:
    # More than enough of them that the tables for long pre-tokens are made.
    peer.ours.encode("ab" * 100_000)
    for name, text in long_pretokens(1).items():
        assert peer.ours.encode(text) == peer.theirs.encode_ordinary(text), name


def test_the_first_long_pretokens_have_the_ids_of_tiktoken(peer_of: Any) -> None:
    peer, n_bytes = peer_of("gpt2"), BYTES_BY_QUEUE
    ours = peer.ours
    for name, text in long_pretokens(2, most_bytes=4096).items():
        n_bytes += len(text.encode())
        if n_bytes > BYTES_BY_QUEUE:
            ours, n_bytes = bytemill.Tokenizer.from_spec(peer.ours.to_spec()), len(text.encode())
        assert ours.encode(text) == peer.theirs.encode_ordinary(text), name


words = st.sampled_from(UNITS).flatmap(lambda unit: st.integers(1, 400).map(lambda n: unit * n)) | st.text(
    st.characters(categories=["L", "M"]), max_size=40
)


@given(text=st.lists(words, max_size=30).map("".join))
def test_runs_among_any_letters_have_the_ids_of_tiktoken(peer: Any, text: str) -> None:
    assert peer.ours.encode(text) == peer.theirs.encode_ordinary(text)


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


@pytest.mark.parametrize("alphabet", ["ab", "abc", "\0a", "一😀a"])
def test_pretokens_of_every_length_are_cached(alphabet: str) -> None:
    ours = fresh()
    chance = random.Random(alphabet)
    words = ["".join(chance.choices(alphabet, k=n)) for n in range(1, 140) for _ in range(2)]
    for turn in range(2):
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
        for n in (*range(1, 70), *range(240, 260)):
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


@pytest.mark.parametrize("n_characters", [10, 40])
def test_more_pretokens_than_the_cache_holds_are_encoded(n_characters: int) -> None:
    ours = fresh()
    chance = random.Random(n_characters)
    words = ["".join(chance.choices("abcxyz", k=n_characters)) for _ in range(50_000)]
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
    words = ["abcd", "abcdabcd", "abcdx", *(long[:n].decode() for n in (16, 30, 31, 36))]
    for _ in range(2):
        for word in words:
            assert ours.encode(word) == theirs.encode_ordinary(word), word
        text = "\n".join(words * 3)
        assert ours.encode(text) == theirs.encode_ordinary(text)
