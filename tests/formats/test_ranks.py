"""Merges derived from ranks give the same ids; tiktoken and Hugging Face are the oracles."""

from itertools import pairwise

import tiktoken
from hypothesis import given
from hypothesis import strategies as st

from bytemill.formats.ranks import last_two_parts, merges_of_ranks, unreachable_token
from bytemill.formats.spec import SINGLE_BYTES

# Tokens over two letters overlap themselves and each other in every way; longer ones need not arise at all.
TOKENS = st.lists(st.text("ab", min_size=2, max_size=6).map(str.encode), unique=True, max_size=12)


def merged_in_order(text: bytes, merges: list[tuple[bytes, bytes]]) -> list[bytes]:
    """BPE as Sennrich et al. describe it: the earliest merge there is, leftmost first, until none is left."""
    parts = [text[i : i + 1] for i in range(len(text))]
    order = {merge: index for index, merge in enumerate(merges)}
    while True:
        found = [(order[pair], i) for i, pair in enumerate(pairwise(parts)) if pair in order]
        if not found:
            return parts
        _, i = min(found)
        parts[i : i + 2] = [parts[i] + parts[i + 1]]


@given(TOKENS, st.lists(st.text("ab", min_size=1, max_size=14), min_size=1, max_size=5))
def test_merges_of_ranks_encode_as_tiktoken_does(tokens: list[bytes], texts: list[str]) -> None:
    ranks = {token: rank for rank, token in enumerate([*sorted(SINGLE_BYTES), *tokens])}
    encoding = tiktoken.Encoding("t", pat_str=r"[\s\S]+", mergeable_ranks=ranks, special_tokens={})
    merges = merges_of_ranks(ranks)
    for text in texts:
        whole = ranks.get(text.encode())
        ours = (
            [whole] if whole is not None else [ranks[part] for part in merged_in_order(text.encode(), merges)]
        )
        assert ours == encoding.encode_ordinary(text)


def test_last_two_parts_are_those_of_the_last_merge() -> None:
    ranks = {b"a": 0, b"b": 1, b"c": 2, b"ab": 10, b"bc": 9, b"abc": 11}
    assert last_two_parts(b"abc", ranks) == (b"a", b"bc")
    assert last_two_parts(b"ab", ranks) == (b"a", b"b")
    assert last_two_parts(b"a", ranks) is None


def test_an_unreachable_token_has_no_merge() -> None:
    ranks = {b"a": 0, b"b": 1, b"c": 2, b"bc": 3, b"abcc": 4}
    assert last_two_parts(b"abcc", ranks) is None
    assert merges_of_ranks(ranks) == [(b"b", b"c")]


def test_the_first_unreachable_token_is_found() -> None:
    merges = [(b"b", b"c"), (b"a", b"b"), (b"ab", b"c")]
    assert unreachable_token(merges, [b"a", b"bc", b"ab"]) is None
    assert unreachable_token(merges, [b"a", b"bc", b"abc", b"x"]) == b"abc"
