"""Pickles, copies and specs are the same tokenizer."""

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable

import pytest

import bytemill
from bytemill.formats.spec import TokenizerSpec

END = "<|endoftext|>"
BYTES = {byte: bytes([byte]) for byte in range(256)}
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
