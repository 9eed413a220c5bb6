"""Truncation gives the tokenizer that training with a smaller vocabulary gives."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tests.support.patterns import as_pattern
from tokenizers import decoders, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer

import bytemill
from bytemill.errors import TokenizerError
from bytemill.formats.spec import TokenizerSpec

END = "<|endoftext|>"
BYTES = {byte: bytes([byte]) for byte in range(256)}
CORPUS = [
    "the quick fox's foxes, 123 the then there lower lowest low low",
    "Жизнь прожить — не поле перейти. 今日は、世界。今日は。",
    "aaaaaaaaa abababab naïve café e\u0301tude हिन्दी भाषा",
    f"a{END}b<|pad|>c 😀😀😀👩\u200d👩\u200d👧",
]

texts = st.lists(
    st.sampled_from([*CORPUS, END, "<|pad|>", "\ufffd", ""]) | st.text(max_size=8), max_size=6
).map("".join)


def train(corpus: list[str], vocab_size: int, **options: Any) -> bytemill.Tokenizer:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bytemill.TrainingStoppedEarly)
        return bytemill.train_from_iterator(corpus, vocab_size, **options)


def assert_same(one: bytemill.Tokenizer, other: bytemill.Tokenizer) -> None:
    assert one.to_spec() == other.to_spec()
    assert one.fingerprint == other.fingerprint
    assert (one.vocab, one.special_tokens, one.n_vocab) == (other.vocab, other.special_tokens, other.n_vocab)
    assert (one.merge_counts, one.ties) == (other.merge_counts, other.ties)


@given(
    corpus=st.lists(texts | st.text("ab ", max_size=30), min_size=1, max_size=5).filter(any),
    special_ids=st.sampled_from(["last", "first"]),
    ties=st.sampled_from(["bytes", "huggingface"]),
    special=st.sampled_from([[], [END], [END, "<|pad|>"], ["the", "é", "今日"]]),
    sizes=st.tuples(st.integers(0, 60), st.integers(0, 60)).map(sorted),
    pattern=st.sampled_from(["gpt2", "cl100k", None, r"\w+|\W"]),
)
def test_truncation_gives_the_tokenizer_that_training_gives(
    corpus: list[str],
    special_ids: Literal["first", "last"],
    ties: Literal["bytes", "huggingface"],
    special: list[str],
    sizes: list[int],
    pattern: str | None,
) -> None:
    options: dict[str, Any] = {
        "special_tokens": special,
        "special_ids": special_ids,
        "ties": ties,
        "pattern": as_pattern(pattern),
    }
    few, many = (256 + len(special) + n_merges for n_merges in sizes)
    larger = train(corpus, many, **options)
    if few > larger.n_vocab:
        with pytest.raises(TokenizerError, match="more than"):
            larger.truncate(few)
        few = larger.n_vocab
    smaller = larger.truncate(few)
    assert_same(smaller, train(corpus, few, **options))
    assert_same(larger.truncate(larger.n_vocab), larger)
    text = "".join(corpus)
    assert smaller.decode(smaller.encode(text)) == larger.decode(larger.encode(text))
    assert smaller.training_report is None


@pytest.mark.parametrize("n_special", [0, 2])
def test_vocabularies_trained_by_hugging_face_are_truncated_as_trained(
    tmp_path: Path, n_special: int
) -> None:
    def trained(vocab_size: int) -> bytemill.Tokenizer:
        theirs = tokenizers.Tokenizer(BPE())
        theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # type: ignore[assignment]
        theirs.decoder = decoders.ByteLevel()  # type: ignore[assignment]
        trainer = BpeTrainer(
            vocab_size=vocab_size,
            special_tokens=[END, "<|pad|>"][:n_special],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        theirs.train_from_iterator(CORPUS * 2, trainer)
        path = tmp_path / f"{vocab_size}.json"
        theirs.save(str(path))
        return bytemill.Tokenizer.load(path)

    larger = trained(330)
    for vocab_size in (256 + n_special, 280, 329, 330):
        assert_same(larger.truncate(vocab_size), trained(vocab_size))


def test_published_vocabularies_keep_the_ids_of_remaining_tokens(peer_of: Callable[[str], Any]) -> None:
    ours = peer_of("gpt2").ours
    smaller = ours.truncate(5000)
    n_special = len(ours.special_tokens)
    assert smaller.n_vocab == 5000
    assert smaller.merges == ours.merges[: 5000 - 256 - n_special]
    in_order = sorted(ours.special_tokens, key=ours.special_tokens.__getitem__)
    assert smaller.special_tokens == {text: 5000 - n_special + place for place, text in enumerate(in_order)}
    before, after = ours.vocab, smaller.vocab
    assert all(after[i] == before[i] for i in range(5000 - n_special))
    text = f"The quick brown fox's foxes, 123{END}今日は 😀"
    assert smaller.decode(smaller.encode(text)) == text


def test_special_tokens_between_ordinary_tokens_keep_their_ids() -> None:
    vocab = BYTES | {257: b"ab", 258: b"abc", 260: b"abcd"}
    merges = [(b"a", b"b"), (b"ab", b"c"), (b"abc", b"d")]
    ours = bytemill.Tokenizer(vocab, merges, {"<a>": 256, "<c>": 300, "<b>": 259})
    assert ours.truncate(262).special_tokens == {"<a>": 256, "<b>": 259, "<c>": 300}
    # Between the tokens that there are and the highest id + 1 it stays as it is, gaps and all.
    assert ours.truncate(262).to_spec() == ours.truncate(301).to_spec() == ours.to_spec()
    assert ours.truncate(261).special_tokens == {"<a>": 256, "<b>": 259, "<c>": 260}
    assert ours.truncate(260).special_tokens == {"<a>": 256, "<b>": 258, "<c>": 259}
    assert ours.truncate(259).special_tokens == {"<a>": 256, "<b>": 257, "<c>": 258}
    assert ours.truncate(259).merges == []


def test_a_special_token_stays_when_its_merge_is_dropped() -> None:
    ours = bytemill.Tokenizer(
        BYTES | {256: b"ab", 257: b"abc"}, [(b"a", b"b"), (b"ab", b"c")], {"abc": 257, "a": 97}
    )
    assert ours.truncate(258).merges == ours.merges
    assert ours.truncate(257).merges == []
    assert ours.truncate(257).special_tokens == {"a": 97, "abc": 256}
    assert ours.truncate(257).encode("xababca") == [120, 97, 98, 256, 97]
    with pytest.raises(TokenizerError, match="make 257"):
        ours.truncate(256)


def by_ranks(*tokens: bytes) -> bytemill.Tokenizer:
    ranks = {token: i for i, token in enumerate([*BYTES.values(), *tokens])}
    return bytemill.Tokenizer.from_spec(TokenizerSpec(pattern="gpt2", special_tokens={}, ranks=ranks))


OUT_OF_ORDER = bytemill.Tokenizer(BYTES | {257: b"ab", 256: b"cd"}, [(b"a", b"b"), (b"c", b"d")])
BYTES_BEHIND = bytemill.Tokenizer(
    {(byte + 1) % 257: bytes([byte]) for byte in range(256)} | {300: b"\xff", 256: b"ab"}, [(b"a", b"b")]
)


def test_ranks_with_equivalent_merges_are_truncated() -> None:
    assert_same(by_ranks(b"ab", b"abc", b"abcd").truncate(257), by_ranks(b"ab"))


@pytest.mark.parametrize(
    ("ours", "vocab_size", "reason"),
    [
        (bytemill.Tokenizer(BYTES, [], [END]), 256, "make 257"),
        (bytemill.Tokenizer(BYTES, [], [END]), -1, "make 257"),
        (bytemill.Tokenizer(BYTES, [], [END]), 258, "more than the 257 tokens"),
        (OUT_OF_ORDER, 257, r"b'ab' \(id 257\) precedes b'cd' \(id 256\)"),
        (BYTES_BEHIND, 256, "do not follow the order of the merges"),
        (bytemill.Tokenizer(BYTES | {256: b"ab"}, []), 256, r"no merge produces token b'ab' \(id 256\)"),
        (by_ranks(b"abcd", b"ab", b"cd"), 257, "without an equivalent list of merges"),
    ],
)
def test_impossible_sizes_and_vocabularies_are_refused(
    ours: bytemill.Tokenizer, vocab_size: int, reason: str
) -> None:
    with pytest.raises(TokenizerError, match=reason):
        ours.truncate(vocab_size)


def test_a_subclass_stays_one() -> None:
    class Subclass(bytemill.Tokenizer):
        pass

    assert type(Subclass(BYTES, []).truncate(256)) is Subclass
