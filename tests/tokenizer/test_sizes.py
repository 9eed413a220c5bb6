"""Sizes of a tokenizer, `skip_special_tokens`, and parts that contradict each other."""

import pickle
from collections import Counter
from typing import Any

import numpy as np
import pytest

import bytemill
from bytemill.errors import TokenizerError
from bytemill.formats.spec import TokenizerSpec

BYTES = {byte: bytes([byte]) for byte in range(256)}


def test_vocab_size_is_the_requested_size() -> None:
    tokenizer = bytemill.train_from_iterator(["low low lower lowest"], vocab_size=260, special_tokens=["<e>"])
    assert len(tokenizer) == tokenizer.vocab_size == tokenizer.n_vocab == 260
    assert len(tokenizer) == tokenizer.get_vocab_size()


def test_only_n_vocab_counts_id_gaps() -> None:
    tokenizer = bytemill.Tokenizer(BYTES, [], {"<e>": 300})
    assert (len(tokenizer), tokenizer.vocab_size, tokenizer.n_vocab) == (257, 257, 301)


def test_special_tokens_are_left_out_of_decoded_text_on_request() -> None:
    tokenizer = bytemill.Tokenizer(BYTES, [], ["<a>", "<b>"])
    ids = tokenizer.encode("<a>hi<b>é")
    for kind in (ids, tuple(ids), np.array(ids, dtype=np.uint16)):
        assert tokenizer.decode(kind) == "<a>hi<b>é"
        assert tokenizer.decode(kind, skip_special_tokens=True) == "hié"
        assert tokenizer.decode_batch([kind, []], skip_special_tokens=True) == ["hié", ""]


def test_vocab_and_merges_are_made_once_and_may_be_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Counted:
        """The core, with the number of calls of two methods."""

        def __init__(self, core: Any) -> None:
            self.core, self.calls = core, Counter[str]()

        def __getattr__(self, name: str) -> Any:
            self.calls[name] += 1
            return getattr(self.core, name)

    tokenizer = bytemill.train_from_iterator(["low low lower"], vocab_size=259, special_tokens=["<e>"])
    core = Counted(tokenizer.core)
    monkeypatch.setattr(tokenizer, "core", core)
    vocab, merges = tokenizer.vocab, tokenizer.merges
    expected = dict(vocab), list(merges)
    vocab.clear()
    merges.clear()
    for _ in range(3):
        assert (tokenizer.vocab, tokenizer.merges) == expected
    assert (core.calls["vocab"], core.calls["merges"]) == (1, 1)
    monkeypatch.undo()
    copied = pickle.dumps(tokenizer)
    fresh = bytemill.train_from_iterator(["low low lower"], vocab_size=259, special_tokens=["<e>"])
    assert len(copied) == len(pickle.dumps(fresh))
    again = pickle.loads(copied)  # noqa: S301
    assert (again.vocab, again.merges) == expected


@pytest.mark.parametrize(
    ("vocab", "merges", "message"),
    [
        ({}, [], r"all bytes of UTF-8"),
        ({i: token for i, token in BYTES.items() if i != 7}, [], r"the byte b\"\\x07\" is no token"),
        (BYTES | {256: b"a"}, [], r"b\"a\" is there twice, with the ids"),
        (BYTES | {256: b"ab", 257: b"ab"}, [(b"a", b"b")], r"b\"ab\" is there twice"),
        (BYTES | {256: b""}, [], r"the token with the id 256 is empty"),
        (BYTES, [(b"a", b"b")], r"merge 0 .*no token b\"ab\""),
        (BYTES | {256: b"abc"}, [(b"ab", b"c")], r"merge 0 .*b\"ab\" is neither a byte nor"),
        (BYTES | {256: b"abc"}, [(b"a", b"bc")], r"merge 0 .*b\"bc\" is neither a byte nor"),
        (BYTES | {256: b"ab"}, [(b"a", b"b")] * 2, r"merge 1 .*an earlier merge makes"),
        (BYTES, [(b"a", b"")], r"merge 0"),
        (BYTES, [(b"", b"")], r"merge 0"),
        (BYTES | {-1: b"ab"}, [], r"-1"),
        (BYTES | {1 << 40: b"ab"}, [], str(1 << 40)),
        (BYTES | {(1 << 32) - 1: b"ab"}, [], r"out of all proportion"),
        (BYTES | {"x": b"ab"}, [], r"'x'"),
    ],
)
def test_vocabularies_and_merges_that_contradict_each_other_are_refused(
    vocab: Any, merges: Any, message: str
) -> None:
    with pytest.raises(TokenizerError, match=message):
        bytemill.Tokenizer(vocab, merges)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({b"ab": 97}, r"rank 97 belongs to two tokens"),
        ({b"": 256}, r"empty"),
        ({b"ab": -1}, r"-1"),
        ({b"ab": 1 << 33}, str(1 << 33)),
        ({b"ab": (1 << 32) - 1}, r"out of all proportion"),
    ],
)
def test_ranks_that_contradict_each_other_are_refused(more: Any, message: str) -> None:
    ranks = {token: i for i, token in BYTES.items()} | more
    with pytest.raises(TokenizerError, match=message):
        bytemill.Tokenizer.from_spec(TokenizerSpec(pattern="gpt2", special_tokens={}, ranks=ranks))


def test_ranks_without_a_byte_are_refused() -> None:
    ranks = {bytes([byte]): byte - 1 for byte in range(1, 256)}
    with pytest.raises(TokenizerError, match=r"the byte b\"\\x00\" is no token"):
        bytemill.Tokenizer.from_spec(TokenizerSpec(pattern="gpt2", special_tokens={}, ranks=ranks))


@pytest.mark.parametrize(
    ("vocab", "merges"),
    [
        (None, []),
        (BYTES, None),
        (BYTES | {256: "ab"}, []),
        (BYTES | {256: None}, []),
        (BYTES | {256: b"ab"}, [("a", "b")]),
        (BYTES | {256: b"ab"}, [b"ab"]),
        (BYTES | {256: b"ab"}, [5]),
    ],
)
def test_tokens_and_merges_of_other_types_are_a_type_error(vocab: Any, merges: Any) -> None:
    with pytest.raises(TypeError):
        bytemill.Tokenizer(vocab, merges)


def test_a_merge_has_two_parts() -> None:
    with pytest.raises((TokenizerError, TypeError, ValueError), match="3"):
        bytemill.Tokenizer(BYTES | {256: b"ab"}, [(b"a", b"b", b"c")])  # type: ignore[list-item]


def test_ids_need_not_be_byte_values_nor_dense() -> None:
    vocab = {3 * (255 - byte): bytes([byte]) for byte in range(256)} | {7: b"ab", 1000: b"abc", 1: b"bc"}
    tokenizer = bytemill.Tokenizer(vocab, [(b"a", b"b"), (b"ab", b"c"), (b"b", b"c")], ["<s>"])
    assert tokenizer.encode("abc bca<s>") == [1000, 3 * (255 - 32), 1, 3 * (255 - 97), 1001]
    assert tokenizer.decode(tokenizer.encode("abc bca<s>")) == "abc bca<s>"
    assert tokenizer.n_vocab == 1002
    assert tokenizer.vocab == dict(sorted((vocab | {1001: b"<s>"}).items()))
    with pytest.raises(KeyError, match="2"):
        tokenizer.decode([1, 2])


def test_an_unreachable_token_is_decoded_but_never_encoded() -> None:
    tokenizer = bytemill.Tokenizer(BYTES | {256: b"ab"}, [])
    assert tokenizer.encode("ab") == [97, 98]
    assert tokenizer.decode([256]) == "ab"
    assert tokenizer.encode_single_token(b"ab") == 256


def test_ignore_merges_looks_up_whole_pretokens() -> None:
    spec = TokenizerSpec(
        pattern="gpt2",
        special_tokens={},
        vocab=BYTES | {256: b"ab", 257: b"abc"},
        merges=[(b"a", b"b")],
        ignore_merges=True,
    )
    tokenizer = bytemill.Tokenizer.from_spec(spec)
    assert tokenizer.encode("abc") == [257]
    assert tokenizer.encode("abcc abc") == [256, 99, 99, 32, 256, 99]


def test_the_merge_of_lower_rank_comes_first() -> None:
    vocab = BYTES | {256: b"bc", 257: b"ab", 258: b"aa"}
    tokenizer = bytemill.Tokenizer(vocab, [(b"b", b"c"), (b"a", b"b"), (b"a", b"a")])
    assert tokenizer.encode("abc") == [97, 256]
    assert tokenizer.encode("aaab") == [258, 257]
    assert tokenizer.encode("aaa") == [258, 97]
