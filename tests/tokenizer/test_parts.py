"""The parts of a tokenizer: sizes, parts that contradict each other, and copies with the same parts."""

import copy
import pickle
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import bytemill
from bytemill.errors import TokenizerError
from bytemill.formats.spec import TokenFlags, TokenizerSpec

BYTES = {byte: bytes([byte]) for byte in range(256)}
RANKS = {token: byte for byte, token in BYTES.items()}


def test_sizes() -> None:
    trained = bytemill.train_from_iterator(["low low lower lowest"], vocab_size=260, special_tokens=["<e>"])
    assert len(trained) == trained.vocab_size == trained.n_vocab == trained.get_vocab_size() == 260
    with_gaps = bytemill.Tokenizer(BYTES, [], {"<e>": 300})
    assert (len(with_gaps), with_gaps.vocab_size, with_gaps.n_vocab) == (257, 257, 301)


def test_special_tokens_are_left_out_of_decoded_text_on_request() -> None:
    tokenizer = bytemill.Tokenizer(BYTES, [], ["<a>", "<b>"])
    ids = tokenizer.encode("<a>hi<b>é")
    for kind in (ids, tuple(ids), np.array(ids, dtype=np.uint16)):
        assert tokenizer.decode(kind) == "<a>hi<b>é"
        assert tokenizer.decode(kind, skip_special_tokens=True) == "hié"
        assert tokenizer.decode_batch([kind, []], skip_special_tokens=True) == ["hié", ""]
    # Tokens that a file does not mark as special stay.
    spec = replace(tokenizer.to_spec(), flags={"<a>": TokenFlags(special=False)})
    assert bytemill.Tokenizer.from_spec(spec).decode(ids, skip_special_tokens=True) == "<a>hié"


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
    ("ranks", "message"),
    [
        (RANKS | {b"ab": 97}, r"rank 97 belongs to two tokens"),
        (RANKS | {b"": 256}, r"empty"),
        (RANKS | {b"ab": -1}, r"-1"),
        (RANKS | {b"ab": 1 << 33}, str(1 << 33)),
        (RANKS | {b"ab": (1 << 32) - 1}, r"out of all proportion"),
        ({token: rank - 1 for token, rank in RANKS.items() if rank}, r"the byte b\"\\x00\" is no token"),
    ],
)
def test_ranks_that_contradict_each_other_are_refused(ranks: dict[bytes, int], message: str) -> None:
    with pytest.raises(TokenizerError, match=message):
        bytemill.Tokenizer.from_spec(TokenizerSpec(pattern="gpt2", special_tokens={}, ranks=ranks))


@pytest.mark.parametrize(
    ("vocab", "merges"),
    [
        *((None, []), (BYTES, None), (BYTES | {256: "ab"}, []), (BYTES | {256: None}, [])),
        *((BYTES | {256: b"ab"}, merges) for merges in ([("a", "b")], [b"ab"], [5], [(b"a", b"b", b"c")])),
    ],
)
def test_tokens_and_merges_of_other_types_are_an_error(vocab: Any, merges: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        bytemill.Tokenizer(vocab, merges)


def test_ids_need_not_be_byte_values_nor_dense() -> None:
    vocab = {3 * (255 - byte): bytes([byte]) for byte in range(256)} | {7: b"ab", 1000: b"abc", 1: b"bc"}
    tokenizer = bytemill.Tokenizer(vocab, [(b"a", b"b"), (b"ab", b"c"), (b"b", b"c")], ["<s>"])
    assert tokenizer.encode("abc bca<s>") == [1000, 3 * (255 - 32), 1, 3 * (255 - 97), 1001]
    assert tokenizer.decode(tokenizer.encode("abc bca<s>")) == "abc bca<s>"
    assert tokenizer.n_vocab == 1002
    assert tokenizer.vocab == dict(sorted((vocab | {1001: b"<s>"}).items()))
    with pytest.raises(KeyError, match="2"):
        tokenizer.decode([1, 2])


def test_the_merge_of_lower_rank_comes_first() -> None:
    vocab = BYTES | {256: b"bc", 257: b"ab", 258: b"aa"}
    tokenizer = bytemill.Tokenizer(vocab, [(b"b", b"c"), (b"a", b"b"), (b"a", b"a")])
    assert tokenizer.encode("abc") == [97, 256]
    assert tokenizer.encode("aaab") == [258, 257]
    assert tokenizer.encode("aaa") == [258, 97]


# Pickles, copies and specs are the same tokenizer

END = "<|endoftext|>"
TEXT = f"the fox's 12345 foxes,\n\n  é 今日 abcd abc ab a<s>b {END}{END} internationalization aaaa <b>ab"


def from_ranks(*tokens: bytes) -> bytemill.Tokenizer:
    ranks = {token: i for i, token in enumerate([*BYTES.values(), *tokens])}
    return bytemill.Tokenizer.from_spec(
        TokenizerSpec(pattern="cl100k", special_tokens={END: 1000, "<s>": 999}, ranks=ranks)
    )


def from_merges(**options: object) -> bytemill.Tokenizer:
    return bytemill.Tokenizer.from_spec(
        TokenizerSpec(
            pattern="gpt2",
            special_tokens={},
            vocab=BYTES | {256: b"ab", 257: b"abc", 258: b"abcd"},
            **options,  # type: ignore[arg-type]
        )
    )


TOKENIZERS: dict[str, Callable[[], bytemill.Tokenizer]] = {
    "trained": lambda: bytemill.train_from_iterator([TEXT], vocab_size=280, special_tokens=[END, "<s>"]),
    "special tokens first": lambda: bytemill.train_from_iterator(
        iter([TEXT]), vocab_size=280, special_tokens=[END, "<s>"], special_ids="first", ties="huggingface"
    ),
    "no pattern": lambda: bytemill.Tokenizer(BYTES | {256: b"a "}, [(b"a", b" ")], [END], pattern=None),
    "own pattern": lambda: bytemill.Tokenizer(
        BYTES | {256: b"ab"}, [(b"a", b"b")], [END], pattern=bytemill.Pattern.regex(r"\w+|\W")
    ),
    "special token in the vocabulary": lambda: bytemill.Tokenizer(BYTES | {300: b"<s>"}, [], ["<s>", END]),
    "a byte is special": lambda: bytemill.Tokenizer(BYTES | {256: b"ab"}, [(b"a", b"b")], ["a", END]),
    "the result of a merge is special": lambda: bytemill.Tokenizer(
        BYTES | {256: b"ab", 257: b"abc"}, [(b"a", b"b"), (b"ab", b"c")], ["ab"]
    ),
    "special and ordinary token of the same bytes": lambda: bytemill.Tokenizer(
        BYTES | {256: b"ab"}, [(b"a", b"b")], {"ab": 400}
    ),
    "a token that nothing makes": lambda: bytemill.Tokenizer(BYTES | {256: b"ab"}, []),
    "ranks that merges make": lambda: from_ranks(b"ab", b"abc", b"abcd"),
    "ranks that no merges make": lambda: from_ranks(b"abcd", b"ab", b"cd"),
    "whole words looked up": lambda: from_merges(merges=[(b"a", b"b")], ignore_merges=True),
    "whole words looked up without merges": lambda: from_merges(merges=[], ignore_merges=True),
}


def assert_same(one: bytemill.Tokenizer, other: bytemill.Tokenizer) -> None:
    for encode in (bytemill.Tokenizer.encode, bytemill.Tokenizer.encode_ordinary):
        assert encode(one, TEXT) == encode(other, TEXT)
    assert one.decode(one.encode(TEXT)) == other.decode(other.encode(TEXT)) == TEXT
    facts = "vocab merges special_tokens pattern n_vocab fingerprint ties merge_counts"
    for fact in facts.split():
        assert getattr(one, fact) == getattr(other, fact), fact
    assert one.core.dtype == other.core.dtype
    assert one.core.ignore_merges == other.core.ignore_merges
    assert repr(one) == repr(other)


@pytest.mark.parametrize("name", TOKENIZERS)
def test_pickles_copies_and_specs_are_the_same_tokenizer(name: str) -> None:
    ours = TOKENIZERS[name]()
    for protocol in (2, pickle.HIGHEST_PROTOCOL):
        assert_same(ours, pickle.loads(pickle.dumps(ours, protocol)))  # noqa: S301
    assert_same(ours, copy.deepcopy(ours))
    assert_same(ours, copy.copy(ours))
    spec = ours.to_spec()
    assert (spec.merges is None) != (spec.ranks is None)
    again = bytemill.Tokenizer.from_spec(spec)
    assert_same(ours, again)
    assert again.to_spec() == spec


def test_a_subclass_stays_one() -> None:
    copied = copy.deepcopy(Subclass(BYTES, [], [END]))
    assert type(copied) is Subclass
    assert copied.encode(END) == [256]


class Subclass(bytemill.Tokenizer):
    pass


def test_a_tokenizer_can_be_sent_to_another_process() -> None:
    ours = TOKENIZERS["trained"]()
    script = "import pickle, sys; print(pickle.load(sys.stdin.buffer).encode(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", script, TEXT],
        input=pickle.dumps(ours),
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.decode().strip() == str(ours.encode(TEXT))
