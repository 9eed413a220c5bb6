"""Arguments of the wrong type or out of range: which exception, and what it says."""

import array
import io
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bytemill
from bytemill.errors import SpecialTokenError

BYTES = {byte: bytes([byte]) for byte in range(256)}
TOK = bytemill.Tokenizer(BYTES | {256: b"ab"}, [(b"a", b"b")], ["<s>"])

OF_A_TEXT = [
    *(TOK.encode, TOK.encode_ordinary, TOK.encode_to_numpy, TOK.count, TOK.explain, TOK.encode_with_offsets),
]
OF_TEXTS: list[Callable[[Any], Any]] = [
    *(TOK.encode_batch, TOK.encode_ordinary_batch, TOK.encode_batch_to_numpy),
    lambda chunks: list(TOK.encode_iterable(chunks)),
]
WITH_THREADS: list[Callable[[int], Any]] = [
    lambda n: TOK.encode("a", num_threads=n),
    lambda n: TOK.encode_ordinary("a", num_threads=n),
    lambda n: TOK.encode_to_numpy("a", num_threads=n),
    lambda n: TOK.encode_with_offsets("a", num_threads=n),
    lambda n: TOK.encode_batch(["a"], num_threads=n),
    lambda n: TOK.encode_ordinary_batch([], num_threads=n),
    lambda n: TOK.encode_files([], num_threads=n),
    lambda n: TOK.core.stream("all", "strict", n),
]


class Word(str):
    """A subclass."""

    __slots__ = ()


# Calls, the arguments that each refuses, the exception, and a pattern of what it says.
Refused = tuple[Iterable[Callable[[Any], Any]], Iterable[Any], Any, str]
REFUSED: list[Refused] = [
    (OF_A_TEXT, [None, 5, b"text", ["text"]], (TypeError, AttributeError), ""),
    (OF_TEXTS, [None, 5, object()], TypeError, "iter"),
    (OF_TEXTS, ["text", "", Word("text")], TypeError, "for one str use encode"),
    (WITH_THREADS, [0, -1, 5000], ValueError, "num_threads must be 1 to"),
    (
        [TOK.encode_files],
        [None, 5, "text", b"text", Path("text"), ["a", None], [b"a"], [["a"]]],
        TypeError,
        "",
    ),
    ([TOK.core.stream("all", "strict", 1).feed], [None, 5, ["text"], np.zeros(3, np.uint16)], TypeError, ""),
    ([TOK.core.stream("all", "strict", 1).feed], [memoryview(b"abcdefgh").cast("I")], TypeError, ""),
    ([lambda mode: TOK.core.stream("all", mode, 1)], ["ignore", "", "STRICT"], ValueError, "errors"),
    ([lambda some: TOK.encode_iterable([], allowed_special=some)], ["some"], ValueError, "allowed_special"),
    ([lambda some: TOK.encode_iterable([], allowed_special=some)], [{"<unknown>"}], SpecialTokenError, ""),
    ([TOK.decode_batch], [None, 5, "text", [5], [None], ["ab"]], TypeError, ""),
    ([TOK.truncate], [None, "300", 300.0], TypeError, "vocab_size"),
    ([lambda call: TOK(*call)], [(5,), (["a", 5],), (["a"], ["b", "c"]), ("a", ["b"])], TypeError, ""),
    (
        [lambda special: bytemill.Tokenizer(BYTES, [], special)],
        [[5], [b"s"], [None], 5, {5: 300}],
        TypeError,
        "",
    ),
]


@pytest.mark.parametrize(("calls", "arguments", "error", "says"), REFUSED)
def test_wrong_arguments_are_refused(
    calls: Iterable[Callable[[Any], Any]], arguments: Iterable[Any], error: Any, says: str
) -> None:
    for call in calls:
        for argument in arguments:
            with pytest.raises(error, match=says or None):
                call(argument)


@pytest.mark.parametrize(
    ("items", "index", "kind"),
    [
        ([None], 0, "NoneType"),
        (["a", b"b"], 1, "bytes"),
        (("a", "b", 5), 2, "int"),
        (["a"] * 70 + [1.5], 70, "float"),
        (["\ud800"] * 39 + [["b"]], 39, "list"),
        (np.array(["a", "b", float("nan")], dtype=object), 2, "float"),
        ({"a": 1, 2: "b"}, 1, "int"),
        (["the fox "] * 5000 + [bytearray(b"b")], 5000, "bytearray"),
        (b"text", 0, "int"),
        (array.array("i", [1]), 0, "int"),
    ],
)
def test_an_item_that_is_not_a_str_is_named(items: Any, index: int, kind: str) -> None:
    for encode in OF_TEXTS:
        for make in (lambda some: some, tuple, iter):
            with pytest.raises(TypeError, match=rf"item {index} is of type {kind}\b"):
                encode(make(items))


def test_odd_arguments_that_are_accepted() -> None:
    assert TOK.truncate(True + 256).n_vocab == 257
    assert TOK.encode_batch(np.array(["ab", ""])) == [[256], []]
    assert TOK.encode_batch(dict.fromkeys(["ab", "b"])) == [[256], [98]]
    assert TOK.encode_batch(io.StringIO("ab\na\n")) == [[256, 10], [97, 10]]
    assert TOK.encode_batch(text for text in ()) == []
    for nothing in ([], iter(())):
        ids, offsets = TOK.encode_batch_to_numpy(nothing)
        assert (ids.tolist(), offsets.tolist()) == ([], [0])
