"""Batches may be any iterable of `str`; an item of another type is named."""

import array
import collections
import io
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bytemill

END = "<|endoftext|>"


class Series:
    """A column as pandas has it: an iterable that is no sequence, with an index that `[]` asks."""

    def __init__(self, values: list[Any]) -> None:
        self.values = np.array(values, dtype=object)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values)

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, label: Any) -> Any:
        raise KeyError(label)


class OldSequence:
    """An iterable by `__getitem__` alone."""

    def __init__(self, values: list[Any]) -> None:
        self.values = values

    def __getitem__(self, index: int) -> Any:
        return self.values[index]


class Word(str):
    """A subclass."""

    __slots__ = ()


KINDS: dict[str, Callable[[list[str]], Any]] = {
    "list": list,
    "tuple": tuple,
    "iterator": iter,
    "generator": lambda texts: (text for text in texts),
    "deque": collections.deque,
    "array of objects": lambda texts: np.array(texts, dtype=object),
    "a column": Series,
    "by index alone": OldSequence,
    "subclasses of str": lambda texts: [Word(text) for text in texts],
    "values of a dict": lambda texts: dict(enumerate(texts)).values(),
}

texts = st.lists(st.text(max_size=12) | st.sampled_from(["", END, "今日は😀", "\ud83d"]), max_size=10)


@pytest.mark.parametrize("kind", KINDS)
@given(given_texts=texts)
def test_batches_may_be_any_iterable(small: bytemill.Tokenizer, kind: str, given_texts: list[str]) -> None:
    make = KINDS[kind]
    expected = [small.encode(text) for text in given_texts]
    assert small.encode_batch(make(given_texts)) == expected
    assert small.encode_batch(make(given_texts), num_threads=2) == expected
    ordinary = [small.encode_ordinary(text) for text in given_texts]
    assert small.encode_ordinary_batch(make(given_texts)) == ordinary
    joined = small.encode("".join(text.encode("utf-8", "replace").decode() for text in given_texts))
    clean = [text.encode("utf-8", "replace").decode() for text in given_texts]
    assert list(small.encode_iterable(make(clean))) == joined


def test_numpy_arrays_dict_keys_and_files_are_accepted(small: bytemill.Tokenizer) -> None:
    words = ["fox", "", "quick brown", "今日"]
    expected = [small.encode(word) for word in words]
    assert small.encode_batch(np.array(words)) == expected
    assert small.encode_batch(dict.fromkeys(words)) == expected
    assert small.encode_batch(io.StringIO("fox\nfoxes\n")) == [small.encode("fox\n"), small.encode("foxes\n")]
    assert small.encode_batch(text for text in ()) == []


def test_batches_of_ids_may_be_any_iterable(small: bytemill.Tokenizer) -> None:
    batch = [small.encode("the fox"), small.encode("今日"), []]
    expected = ["the fox", "今日", ""]
    kinds: list[Callable[[list[list[int]]], Any]] = [
        list,
        tuple,
        iter,
        lambda batch: (np.array(ids, dtype=np.uint16) for ids in batch),
        lambda batch: map(tuple, batch),
        lambda batch: dict(enumerate(batch)).values(),
    ]
    for kind in kinds:
        assert small.decode_batch(kind(batch)) == expected
    assert small.decode_batch(np.array([[97, 98], [99, 100]])) == ["ab", "cd"]
    for wrong in (None, 5, "text", [5], [None]):
        with pytest.raises(TypeError):
            small.decode_batch(wrong)  # type: ignore[arg-type]


def ways(ours: bytemill.Tokenizer) -> list[Callable[[Iterable[Any]], Any]]:
    return [ours.encode_batch, ours.encode_ordinary_batch, lambda pieces: list(ours.encode_iterable(pieces))]


@pytest.mark.parametrize(
    ("items", "index", "kind"),
    [
        ([None], 0, "NoneType"),
        (["a", b"b"], 1, "bytes"),
        (("a", "b", 5), 2, "int"),
        (iter(["a"] * 70 + [1.5]), 70, "float"),
        (["a", ["b"]], 1, "list"),
        (np.array(["a", "b", float("nan")], dtype=object), 2, "float"),
        ({"a": 1, 2: "b"}, 1, "int"),
        (b"text", 0, "int"),
        (array.array("i", [1]), 0, "int"),
    ],
)
def test_an_item_that_is_not_a_str_is_named(
    small: bytemill.Tokenizer, items: Any, index: int, kind: str
) -> None:
    items = list(items) if isinstance(items, Iterator) else items
    for encode in ways(small):
        with pytest.raises(TypeError, match=rf"item {index} is of type {kind}\b"):
            encode(items)


@pytest.mark.parametrize("wrong", ["text", "", Word("text")])
def test_a_single_text_is_not_a_batch(small: bytemill.Tokenizer, wrong: Any) -> None:
    for encode in ways(small):
        with pytest.raises(TypeError, match="for one str use encode"):
            encode(wrong)


@pytest.mark.parametrize("wrong", [None, 5, object()])
def test_non_iterables_are_an_error(small: bytemill.Tokenizer, wrong: Any) -> None:
    for encode in ways(small):
        with pytest.raises(TypeError, match="iter"):
            encode(wrong)


def test_errors_of_the_iterable_propagate(small: bytemill.Tokenizer) -> None:
    def broken() -> Iterator[str]:
        yield "fox"
        raise OSError("the disk is gone")

    for encode in ways(small):
        with pytest.raises(OSError, match="gone"):
            encode(broken())
