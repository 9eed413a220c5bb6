"""`bytemill.compat.tiktoken.Encoding` behaves like tiktoken's, errors included."""

import copy
import inspect
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import tiktoken
from hypothesis import given
from hypothesis import strategies as st

from bytemill import TokenizerError
from bytemill.compat import tiktoken as ours
from bytemill.errors import SpecialTokenError

from .conftest import PIECES, RANKS, SPECIAL, Pair, toy

TOY = toy(r"\w+|\s+")


def outcome(call: Callable[[], Any]) -> tuple[str, Any]:
    try:
        return "gives", call()
    except Exception as error:
        return "raises", error


def assert_same(pair: Pair, call: Callable[[Any], Any]) -> None:
    (how, expected), (our_how, found) = outcome(lambda: call(pair.theirs)), outcome(lambda: call(pair.ours))
    assert our_how == how, (expected, found)
    if how == "gives":
        assert type(found) is type(expected)
        assert found == expected
        return
    assert isinstance(found, type(expected)), (expected, found)
    if isinstance(expected, UnicodeError):
        assert found.args == expected.args


BEHAVIOURS: dict[str, Callable[[Any], Any]] = {
    # Special tokens
    "a special token is refused": lambda enc: enc.encode("a<x>b"),
    "none is there": lambda enc: enc.encode("cde fgh"),
    "allowed by name": lambda enc: enc.encode("a<x>b", allowed_special={"<x>"}),
    "another one is still refused": lambda enc: enc.encode("a<x>b<y>", allowed_special={"<x>"}),
    "all allowed": lambda enc: enc.encode("a<x>b<y>12", allowed_special="all"),
    "all allowed, some refused": lambda enc: enc.encode(
        "a<x>", allowed_special="all", disallowed_special={"<x>"}
    ),
    "all allowed, all refused": lambda enc: enc.encode(
        "a<x>", allowed_special="all", disallowed_special="all"
    ),
    "as plain text": lambda enc: enc.encode("a<x>b", disallowed_special=()),
    "some as plain text": lambda enc: enc.encode(
        "<x><y>", allowed_special={"<x>"}, disallowed_special=(enc.special_tokens_set - {"<y>", "<x>"})
    ),
    "others refused": lambda enc: enc.encode("a<x>b", disallowed_special={"<y>"}),
    "any string can be refused": lambda enc: enc.encode("what", disallowed_special={"hat"}),
    "also inside a special token": lambda enc: enc.encode(
        "<x>", allowed_special="all", disallowed_special={"x"}
    ),
    "a list of the refused": lambda enc: enc.encode("a<x>", disallowed_special=["<x>"]),
    "a dictionary of the refused": lambda enc: enc.encode("a<x>", disallowed_special={"<y>": 1}),
    "characters of a str refused": lambda enc: enc.encode("xyz", disallowed_special="za"),
    "an empty string refused": lambda enc: enc.encode("xyz", disallowed_special={""}),
    "nothing refused by None": lambda enc: enc.encode("a<x>", disallowed_special=None),
    "numbers refused": lambda enc: enc.encode("a<x>", disallowed_special={5}),
    "unknown ones allowed": lambda enc: enc.encode("a<z>", allowed_special={"<z>"}, disallowed_special=()),
    "a frozen set allowed": lambda enc: enc.encode("<x>", allowed_special=frozenset({"<x>"})),
    "a list allowed": lambda enc: enc.encode("<x>", allowed_special=["<x>"]),
    "a list allowed, none refused": lambda enc: enc.encode(
        "<x>", allowed_special=["<x>"], disallowed_special=()
    ),
    "keys allowed": lambda enc: enc.encode("<x>", allowed_special={"<x>": 1}.keys()),
    "a str that is not 'all'": lambda enc: enc.encode("<x>", allowed_special="none"),
    "a str that is not 'all', none refused": lambda enc: enc.encode(
        "<x>", allowed_special="none", disallowed_special=()
    ),
    "None allowed": lambda enc: enc.encode("<x>", allowed_special=None),
    "numbers allowed": lambda enc: enc.encode("<x>", allowed_special={5}, disallowed_special=()),
    "ordinary": lambda enc: enc.encode_ordinary("a<x> b"),
    "a special token that is an ordinary one too": lambda enc: (
        enc.encode("x12", allowed_special={"12"}, disallowed_special=()),
        enc.encode("12", disallowed_special=()),
        enc.encode_single_token("12"),
        enc.is_special_token(enc.encode_single_token("12")),
    ),
    # Texts
    "empty": lambda enc: enc.encode(""),
    "what the pattern does not match": lambda enc: enc.encode_ordinary("ab!!ab ??"),
    "lone surrogates": lambda enc: enc.encode("a\ud800b"),
    "surrogate pairs": lambda enc: enc.encode_ordinary("a\ud83d\ude00b"),
    "no text": lambda enc: enc.encode(5),
    "bytes as text": lambda enc: enc.encode(b"ab"),
    "bytes as ordinary text": lambda enc: enc.encode_ordinary(b"ab"),
    "bytes with nothing refused": lambda enc: enc.encode(b"ab", disallowed_special=()),
    # Arrays
    "an array": lambda enc: enc.encode_to_numpy("ab ab").tolist(),
    "an empty array": lambda enc: enc.encode_to_numpy("").shape,
    "its type": lambda enc: enc.encode_to_numpy("ab").dtype,
    "it cannot be written to": lambda enc: enc.encode_to_numpy("ab").flags.writeable,
    "an array of a refused token": lambda enc: enc.encode_to_numpy("<x>"),
    "an array of an allowed token": lambda enc: enc.encode_to_numpy("<x>", allowed_special={"<x>"}).tolist(),
    "an array of surrogates": lambda enc: enc.encode_to_numpy("a\ud800b"),
    # Batches
    "a batch": lambda enc: enc.encode_batch(["ab", "", "b c"]),
    "an ordinary batch": lambda enc: enc.encode_ordinary_batch(["ab<x>", ""]),
    "a batch with a refused token": lambda enc: enc.encode_batch(["ab", "<x>"]),
    "a batch with an allowed token": lambda enc: enc.encode_batch(["a", "<x>"], allowed_special={"<x>"}),
    "a batch with all allowed": lambda enc: enc.encode_batch(["a", "<x>"], allowed_special="all"),
    "a batch as plain text": lambda enc: enc.encode_batch(["a", "<x>"], disallowed_special=()),
    "a batch of the letters of a str": lambda enc: enc.encode_batch("abc"),
    "a batch from a generator": lambda enc: enc.encode_batch(text for text in ("ab", "c")),
    "a batch of no texts": lambda enc: enc.encode_batch([]),
    "a batch with a number": lambda enc: enc.encode_batch(["a", 5]),
    "a number as a batch": lambda enc: enc.encode_batch(5),
    "a batch on one thread": lambda enc: enc.encode_batch(["ab", "b"], num_threads=1),
    "a batch on no thread": lambda enc: enc.encode_batch(["ab"], num_threads=0),
    "an ordinary batch on no thread": lambda enc: enc.encode_ordinary_batch(["ab"], num_threads=-1),
    "a batch on many threads": lambda enc: enc.encode_batch(["ab"], num_threads=5000),
    "a batch with None refused": lambda enc: enc.encode_batch(["ab"], disallowed_special=None),
    # Single tokens
    "a token": lambda enc: enc.encode_single_token("ab"),
    "a token by its bytes": lambda enc: enc.encode_single_token(b"a\xc3"),
    "a special token": lambda enc: enc.encode_single_token("<x>"),
    "a special token by its bytes": lambda enc: enc.encode_single_token(b"<x>"),
    "no token": lambda enc: enc.encode_single_token("zzz"),
    "no token by bytes": lambda enc: enc.encode_single_token(b"\xff\xff"),
    "a token with a surrogate": lambda enc: enc.encode_single_token("\ud800"),
    "a token from an array of bytes": lambda enc: enc.encode_single_token(bytearray(b"ab")),
    "a number as a token": lambda enc: enc.encode_single_token(5),
    # Decoding
    "decode": lambda enc: enc.decode([256, 300, 32, 0xC3]),
    "decode strictly": lambda enc: enc.decode([0xC3], errors="strict"),
    "decode with another handler": lambda enc: enc.decode([0xC3, 97], "ignore"),
    "decode with no handler": lambda enc: enc.decode([0xC3], errors="nonsense"),
    "decode nothing": lambda enc: (enc.decode([]), enc.decode_bytes([])),
    "decode bytes": lambda enc: enc.decode_bytes([256, 0xC3]),
    "decode a tuple": lambda enc: enc.decode((97, 98)),
    "decode a range": lambda enc: enc.decode(range(97, 100)),
    "decode an array": lambda enc: enc.decode(np.array([97, 256], dtype=np.uint32)),
    "decode bytes as ids": lambda enc: enc.decode(b"ab"),
    "decode numbers of numpy": lambda enc: enc.decode([np.int64(97)]),
    "decode a bool": lambda enc: enc.decode([True]),
    "decode an unknown id": lambda enc: enc.decode([97, 290]),
    "decode an unknown id to bytes": lambda enc: enc.decode_bytes([1 << 31]),
    "decode a negative id": lambda enc: enc.decode([-1]),
    "decode an id that is too large": lambda enc: enc.decode_bytes([1 << 40]),
    "decode a str": lambda enc: enc.decode("ab"),
    "decode a list of str": lambda enc: enc.decode(["ab"]),
    "decode a float": lambda enc: enc.decode([97.0]),
    "decode a number": lambda enc: enc.decode(97),
    "decode a generator": lambda enc: enc.decode(i for i in [97]),
    "decode a set": lambda enc: enc.decode({97}),
    "decode one": lambda enc: enc.decode_single_token_bytes(256),
    "decode one that is special": lambda enc: enc.decode_single_token_bytes(300),
    "decode one unknown": lambda enc: enc.decode_single_token_bytes(290),
    "decode one negative": lambda enc: enc.decode_single_token_bytes(-1),
    "decode one that is too large": lambda enc: enc.decode_single_token_bytes(1 << 40),
    "decode one str": lambda enc: enc.decode_single_token_bytes("a"),
    "decode each": lambda enc: enc.decode_tokens_bytes([256, 300, 0xC3]),
    "decode each from a generator": lambda enc: enc.decode_tokens_bytes(i for i in [97]),
    "decode each unknown": lambda enc: enc.decode_tokens_bytes([97, 290]),
    "decode a batch": lambda enc: enc.decode_batch([[97], [0xC3], []]),
    "decode a batch strictly": lambda enc: enc.decode_batch([[97], [0xC3]], errors="strict"),
    "decode a batch unknown": lambda enc: enc.decode_batch([[97], [290]]),
    "decode a batch on no thread": lambda enc: enc.decode_batch([[97]], num_threads=0),
    "decode a batch to bytes": lambda enc: enc.decode_bytes_batch([[97], [0xC3], []]),
    "decode a batch to bytes on no thread": lambda enc: enc.decode_bytes_batch([], num_threads=0),
    # Offsets
    "offsets": lambda enc: enc.decode_with_offsets([256, 32, 300]),
    "offsets inside characters": lambda enc: enc.decode_with_offsets([97, 0xC3, 0xA9, 266, 0xA9, 267, 0x97]),
    "offsets of no text": lambda enc: enc.decode_with_offsets([0xA9, 97]),
    "offsets of nothing": lambda enc: enc.decode_with_offsets([]),
    "offsets of the unknown": lambda enc: enc.decode_with_offsets([290]),
    # Facts
    "all tokens": lambda enc: enc.token_byte_values(),
    "the end of text": lambda enc: enc.eot_token,
    "the special tokens": lambda enc: enc.special_tokens_set,
    "is special": lambda enc: [enc.is_special_token(i) for i in (300, 303, 256, 290, -1, True)],
    "is a str special": lambda enc: enc.is_special_token("<x>"),
    "is a number of numpy special": lambda enc: enc.is_special_token(np.int64(300)),
    "sizes": lambda enc: (enc.n_vocab, enc.max_token_value),
    "name": lambda enc: (enc.name, repr(enc)),
    "what encodings are extended by": lambda enc: (enc._pat_str, enc._mergeable_ranks, enc._special_tokens),
}


@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_results_and_exceptions_are_those_of_tiktoken(behaviour: str) -> None:
    assert_same(TOY, BEHAVIOURS[behaviour])


def test_public_names_and_signatures_are_those_of_tiktoken() -> None:
    def described(value: Any) -> Any:
        if not callable(value):
            return "property"
        return [
            (
                name,
                parameter.kind,
                "empty" if parameter.default in (set(), frozenset()) else parameter.default,
            )
            for name, parameter in inspect.signature(value).parameters.items()
        ]

    names = [name for name in dir(tiktoken.Encoding) if not name.startswith("_")]
    assert len(names) > 15
    for name in ["__init__", *names]:
        assert described(getattr(ours.Encoding, name)) == described(getattr(tiktoken.Encoding, name)), name


def test_the_error_for_a_disallowed_token_has_a_hint() -> None:
    with pytest.raises(SpecialTokenError, match="'<x>' at character 1") as caught:
        TOY.ours.encode("a<x>b")
    assert isinstance(caught.value, ValueError)
    assert caught.value.hint is not None
    assert "allowed_special={'<x>'}" in caught.value.hint
    assert "disallowed_special=()" in caught.value.hint


def test_eot_token_raises_without_an_end_of_text_token() -> None:
    parts: dict[str, Any] = {"pat_str": ".+", "mergeable_ranks": RANKS, "special_tokens": {}}
    pair = Pair(ours.Encoding("t", **parts), tiktoken.Encoding("t", **parts))
    assert_same(pair, lambda enc: enc.eot_token)
    assert_same(pair, lambda enc: (enc.n_vocab, enc.special_tokens_set))
    assert_same(pair, lambda enc: enc.encode("<|endoftext|>", allowed_special="all"))


@pytest.mark.parametrize(
    "parts",
    [
        {"pat_str": "("},
        {"explicit_n_vocab": 5},
        {"explicit_n_vocab": len(RANKS) + len(SPECIAL)},
        {"special_tokens": {}, "explicit_n_vocab": len(RANKS)},
        {"special_tokens": {}, "explicit_n_vocab": 0},
        {"name": "other"},
    ],
)
def test_the_constructor_accepts_tiktokens_arguments(parts: dict[str, Any]) -> None:
    parts = {"name": "t", "pat_str": ".+", "mergeable_ranks": RANKS, "special_tokens": SPECIAL} | parts
    how, expected = outcome(lambda: tiktoken.Encoding(**parts))
    our_how, found = outcome(lambda: ours.Encoding(**parts))
    assert our_how == how
    assert how == "gives" or isinstance(found, type(expected))


def test_constructor_arguments_are_keyword_only() -> None:
    with pytest.raises(TypeError):
        ours.Encoding("t", ".+", RANKS, {})  # type: ignore[misc]


@pytest.mark.parametrize(
    "ranks",
    [{b"a": 0, b"b": 1}, RANKS | {b"": 500}, RANKS | {b"zz": 97}],
    ids=["no bytes", "an empty token", "one rank twice"],
)
def test_tiktokens_panics_are_errors(ranks: dict[bytes, int]) -> None:
    with pytest.raises(TokenizerError):
        ours.Encoding("t", pat_str=".+", mergeable_ranks=ranks, special_tokens={})


def test_pat_str_is_never_taken_for_a_pattern_name() -> None:
    assert_same(toy("gpt2"), lambda enc: enc.encode_ordinary("a gpt2 b"))


# Copies


def test_pickles_and_copies_are_the_same_encoding() -> None:
    pickled = pickle.loads(pickle.dumps(TOY.ours))  # noqa: S301
    for behaviour in BEHAVIOURS.values():
        assert_same(Pair(pickled, TOY.theirs), behaviour)
    for again in (pickled, copy.copy(TOY.ours), copy.deepcopy(TOY.ours)):
        assert again is not TOY.ours
        assert again.name == "toy"
        assert again.encode_ordinary("ab!!ab") == TOY.theirs.encode_ordinary("ab!!ab")


def test_an_encoding_is_thread_safe() -> None:
    texts = [f"ab {'c' * n} abc\n\n字" * (1 + n % 50) for n in range(200)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(TOY.ours.encode, texts, timeout=60))
    assert found == [TOY.theirs.encode(text) for text in texts]


# Properties

TEXT_PIECES = [*PIECES, "\ud800"]
PATTERNS = [
    r"\w+|\s+", r"\w+", r"(?s).+", r".", r"\p{L}+|\p{N}| ?[^\s\p{L}]+", r"a+?|b(?!\s)|(?<=a)\s+",
    r"(?i)AB|\s+$", r"[^a]+?(?=b)|a",
]  # fmt: skip


@given(
    pattern=st.sampled_from(PATTERNS),
    pieces=st.lists(st.sampled_from(TEXT_PIECES), max_size=20),
    allowed=st.sampled_from(["all", frozenset(), frozenset({"<x>"}), frozenset({"<y>", "12", "nothing"})]),
    disallowed=st.sampled_from(["all", (), ("<y>",), ("!", "a"), frozenset({"<x>", "<|endoftext|>"})]),
)
def test_any_text_with_any_options_has_tiktokens_ids(
    pattern: str, pieces: list[str], allowed: Any, disallowed: Any
) -> None:
    text, options = "".join(pieces), {"allowed_special": allowed, "disallowed_special": disallowed}
    pair = toy(pattern)
    assert_same(pair, lambda enc: enc.encode(text, **options))
    assert_same(pair, lambda enc: enc.encode_batch([text, "", text], **options))
    assert_same(pair, lambda enc: enc.encode_to_numpy(text, **options).tolist())
    assert_same(pair, lambda enc: enc.encode_ordinary(text))


@given(ids=st.lists(st.sampled_from([*range(97, 100), *range(0xC0, 0xC5), 0xA9, *range(256, 274), 300, 302])))
def test_any_ids_have_tiktokens_bytes_texts_and_offsets(ids: list[int]) -> None:
    for call in ("decode", "decode_bytes", "decode_with_offsets", "decode_tokens_bytes"):
        assert_same(TOY, lambda enc, call=call: getattr(enc, call)(ids))
