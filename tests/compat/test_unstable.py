"""`encode_with_unstable` returns the same ids and continuations as tiktoken."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

import bytemill
from bytemill import TokenizerError
from bytemill.compat import tiktoken
from tests.support.examples import few

from .conftest import Pair, toy

Unstable = tuple[list[int], list[list[int]]]

PATTERNS = [
    r"(?s).+", r"\w+|\s+", r"\w+", r".", r" ?\w+|\s+(?!\S)|\s+|[^\w\s]", r"a+?|b(?!\s)|(?<=a)\s+|\S",
    r"[^a]+?(?=b)|a",
]  # fmt: skip
PIECES = [
    "a", "b", "ab", " ", "  ", "\n", "\t", "\r", "\u3000", "é", "e\u0301", "字", "!", "<x>", "<", "aaaa",
]  # fmt: skip


def as_sets(found: Unstable) -> tuple[list[int], set[tuple[int, ...]]]:
    stable, completions = found
    return stable, {tuple(ids) for ids in completions}


def assert_same(pair: Pair, text: str) -> None:
    expected = pair.theirs.encode_with_unstable(text, allowed_special="all")
    found = pair.ours.encode_with_unstable(text, allowed_special="all")
    assert as_sets(found) == as_sets(expected)
    assert len(found[1]) == len(expected[1])
    assert found[1] == sorted(found[1])


@given(pattern=st.sampled_from(PATTERNS), pieces=st.lists(st.sampled_from(PIECES), max_size=12))
def test_unstable_ids_are_those_of_tiktoken_for_any_pattern(pattern: str, pieces: list[str]) -> None:
    assert_same(toy(pattern), "".join(pieces))


TEXTS = [
    "", "hello fanta", "Hello, wörld", "internationaliz", "    def f(x):\n        retur", "x = 1234",
    "ends with a blank ", "two blanks  ", "tabs\t\t", "line\n", "lines\n\n", "lines \n \n", "carriage\r\n",
    "ideographic\u3000", "don'", "It'S", "今日は、世界", "Привет, ми", "नमस्ते दुनि", "안녕하세", "مرحبا بال",
    "e\u0301", "👩‍👩‍👧", "<|endoftext|>", "text<|endoftext|>", "<|endoftext|> te", "<|endofte", "////", "…",
    "\u00a0", "\x00",
]  # fmt: skip


@pytest.mark.parametrize("name", ["gpt2", pytest.param("cl100k_base", marks=pytest.mark.slow)])
def test_unstable_ids_of_published_encodings_are_those_of_tiktoken(
    published: Callable[[str], Pair], name: str
) -> None:
    pair = published(name)
    for text in TEXTS:
        # tiktoken takes a second or two where nearly all tokens may follow.
        if name == "cl100k_base" or not text.endswith((" ", "  ", " \n")):
            assert_same(pair, text)


@few
@given(text=st.text(max_size=12))
def test_unstable_ids_of_any_text_are_those_of_tiktoken(published: Callable[[str], Pair], text: str) -> None:
    assert_same(published("cl100k_base"), text + "x")


def test_encode_with_unstable_has_the_options_of_encode() -> None:
    enc = toy(r"\w+|\s+").ours
    with pytest.raises(ValueError, match="<x>"):
        enc.encode_with_unstable("a<x>")
    assert enc.encode_with_unstable("a<x>", allowed_special={"<x>"}) == ([97, 300], [])
    assert enc.encode_with_unstable("<x>", disallowed_special=()) == ([], [[120]])
    with pytest.raises(UnicodeEncodeError):
        enc.encode_with_unstable("a\ud800")


# Of tokenizers


@pytest.fixture(scope="module")
def trained() -> tiktoken.Encoding:
    text = "the quick brown fox, the slow fox and other foxes; naïve café 今日は。 " * 3
    return tiktoken.Encoding.from_tokenizer(bytemill.train_from_iterator([text], vocab_size=300))


@given(
    text=st.text(alphabet="thequickbrownfx ,;.é今日", max_size=12),
    more=st.text(alphabet="thefox é今", max_size=6),
)
def test_every_continuation_completes_the_text(trained: tiktoken.Encoding, text: str, more: str) -> None:
    stable, completions = trained.encode_with_unstable(text)
    n_bytes = len(text.encode())
    for ids in completions:
        assert trained.decode_bytes(stable + ids)[:n_bytes] == text.encode()
        assert len(trained.decode_bytes(stable + ids[:-1])) < n_bytes
    # Letters alone: with them no split comes or goes.
    if (text + more).isalpha():
        longer = trained.encode(text + more)
        assert longer[: len(stable)] == stable
        first = next(i for i in range(len(longer) + 1) if len(trained.decode_bytes(longer[:i])) >= n_bytes)
        assert not text or longer[len(stable) : first] in completions


def test_a_text_that_would_take_minutes_is_refused(published: Callable[[str], Pair]) -> None:
    blanks = " " * 100_000
    with pytest.raises(TokenizerError, match="100000 bytes in one pre-token"):
        published("cl100k_base").ours.encode_with_unstable(blanks)
    # Where the same text ends with a word, no more than with any other.
    stable, completions = published("cl100k_base").ours.encode_with_unstable(f"{blanks} fanta")
    assert len(stable) > 100
    assert len(completions) > 10
