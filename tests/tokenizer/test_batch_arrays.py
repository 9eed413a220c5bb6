"""Batches as one array, and as lists that the garbage collector does not scan while they grow."""

import gc
import random
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bytemill
from bytemill.errors import SpecialTokenError

END = "<|endoftext|>"
FILLER = "the quick brown fox, 123 foxes; Жизнь 今日は、 é e\u0301t 😀 b "


def rows(ids: Any, offsets: Any) -> list[list[int]]:
    """The ids of each text."""
    assert offsets.dtype == np.int64
    assert (offsets[0], offsets[-1]) == (0, len(ids))
    places = offsets.tolist()
    return [ids[start:end].tolist() for start, end in pairwise(places)]


@given(texts=st.lists(st.text(max_size=30) | st.sampled_from(["", END, FILLER, "a" * 100]), max_size=12))
def test_a_batch_has_the_ids_of_its_texts(small: bytemill.Tokenizer, texts: list[str]) -> None:
    for num_threads in (1, 2, 5, None):
        for allowed in ("all", "none", {END}):
            ids, offsets = small.encode_batch_to_numpy(
                texts, num_threads=num_threads, allowed_special=allowed
            )
            assert ids.dtype == small.encode_to_numpy("").dtype
            assert rows(ids, offsets) == [small.encode(text, allowed_special=allowed) for text in texts]
    ids, offsets = small.encode_batch_to_numpy(texts, disallowed_special=())
    assert rows(ids, offsets) == small.encode_batch(texts, disallowed_special=())


def test_batches_of_long_and_short_texts_keep_their_order(small: bytemill.Tokenizer) -> None:
    chance = random.Random(6)
    texts = [FILLER[: chance.randint(0, 60)] * chance.choice([0, 1, 1, 200, 40_000]) for _ in range(40)]
    assert sum(len(text.encode()) > 1 << 20 for text in texts) > 2
    expected = small.encode_batch(texts, num_threads=1)
    for num_threads in (1, 2, 5, 100):
        assert rows(*small.encode_batch_to_numpy(texts, num_threads=num_threads)) == expected
    assert rows(*small.encode_batch_to_numpy(iter(texts))) == expected


class Texts(list[str]):
    """A list that gives other items than those it holds."""

    def __iter__(self) -> Iterator[str]:
        return (f"{text}!" for text in super().__iter__())


@given(
    texts=st.lists(
        st.text(st.characters() | st.sampled_from("\ud83d\ude00\udfff"), max_size=6), min_size=14, max_size=40
    )
)
def test_any_iterable_is_accepted_and_lone_surrogates_are_replaced(
    small: bytemill.Tokenizer, texts: list[str]
) -> None:
    expected = [small.encode(text) for text in texts]
    for iterable in (list, tuple, iter):
        assert small.encode_batch(iterable(texts)) == expected
        assert rows(*small.encode_batch_to_numpy(iterable(texts))) == expected
    assert small.encode_batch(Texts(texts)) == [small.encode(f"{text}!") for text in texts]


@pytest.mark.parametrize("place", [0, 3, 20, 39])
def test_the_error_has_the_index_of_an_item_that_is_not_a_str(small: bytemill.Tokenizer, place: int) -> None:
    texts: list[Any] = ["\ud800"] * 40
    texts[place] = 5
    for iterable in (list, tuple, iter):
        with pytest.raises(TypeError, match=rf"item {place} is of type int"):
            small.encode_batch(iterable(texts))


def test_an_empty_batch_has_one_offset(small: bytemill.Tokenizer) -> None:
    for nothing in ([], iter(())):
        ids, offsets = small.encode_batch_to_numpy(nothing)
        assert (ids.tolist(), offsets.tolist()) == ([], [0])


@pytest.mark.parametrize("long", [False, True])
def test_a_disallowed_token_in_one_text_fails_the_batch(small: bytemill.Tokenizer, long: bool) -> None:
    texts = ["fox"] * 500 + [FILLER * (40_000 if long else 1) + END] + ["fox"] * 500
    for num_threads in (1, 4):
        with pytest.raises(SpecialTokenError, match=f"byte {len(texts[500].encode()) - len(END)}"):
            small.encode_batch_to_numpy(texts, num_threads=num_threads, allowed_special="none_raise")


@pytest.mark.parametrize("wrong", [None, 5, "text", ["a", None], [b"a"]])
def test_a_batch_must_be_an_iterable_of_texts(small: bytemill.Tokenizer, wrong: Any) -> None:
    with pytest.raises(TypeError):
        small.encode_batch_to_numpy(wrong)


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("num_threads", [1, 3])
def test_the_state_of_the_garbage_collector_is_restored(
    small: bytemill.Tokenizer, enabled: bool, num_threads: int
) -> None:
    texts = [FILLER] * 5_000
    was_enabled = gc.isenabled()
    runs: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        runs.append(info["generation"])

    gc.collect()
    gc.callbacks.append(note)
    try:
        (gc.enable if enabled else gc.disable)()
        lists = small.encode_batch(texts, num_threads=num_threads)
        n_runs = len(runs)
        assert gc.isenabled() is enabled
        with pytest.raises(SpecialTokenError):
            small.encode_batch([*texts, END], num_threads=num_threads, allowed_special="none_raise")
        assert gc.isenabled() is enabled
    finally:
        gc.callbacks.remove(note)
        (gc.enable if was_enabled else gc.disable)()
    # Without care it runs once for every 700 lists.
    assert n_runs <= 4
    assert all(gc.is_tracked(ids) for ids in lists)
    assert gc.is_tracked(lists)
