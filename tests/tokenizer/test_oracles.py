"""Ids against tiktoken and the reference implementation; tests/formats/huggingface compares with Hugging Face."""

import random
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiktoken
from hypothesis import given
from hypothesis import strategies as st
from tests.support.patterns import as_pattern

import bytemill
from bytemill import reference
from bytemill.formats.spec import TokenizerSpec

END = "<|endoftext|>"
BYTES = {byte: bytes([byte]) for byte in range(256)}

WORDS = [
    "the fox", " internationalization", "'s", "'LL", "they're", "camelCase", "HTTP", "12345", "½", "٣",
    " ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u3000", "é", "e\u0301", "Жизнь", "今日は", "한국어", "हिन्दी",
    "😀", "👩\u200d👧", "(", ");",
    "====", "aaaaaaaa", END, "<|", "|>", "\u180e", "ǅ", "ſ", "\x00", "/",
]  # fmt: skip
texts = st.lists(st.sampled_from(WORDS) | st.text(max_size=4), max_size=25).map("".join)


def same(ours: Any, theirs: Any) -> bool:
    return np.array_equal(np.asarray(ours), np.asarray(theirs))


# Published vocabularies


def assert_files_have_the_ids_of_tiktoken(peer: Any, folder: Path, n_bytes: int | None = None) -> None:
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        text = path.read_bytes()[:n_bytes].decode("utf-8", "replace")
        theirs = peer.theirs.encode_to_numpy(text, allowed_special="all")
        assert same(peer.ours.encode_to_numpy(text), theirs), path.name


def test_every_file_has_the_ids_of_tiktoken(peer: Any, shared_data: Path) -> None:
    assert_files_have_the_ids_of_tiktoken(peer, shared_data, 30_000)


@pytest.mark.slow
def test_every_whole_file_has_the_ids_of_tiktoken(peer: Any, full_data: Path) -> None:
    assert_files_have_the_ids_of_tiktoken(peer, full_data)


@given(text=texts)
def test_any_text_has_the_ids_of_tiktoken(peer: Any, text: str) -> None:
    ids = peer.ours.encode(text)
    assert ids == peer.encode(text)
    assert peer.ours.encode_ordinary(text) == peer.theirs.encode_ordinary(text)
    assert peer.ours.decode(ids) == peer.theirs.decode(ids) == text


@given(
    text=st.text(
        st.characters() | st.sampled_from("\ud800\udbff\ud83d\ude00\udc00\udfff\ufeffa "), max_size=20
    )
)
def test_lone_surrogates_have_the_ids_of_tiktoken(peer: Any, text: str) -> None:
    expected = peer.encode(text)
    assert peer.ours.encode_ordinary(text) == peer.theirs.encode_ordinary(text)
    assert (peer.ours.encode(text), peer.ours.count(text)) == (expected, len(expected))
    assert peer.ours.encode_to_numpy(text).tolist() == expected
    assert peer.ours.encode_batch([text, "a"]) == [expected, peer.encode("a")]


def test_tokens_are_those_of_tiktoken(peer: Any) -> None:
    assert peer.ours.n_vocab == peer.theirs.n_vocab
    assert peer.ours.eot_token == peer.theirs.eot_token
    assert peer.ours.special_tokens_set == peer.theirs.special_tokens_set
    vocab = peer.ours.vocab
    assert sorted(token for i, token in vocab.items() if not peer.ours.is_special_token(i)) == sorted(
        peer.theirs.token_byte_values()
    )
    for i in random.Random(0).sample(sorted(vocab), 500):
        assert vocab[i] == peer.ours.decode_single_token_bytes(i) == peer.theirs.decode_single_token_bytes(i)
        assert peer.ours.encode_single_token(vocab[i]) == peer.theirs.encode_single_token(vocab[i]) == i
    for name, i in peer.ours.special_tokens.items():
        for token in (name, name.encode()):
            assert peer.ours.encode_single_token(token) == peer.theirs.encode_single_token(token) == i


def test_every_token_by_itself_has_the_ids_of_tiktoken(peer: Any) -> None:
    chance = random.Random(1)
    tokens = [t.decode("utf-8", "replace") for t in peer.ours.vocab.values()]
    for glue in ("", " ", "\n"):
        chance.shuffle(tokens)
        text = glue.join(tokens[:20_000])
        theirs = peer.theirs.encode_to_numpy(text, allowed_special="all")
        assert same(peer.ours.encode_to_numpy(text), theirs)


HOSTILE = [
    *("a", " ", "\n", "\r\n", "^", "1234567890", "ab", "\0", "'", "\u0301"),
    *(
        "".join(random.Random(2).choices(kind, k=8_000))
        for kind in ("abcdefghij", "aAbB", "=-_*#~", "一二三é😀\u0301")
    ),
]


def test_hostile_texts_have_the_ids_of_tiktoken(peer: Any) -> None:
    for unit in HOSTILE:
        text = (unit * 8_000)[:8_000] + "s"
        ids = peer.ours.encode(text)
        assert ids == peer.encode(text), unit[:9]
        assert peer.ours.decode(ids) == text
        assert same(peer.ours.encode_to_numpy(text), ids)


def test_gpt2_files_take_further_special_tokens(shared_data: Path, peer_of: Any) -> None:
    files = shared_data / "gpt2_vocab.json", shared_data / "gpt2_merges.txt"
    ours = bytemill.Tokenizer.from_files(*files, [END, END + END, "<|new|>"])
    assert ours.special_tokens == {END: 50256, END + END: 50257, "<|new|>": 50258}
    text = f"Hello,{END}{END}{END} are you <|new|>?"
    hello, are_you = peer_of("gpt2").encode("Hello,"), peer_of("gpt2").encode(" are you ")
    assert ours.encode(text) == [*hello, 50257, 50256, *are_you, 50258, 30]


# Vocabularies made here


@lru_cache
def trained(pattern: str | None) -> bytemill.Tokenizer:
    text = " ".join(word for word in WORDS if word != END) * 3 + " the fix the fax foxes internal nation" * 3
    return bytemill.train_from_iterator(
        iter([text]), vocab_size=380, special_tokens=[END, "<|", "<|pad|>"], pattern=as_pattern(pattern)
    )


@pytest.mark.parametrize("pattern", ["gpt2", "cl100k", "o200k", "llama3", r"\S+|\s+", None])
@given(text=texts)
def test_a_trained_vocabulary_has_the_ids_of_the_reference(pattern: str | None, text: str) -> None:
    ours = trained(pattern)
    oracle = reference.ReferenceTokenizer(ours.vocab, ours.merges, ours.special_tokens, pattern)
    assert ours.encode(text) == oracle.encode(text)
    assert ours.encode_ordinary(text) == oracle.encode(text, "none")
    assert ours.encode(text, allowed_special={"<|"}) == oracle.encode(text, {"<|"})
    assert ours.decode(ours.encode(text)) == text


@st.composite
def rank_tables(draw: st.DrawFn) -> dict[bytes, int]:
    """The bytes and tokens over few letters in any order, so that merges need not lead to every token."""
    letters = draw(st.sampled_from(["ab", "abc"]))
    tokens = draw(st.lists(st.text(letters, min_size=2, max_size=6), unique=True, max_size=14))
    everything = [bytes([byte]) for byte in range(256)] + [token.encode() for token in tokens]
    ids = list(range(len(everything)))
    if draw(st.booleans()):
        random.Random(draw(st.integers(0, 1000))).shuffle(ids)
    return dict(zip(everything, ids, strict=True))


@given(ranks=rank_tables(), words=st.lists(st.text("abc", max_size=80), max_size=4))
def test_any_table_of_ranks_has_the_ids_of_tiktoken(ranks: dict[bytes, int], words: list[str]) -> None:
    pattern = r"\S+|\s+"
    ours = bytemill.Tokenizer.from_spec(TokenizerSpec(pattern=pattern, special_tokens={}, ranks=ranks))
    theirs = tiktoken.Encoding("table", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    text = " ".join(words)
    assert ours.encode(text) == theirs.encode(text)
    for word in words:
        assert ours.encode(word) == reference.encode_by_ranks(word.encode(), ranks) or not word


def test_ranks_with_and_without_equivalent_merges_are_tried() -> None:
    def looked_up(*tokens: bytes) -> bool:
        ranks = {token: i for i, token in enumerate([*BYTES.values(), *tokens])}
        spec = TokenizerSpec(pattern="gpt2", special_tokens={}, ranks=ranks)
        return bytemill.Tokenizer.from_spec(spec).core.ignore_merges

    assert not looked_up(b"ab", b"abc"), "merges lead to every token"
    assert looked_up(b"abc", b"ab"), "none leads to abc, which comes before its parts"
