"""`disallowed_special` has tiktoken's meaning."""

from collections.abc import Callable
from typing import Any

import pytest
import tiktoken
from hypothesis import given
from hypothesis import strategies as st

import bytemill
from bytemill.errors import SpecialTokenError
from bytemill.formats.spec import TokenizerSpec

RANKS = {bytes([byte]): byte for byte in range(256)} | {b"ab": 256, b" a": 257}
SPECIAL = {"<x>": 300, "<y>": 301, "<|endoftext|>": 302}
OURS = bytemill.Tokenizer.from_spec(TokenizerSpec(pattern="gpt2", special_tokens=SPECIAL, ranks=RANKS))
THEIRS = tiktoken.Encoding("t", pat_str=OURS.pattern or "", mergeable_ranks=RANKS, special_tokens=SPECIAL)
PIECES = ["a", "ab", " ", "<x>", "<y>", "<", "x>", "<|endoftext|>", "!"]

ways = pytest.mark.parametrize(
    "way",
    [
        lambda enc, text, **options: enc.encode(text, **options),
        lambda enc, text, **options: enc.encode_batch([text, "a"], **options),
        lambda enc, text, **options: enc.encode_to_numpy(text, **options).tolist(),
        lambda enc, text, **options: enc.encode_with_unstable(text + "b", **options)[0],
    ],
    ids=["encode", "encode_batch", "encode_to_numpy", "encode_with_unstable"],
)


@ways
@given(
    pieces=st.lists(st.sampled_from(PIECES), max_size=10),
    allowed=st.sampled_from([None, "all", set[str](), {"<x>"}, {"<y>", "nothing"}]),
    disallowed=st.sampled_from(["all", (), ["<y>"], {"!", "a"}, "<"]),
)
def test_both_options_mean_what_tiktoken_means(
    way: Callable[..., Any], pieces: list[str], allowed: Any, disallowed: Any
) -> None:
    text, options = "".join(pieces), {"disallowed_special": disallowed}
    if allowed is not None:
        options["allowed_special"] = allowed
    try:
        expected = way(THEIRS, text, **options)
    except ValueError:
        with pytest.raises(SpecialTokenError, match="contains the disallowed special token"):
            way(OURS, text, **options)
    else:
        assert way(OURS, text, **options) == expected


@ways
def test_special_tokens_are_recognized_without_disallowed_special(way: Callable[..., Any]) -> None:
    assert way(OURS, "a<x>!") == way(THEIRS, "a<x>!", allowed_special="all")
    # A set recognises its members, and the others are text; tiktoken refuses those.
    expected = way(THEIRS, "<x><y>!", allowed_special={"<x>"}, disallowed_special=())
    assert way(OURS, "<x><y>!", allowed_special={"<x>"}) == expected


@ways
def test_none_and_none_raise_combine_with_disallowed_special(way: Callable[..., Any]) -> None:
    plain = way(THEIRS, "a<x>!", disallowed_special=())
    assert way(OURS, "a<x>!", allowed_special="none", disallowed_special=()) == plain
    assert way(OURS, "a<x>!", allowed_special="none", disallowed_special=["<y>"]) == plain
    for disallowed in ((), "all", ["!"]):
        with pytest.raises(SpecialTokenError, match="'<x>' at character 1"):
            way(OURS, "a<x>!", allowed_special="none_raise", disallowed_special=disallowed)
    assert way(OURS, "a<x>!", allowed_special=["<x>"], disallowed_special="all") == way(OURS, "a<x>!")
    with pytest.raises(ValueError, match="allowed_special must be"):
        way(OURS, "a", allowed_special="some", disallowed_special=())


def test_the_error_has_the_position_and_a_hint() -> None:
    with pytest.raises(SpecialTokenError) as caught:
        OURS.encode("é<y>", disallowed_special="all")
    assert "'<y>' at character 1" in str(caught.value)
    assert "allowed_special={'<y>'}" in str(caught.value.hint)


def test_the_error_names_the_leftmost_longest_string() -> None:
    with pytest.raises(SpecialTokenError, match="'abc' at character 1"):
        OURS.encode("xabcd", disallowed_special=["b", "ab", "abc", "d"])
