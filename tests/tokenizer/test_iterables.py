"""Batches and chunks come from any iterable of `str`, also one at a time; an item of another type is named."""

import collections
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.patterns import as_pattern

import bytemill
from bytemill.errors import SpecialTokenError

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


@given(given_texts=texts)
def test_batches_may_be_any_iterable(small: bytemill.Tokenizer, given_texts: list[str]) -> None:
    expected = [small.encode(text) for text in given_texts]
    ordinary = [small.encode_ordinary(text) for text in given_texts]
    clean = [text.encode("utf-8", "replace").decode() for text in given_texts]
    for kind, make in KINDS.items():
        assert small.encode_batch(make(given_texts)) == expected, kind
        assert small.encode_batch(make(given_texts), num_threads=2) == expected
        ids, offsets = small.encode_batch_to_numpy(make(given_texts))
        assert [each.tolist() for each in np.split(ids, offsets[1:-1])][: len(expected)] == expected
        assert small.encode_ordinary_batch(make(given_texts)) == ordinary
        assert list(small.encode_iterable(make(clean))) == small.encode("".join(clean))


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


def ways(ours: bytemill.Tokenizer) -> list[Callable[[Iterable[Any]], Any]]:
    return [
        *(ours.encode_batch, ours.encode_ordinary_batch, ours.encode_batch_to_numpy),
        lambda pieces: list(ours.encode_iterable(pieces)),
    ]


TRAINING = "the quick fox's end of the end, 123 e\u0301 今日は 😀 internationalization aaaa    \n\n bb " * 3
SPECIAL = [END, END + END, "end of", "of the", "\u0301x", " \n", "今日"]

TOKENIZERS = {
    pattern: bytemill.Tokenizer(trained.vocab, trained.merges, SPECIAL, pattern=as_pattern(pattern))
    for pattern in ("gpt2", "cl100k", "o200k", "llama3", None, r"\w+|\s+(?!\S)|\W")
    for trained in [bytemill.train_from_iterator([TRAINING], vocab_size=290, pattern=as_pattern(pattern))]
}

pieces_of_text = st.lists(
    st.sampled_from(
        ["the end", " of the end", " of", "<|endof", "text|>", END, "e", "\u0301", "x", "'", "s", "'ll",
         " ", "\n", "\r", "1", "23", "今", "日は", "😀", "\u200d", "a" * 70, " " * 40, "<", "|", "\u3000"]
    )
    | st.text(max_size=5),
    max_size=30,
)  # fmt: skip


@pytest.mark.parametrize("pattern", TOKENIZERS)
@given(pieces=pieces_of_text, long=st.integers(0, 4))
def test_chunks_have_the_ids_of_the_joined_text(pattern: str, pieces: list[str], long: int) -> None:
    ours = TOKENIZERS[pattern]
    # Ids are given once 16 KiB have come together, so short texts show nothing but the end.
    pieces = pieces * (1 + 200 * long)
    text = "".join(pieces)
    for allowed in ("all", "none", {END, "of the"}):
        ids = list(ours.encode_iterable(iter(pieces), allowed_special=allowed))
        assert ids == ours.encode(text, allowed_special=allowed)


@pytest.mark.parametrize("pattern", TOKENIZERS)
@pytest.mark.parametrize("n_characters", [1, 7, 1000, 20_000])
def test_chunk_borders_do_not_affect_ids(pattern: str, n_characters: int) -> None:
    ours = TOKENIZERS[pattern]
    text = (TRAINING + f"x{END}{END}{END} end of the end of\n" + "a" * 30) * 120
    pieces = [text[start : start + n_characters] for start in range(0, len(text), n_characters)]
    for allowed in ("all", "none", {END}):
        ids = list(ours.encode_iterable(pieces, allowed_special=allowed))
        assert (ids == ours.encode(text, allowed_special=allowed)) is True


@pytest.mark.parametrize("pattern", ["gpt2", "cl100k", "o200k", "llama3"])
def test_a_special_token_across_a_chunk_border_is_recognized(pattern: str) -> None:
    ours = TOKENIZERS[pattern]
    # Cuts are looked for at 16 KiB: everything that is hard to cut comes to lie there, at every offset.
    hard = f" e\u0301\u0301x'll end of the \n  \n 今日は1234{END}{END}<|endof \u3000!"
    for n in range(0, 2 * len(hard), 2):
        text = "ab " * (((1 << 14) - n) // 3) + "c" * (n % 3) + hard * 3
        pieces = [text[: (1 << 14) - 5], *text[(1 << 14) - 5 :]]
        assert list(ours.encode_iterable(pieces)) == ours.encode(text)


def test_the_result_is_an_iterator(small: bytemill.Tokenizer) -> None:
    ids = small.encode_iterable(["fox"])
    assert isinstance(ids, Iterator)
    assert iter(ids) is ids
    assert list(ids) == small.encode("fox")
    assert list(ids) == []
    with pytest.raises(StopIteration):
        next(ids)


def counted(pieces: Iterable[str], taken: list[str]) -> Iterator[str]:
    for piece in pieces:
        taken.append(piece)
        yield piece


def test_the_iterable_is_read_lazily(small: bytemill.Tokenizer) -> None:
    taken: list[str] = []
    ids = small.encode_iterable(counted(["the fox "] * 100, taken))
    assert taken == []
    next(ids)
    assert taken


def test_an_endless_iterable_is_encoded_incrementally(small: bytemill.Tokenizer) -> None:
    taken: list[str] = []
    ids = small.encode_iterable(counted(itertools.repeat("the quick fox, "), taken))
    expected = small.encode("the quick fox, " * 6_000)
    # The last of these would join with what follows.
    for n_given, (wanted, i) in enumerate(zip(expected[:-2], ids, strict=False), 1):
        assert i == wanted
        if n_given % 1000 == 1:
            n_bytes_given = len(small.decode_bytes(expected[:n_given]))
            n_bytes_taken = 15 * len(taken)
            assert n_bytes_taken - n_bytes_given < 1 << 16, "some kilobytes ahead"


def test_errors_of_the_iterable_propagate(small: bytemill.Tokenizer) -> None:
    def broken(n_pieces: int) -> Iterator[str]:
        yield from itertools.repeat("the fox ", n_pieces)
        raise OSError("the disk is gone")

    for encode in ways(small):
        for n_pieces in (0, 1, 10_000):
            with pytest.raises(OSError, match="the disk is gone"):
                encode(broken(n_pieces))
    # The iterator has yielded the ids before the error.
    given_before: list[int] = []
    with pytest.raises(OSError, match="gone"):
        given_before.extend(small.encode_iterable(broken(20_000)))
    expected = small.encode("the fox " * 20_000)
    assert given_before == expected[: len(given_before)]
    assert len(given_before) > 0.9 * len(expected)


def test_the_iterator_is_exhausted_after_an_error(small: bytemill.Tokenizer) -> None:
    def broken() -> Iterator[str]:
        yield "the fox"
        raise OSError("the disk is gone")

    for pieces, allowed in (
        (broken(), "all"),
        (iter(["fox", 5, "fox"]), "all"),
        (iter(["fox", END]), "none_raise"),
    ):
        ids = small.encode_iterable(pieces, allowed_special=allowed)  # type: ignore[arg-type]
        with pytest.raises((OSError, TypeError, SpecialTokenError)):
            list(ids)
        assert list(ids) == [], "half a text is no text"


def test_a_disallowed_token_is_named_with_its_offset_in_the_stream(small: bytemill.Tokenizer) -> None:
    for n_before in (0, 3, 10_000):
        pieces = ["é fox, "] * n_before + ["<|endof", "text|>", " fox"] + ["fox "] * 10_000
        with pytest.raises(SpecialTokenError, match=f"byte {8 * n_before}$"):
            list(small.encode_iterable(pieces, allowed_special="none_raise"))
    pieces = ["the fox "] * 10_000
    assert list(small.encode_iterable(pieces, allowed_special="none_raise")) == small.encode("".join(pieces))


def test_an_iterable_may_encode_itself(small: bytemill.Tokenizer) -> None:
    def nested() -> Iterator[str]:
        for _ in range(3):
            yield small.decode(list(small.encode_iterable(["the ", "fox "])))

    assert list(small.encode_iterable(nested())) == small.encode("the fox the fox the fox ")


def test_reentrant_iteration_is_an_error(small: bytemill.Tokenizer) -> None:
    ids: Iterator[int]

    def circular() -> Iterator[str]:
        yield "fox"
        next(ids)

    ids = small.encode_iterable(circular())
    with pytest.raises((RuntimeError, ValueError)):
        list(ids)


def test_lone_surrogates_are_replaced_chunk_by_chunk(small: bytemill.Tokenizer) -> None:
    assert list(small.encode_iterable(["a\ud800", "b"])) == small.encode("a\ufffdb")
    assert list(small.encode_iterable(["a\ud83d\ude00"])) == small.encode("a😀")
