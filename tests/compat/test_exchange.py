"""`Tokenizer.from_tiktoken` and `to_tiktoken` keep the ids or refuse with the reason."""

import pickle
import subprocess
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pytest
import tiktoken
from hypothesis import given
from hypothesis import strategies as st

from bytemill import Tokenizer, TokenizerError
from bytemill._core import NAMED_PATTERNS
from bytemill.compat import tiktoken as compat
from bytemill.errors import MissingExtraError
from bytemill.formats.tiktoken_patterns import pattern_from, pattern_to
from tests.support.patterns import as_pattern

from .conftest import BYTES, PIECES, RANKS, SPECIAL, Pair, toy

TEXT_PIECES = [*PIECES, "abc", "\r"]
TEXTS = st.lists(st.sampled_from(TEXT_PIECES), max_size=20).map("".join)
COVERING = [
    "(?s:.+)", r"[\s\S]", r"\w+|\s+|[^\w\s]+", r" ?\w+|\s+(?!\S)|\s+$|\s|\W",
    r"a+?|b(?!\s)|(?<=a)\s+|\S|\s", NAMED_PATTERNS["llama3"],
]  # fmt: skip
OURS = [
    None, "gpt2", "cl100k", "o200k", "llama3", r"\w+", r"\w+|\s+", "!", "a+?b|(?<=a)b", r"\s+(?!\S)|ab",
    r"(?i:AB)+",
]  # fmt: skip


def encoding(
    ranks: dict[bytes, int] = RANKS, special: dict[str, int] = SPECIAL, pattern: str = "(?s:.+)"
) -> Any:
    return tiktoken.Encoding("t", pat_str=pattern, mergeable_ranks=ranks, special_tokens=special)


@pytest.mark.parametrize("name", ["gpt2", pytest.param("cl100k_base", marks=pytest.mark.slow)])
def test_published_encodings_convert_both_ways(published: Callable[[str], Pair], name: str) -> None:
    theirs = published(name).theirs
    ours = Tokenizer.from_tiktoken(theirs)
    assert ours.name == name
    assert (ours.n_vocab, ours.max_token_value, ours.eot_token) == (
        theirs.n_vocab,
        theirs.max_token_value,
        theirs.eot_token,
    )
    back = ours.to_tiktoken()
    assert back.name == name
    for part in ("_mergeable_ranks", "_special_tokens"):
        assert getattr(back, part) == getattr(theirs, part)
    for text in ("Hello wörld, 今日は!\n\n  x = 12345", "<|endoftext|>fim  ", "\r\n \t", "e\u0301" * 30):
        ids = theirs.encode(text, allowed_special="all")
        assert ours.encode(text) == ids
        assert back.encode(text, allowed_special="all") == ids


@given(pattern=st.sampled_from(COVERING), text=TEXTS)
def test_encodings_whose_pattern_covers_all_text_convert_both_ways(pattern: str, text: str) -> None:
    theirs = toy(pattern).theirs
    ours = from_tiktoken(pattern)
    ids = theirs.encode(text, allowed_special="all")
    assert ours.encode(text) == ids
    assert ours.encode_ordinary(text) == theirs.encode_ordinary(text)
    assert to_tiktoken(pattern).encode(text, allowed_special="all") == ids


@lru_cache
def from_tiktoken(pattern: str) -> Tokenizer:
    return Tokenizer.from_tiktoken(toy(pattern).theirs)


@lru_cache
def to_tiktoken(pattern: str) -> Any:
    return from_tiktoken(pattern).to_tiktoken()


MERGES = [
    (b"a", b"b"),
    (b" ", b"a"),
    (b" ", b"ab"),
    (b"ab", b"c"),
    (b"\xc3", b"\xa9"),
    (b"a", b"a"),
    (b"aa", b"aa"),
]
VOCAB = dict(enumerate([*BYTES, *(left + right for left, right in MERGES)]))


@lru_cache
def here_and_there(pattern: str | None) -> tuple[Tokenizer, Any]:
    ours = Tokenizer(VOCAB, MERGES, ["<x>", "<|endoftext|>"], pattern=as_pattern(pattern))
    return ours, ours.to_tiktoken()


@given(pattern=st.sampled_from(OURS), text=TEXTS)
def test_tokenizers_with_any_pattern_convert_to_tiktoken_and_back(pattern: str | None, text: str) -> None:
    ours, theirs = here_and_there(pattern)
    ids = ours.encode(text)
    assert theirs.encode(text, allowed_special="all") == ids
    assert theirs.encode_ordinary(text) == ours.encode_ordinary(text)
    assert pattern_from(theirs._pat_str) == ours.pattern  # pyright: ignore[reportPrivateUsage]
    assert theirs.name == ours.name


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({"pattern": r"[^!\s]+|\s+"}, r"no plain alternative matches U\+0021"),
        ({"pattern": r"\w+"}, r"no plain alternative matches U\+0000"),
        ({"pattern": r"."}, r"no plain alternative matches U\+000A"),
        ({"pattern": r"a*|\s|\S"}, "empty string"),
        ({"pattern": r"(a)\1|\s|\S"}, r"1"),
        ({"ranks": {b"a": 0, b"b": 1}, "special": {}}, "all bytes of UTF-8 must be"),
        ({"special": {"<q>": 97}}, "the id 97 belongs to two tokens"),
        ({"special": {"<x>": 300, "<y>": 300}}, "the id 300 belongs to two tokens"),
    ],
)
def test_encodings_without_an_equivalent_tokenizer_are_refused(parts: dict[str, Any], reason: str) -> None:
    with pytest.raises(TokenizerError, match=reason):
        Tokenizer.from_tiktoken(encoding(**parts))


def test_special_tokens_that_tiktoken_matches_differently_are_refused() -> None:
    # Which one does is decided by a hash table: with these names it is the one and the other.
    shorter, longer = {"<a>": 400, "<a><a>": 401}, {"xy": 400, "xyz": 401}
    how = [
        encoding(special=special).encode(max(special), allowed_special="all") == [401]
        for special in (shorter, longer)
    ]
    assert how == [False, True]
    for make in (
        lambda special: Tokenizer.from_tiktoken(encoding(special=special)),
        lambda special: Tokenizer(VOCAB, MERGES, special).to_tiktoken(),
    ):
        with pytest.raises(TokenizerError, match="'<a><a>' begins with '<a>'"):
            make(shorter)
        assert make(longer).encode("xyzxy", allowed_special="all") == [401, 400]


@pytest.mark.parametrize(
    ("tokens", "merges", "pattern", "reason"),
    [
        ([b"cd", b"ab"], [(b"a", b"b"), (b"c", b"d")], None, "do not follow the order"),
        ([b"ab", b"bc", b"abc"], [(b"a", b"b"), (b"b", b"c"), (b"a", b"bc")], None, "ranks merge token"),
        ([b"abcc"], [], None, "no merge produces token"),
        ([], [], "a*", "empty string"),
        ([], [], r"(?<x>a)b", "cannot be extended to match all text"),
    ],
)
def test_tokenizers_without_an_equivalent_encoding_are_refused(
    tokens: list[bytes], merges: list[tuple[bytes, bytes]], pattern: str | None, reason: str
) -> None:
    vocab = dict(enumerate([*BYTES, *tokens]))
    with pytest.raises(TokenizerError, match=reason):
        Tokenizer(vocab, merges, pattern=as_pattern(pattern)).to_tiktoken()


def test_ranks_without_equivalent_merges_convert_both_ways() -> None:
    tokens = [b"abcd", b"bc", b"ab", b"cd", b"aaaa", b"aa"]
    theirs = encoding(BYTES | {token: 256 + i for i, token in enumerate(tokens)}, {"<x>": 500})
    ours = Tokenizer.from_tiktoken(theirs)
    back = ours.to_tiktoken()
    for text in (
        "abcd", "xabcd", "abcdabcd", "ab cd", "aaaa", "aaaaa", "aaaaaaaa", "abcd<x>ab cd", "abc" * 300,
        "a" * 1001,
    ):  # fmt: skip
        ids = theirs.encode(text, allowed_special="all")
        assert ours.encode(text) == back.encode(text, allowed_special="all") == ids
        assert ours.decode(ids) == text


def test_other_objects_raise_a_type_error() -> None:
    with pytest.raises(TypeError, match="expected a tiktoken Encoding, not str"):
        Tokenizer.from_tiktoken("gpt2")  # type: ignore[arg-type]


def test_a_pattern_name_is_an_expression_to_tiktoken() -> None:
    for pattern in NAMED_PATTERNS:
        assert pattern_from(pattern) != pattern
    assert pattern_from(pattern_to(r"\w")) == r"\w"
    assert pattern_from(pattern_to(None)) is None


def test_copies_keep_the_name() -> None:
    ours = Tokenizer.from_tiktoken(encoding())
    assert ours.name == pickle.loads(pickle.dumps(ours)).name == "t"  # noqa: S301
    unnamed = Tokenizer(VOCAB, MERGES)
    assert unnamed.name == f"bytemill-{unnamed.fingerprint[:12]}"


# Views


@given(text=TEXTS)
def test_a_view_of_a_tokenizer_refuses_what_tiktoken_refuses(text: str) -> None:
    ours, theirs = here_and_there("gpt2")
    view = compat.Encoding.from_tokenizer(ours)
    assert view.name == theirs.name
    assert view.tokenizer is ours
    assert view.encode(text, allowed_special="all") == theirs.encode(text, allowed_special="all")
    if "<x>" in text or "<|endoftext|>" in text:
        with pytest.raises(ValueError, match="disallowed"):
            view.encode(text)
    else:
        assert view.encode(text) == theirs.encode(text)


def test_a_view_has_the_parts_of_an_encoding() -> None:
    for pattern in (None, "gpt2", r"\w+"):
        ours = Tokenizer(VOCAB, MERGES, ["<x>"], pattern=as_pattern(pattern))
        view, theirs = compat.Encoding.from_tokenizer(ours), ours.to_tiktoken()
        for part in ("_pat_str", "_mergeable_ranks", "_special_tokens"):
            assert getattr(view, part) == getattr(theirs, part)
        assert Tokenizer.from_tiktoken(view).fingerprint == ours.fingerprint
        again = pickle.loads(pickle.dumps(view))  # noqa: S301
        assert (again.name, again.tokenizer.fingerprint) == (view.name, ours.fingerprint)


def test_a_view_made_from_parts_is_a_tokenizer_if_one_exists() -> None:
    pair = toy("(?s:.+)")
    assert pair.ours.tokenizer.encode("ab<x>") == [256, 300]
    assert pair.ours.tokenizer.name == "toy"
    with pytest.raises(TokenizerError, match="no plain alternative matches"):
        _ = toy(r"\w+").ours.tokenizer


# Without tiktoken


def test_nothing_but_to_tiktoken_needs_tiktoken() -> None:
    script = """
import sys
sys.modules["tiktoken"] = None
import bytemill
from bytemill.compat import tiktoken
tok = bytemill.Tokenizer({i: bytes([i]) for i in range(256)}, [], ["<x>"])
assert tiktoken.Encoding.from_tokenizer(tok).encode("<x>", disallowed_special=()) == list(b"<x>")
try:
    tok.to_tiktoken()
except ImportError as error:
    print(type(error).__name__, error.hint)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, timeout=60)
    kind, hint = done.stdout.decode().strip().split(" ", 1)
    assert kind == MissingExtraError.__name__
    assert "formats" in hint  # the extra


def test_importing_bytemill_imports_no_tiktoken() -> None:
    script = (
        "import bytemill, bytemill.compat.tiktoken, sys; print([m for m in sys.modules if m == 'tiktoken'])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, timeout=60)
    assert done.stdout.decode().strip() == "[]"
