"""Decoding: texts, bytes and invalid ids."""

import pickle
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bytemill
from bytemill.errors import UnknownTokenError

BYTES = {byte: bytes([byte]) for byte in range(256)}
WORDS = ["ab", "abc", "é", "一", "😀", "internationalization of everything"]
TOKENIZER = bytemill.train_from_iterator(
    iter([" ".join(WORDS * 3)]), vocab_size=290, special_tokens=["<|endoftext|>", "<é>"], pattern="o200k"
)

texts = st.text(max_size=60) | st.lists(
    st.sampled_from([*WORDS, " ", "<|endoftext|>", "<é>", "<", "\r\n"]), max_size=20
).map("".join)


@given(batch=st.lists(texts, min_size=1, max_size=4), data=st.binary(max_size=60))
def test_decoding_gives_the_text_back(batch: list[str], data: bytes) -> None:
    for allowed in ("all", "none", {"<é>"}):
        ids = TOKENIZER.encode(batch[0], allowed_special=allowed)
        assert TOKENIZER.decode(ids) == batch[0]
        assert (
            TOKENIZER.decode_bytes(ids) == b"".join(TOKENIZER.decode_tokens_bytes(ids)) == batch[0].encode()
        )
    assert TOKENIZER.decode_batch(TOKENIZER.encode_batch(batch)) == batch
    assert TOKENIZER.core.encode_bytes(batch[0].encode()) == TOKENIZER.encode_ordinary(batch[0])
    ids = TOKENIZER.core.encode_bytes(data)
    assert TOKENIZER.decode_bytes(ids) == data
    assert TOKENIZER.decode(ids) == data.decode("utf-8", "replace")


def test_incomplete_characters_are_replaced_by_default() -> None:
    ids = list("a😀".encode())[:-1]
    assert TOKENIZER.decode(ids) == "a\ufffd"
    assert TOKENIZER.decode(ids, errors="ignore") == "a"
    assert TOKENIZER.decode_batch([ids], errors="ignore") == ["a"]
    with pytest.raises(UnicodeDecodeError) as caught:
        TOKENIZER.decode(ids, errors="strict")
    assert (caught.value.start, caught.value.object) == (1, b"a\xf0\x9f\x98")
    for wrong, error in (("no such handler", LookupError), ("strict\0", ValueError), ("\ud800", ValueError)):
        with pytest.raises(error):
            TOKENIZER.decode(ids, errors=wrong)
    for wrong in (5, None):
        with pytest.raises(TypeError):
            TOKENIZER.decode(ids, errors=wrong)  # type: ignore[arg-type]


def unaligned(ids: list[int], dtype: str) -> Any:
    return np.frombuffer(b"\0" + np.array(ids, dtype).tobytes(), "u1")[1:].view(dtype)


def strided(ids: list[int], dtype: str, offset: int) -> Any:
    records = np.zeros(len(ids), np.dtype([("before", f"V{offset}"), ("id", dtype)]))
    records["id"] = ids
    return records["id"][::-1][::-1]


KINDS: list[Callable[[list[int]], Any]] = [
    list,
    tuple,
    *(
        lambda ids, dtype=dtype: np.array(ids, dtype)
        for dtype in ("u2", "u4", "u8", "i2", "i4", "i8", ">u2", ">u4", ">i8", object)
    ),
    lambda ids: [np.uint16(i) for i in ids],
    lambda ids: np.array(ids, "u2")[::-1][::-1],
    lambda ids: np.array(ids[::-1], "u4")[::-1],
    lambda ids: np.repeat(np.array(ids, "i8"), 3)[::3],
    lambda ids: np.array([ids, ids], "u2", order="F")[1],
    lambda ids: np.array([ids, ids], "u4").T[:, 0],
    iter,
    lambda ids: np.array(ids, "u2").data,
    lambda ids: np.frombuffer(np.array(ids, "u4").tobytes(), "u4"),  # read-only
    *(lambda ids, dtype=dtype: unaligned(ids, dtype) for dtype in ("u2", "u4", "i8")),
    *(
        lambda ids, dtype=dtype, offset=offset: strided(ids, dtype, offset)
        for dtype in ("u2", "u4", "i8")
        for offset in (1, 2, 3, 5)
    ),
]


@pytest.mark.parametrize("text", ["", "a", "abc é一😀<|endoftext|>" * 50, "ab" * 3000])
def test_ids_may_come_in_any_sequence_of_integers(text: str) -> None:
    ids = TOKENIZER.encode(text)
    for number, kind in enumerate(KINDS):
        assert TOKENIZER.decode(kind(ids)) == text, number
        assert TOKENIZER.decode_bytes(kind(ids)) == text.encode()
        assert b"".join(TOKENIZER.decode_tokens_bytes(kind(ids))) == text.encode()
        assert TOKENIZER.decode_batch([kind(ids), kind([])]) == [text, ""]
    assert TOKENIZER.decode(np.broadcast_to(np.uint16(97), (1000,))) == "a" * 1000


@pytest.mark.parametrize("dtype", ["u2", "u4", "i8"])
def test_many_ids_are_decoded(dtype: str) -> None:
    some = np.arange(290, dtype=dtype)
    some_bytes = b"".join(TOKENIZER.decode_tokens_bytes(some))
    n = 1_500_000 // len(some_bytes)
    assert TOKENIZER.decode_bytes(np.tile(some, n)) == some_bytes * n
    assert TOKENIZER.decode(np.tile(some, n), errors="ignore") == some_bytes.decode(errors="ignore") * n


def test_ids_changed_by_another_thread_are_decoded_or_refused() -> None:
    ids = np.full(100_000, 97, "u2")
    is_over = threading.Event()
    longest = max(TOKENIZER.vocab, key=lambda i: len(TOKENIZER.vocab[i]))

    def change() -> None:
        while not is_over.is_set():
            for i in (longest, 97):
                ids[::2] = i

    refusals: set[str] = set()
    changing = threading.Thread(target=change)
    changing.start()
    try:
        for _ in range(50):
            try:
                decoded = TOKENIZER.decode_bytes(ids)
            except bytemill.TokenizerError as error:
                refusals.add(str(error))
            else:
                assert set(decoded) <= set(b"a" + TOKENIZER.vocab[longest])
    finally:
        is_over.set()
        changing.join()
    assert refusals <= {"the ids were changed while they were decoded"}
    assert TOKENIZER.decode_bytes(ids) == b"a" * len(ids)


def ways_to_decode() -> list[Callable[[Any], Any]]:
    return [
        TOKENIZER.decode,
        TOKENIZER.decode_bytes,
        TOKENIZER.decode_tokens_bytes,
        lambda ids: TOKENIZER.decode_batch([[97], ids]),
    ]


@pytest.mark.parametrize(
    "unknown", [290, 65_535, 1 << 16, (1 << 32) - 1, 1 << 32, 1 << 63, 1 << 100, 1 << 200, -1, -(1 << 70)]
)
def test_an_unknown_id_is_a_key_error_that_names_it(unknown: int) -> None:
    for decode in ways_to_decode():
        with pytest.raises(UnknownTokenError) as caught:
            decode([97, unknown, 98])
        assert caught.value.token_id == unknown
    for one in (TOKENIZER.decode_single_token_bytes, TOKENIZER.token):
        with pytest.raises(UnknownTokenError) as caught:
            one(unknown)
        assert isinstance(caught.value, bytemill.TokenizerError)
        assert isinstance(caught.value, KeyError)
        again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301
        for error in (caught.value, again):
            assert (str(error), error.token_id) == (f"no token has the id {unknown}", unknown)


@pytest.mark.parametrize("dtype", ["u2", "u4", "u8", "i2", "i4", "i8"])
def test_an_unknown_id_in_an_array_is_a_key_error(dtype: str) -> None:
    ids = np.full(5000, 97, dtype)
    ids[-1] = np.iinfo(dtype).max
    for decode in ways_to_decode():
        with pytest.raises(UnknownTokenError) as caught:
            decode(ids)
        assert caught.value.token_id == int(ids[-1])
    if dtype.startswith("i"):
        ids[7] = -3
        with pytest.raises(KeyError, match="-3"):
            TOKENIZER.decode(ids)


NO_IDS: list[Any] = [
    *(None, 97, "97", ["a"], [97, None], [97, 98.0], [b"a"], [[97]]),
    *map(np.array, ([97.0], [True], 97, [[97, 98]], ["a"], [97 + 0j], [None])),
    np.array([97], "M8[s]"),
]


def test_what_is_no_id_is_a_type_error() -> None:
    calls: list[tuple[Callable[[Any], Any], list[Any]]] = [
        *((decode, NO_IDS) for decode in ways_to_decode()),
        (TOKENIZER.decode_single_token_bytes, [None, "a", b"a", 97.0, [97], np.array([97, 98])]),
    ]
    for call, wrong_ids in calls:
        for wrong in wrong_ids:
            with pytest.raises(TypeError):
                call(wrong)


def test_ids_in_gaps_are_unknown() -> None:
    tokenizer = bytemill.Tokenizer(BYTES | {300: b"ab"}, [(b"a", b"b")], {"<s>": 310})
    for unknown in (256, 299, 301, 309, 311):
        with pytest.raises(UnknownTokenError) as caught:
            tokenizer.decode([300, unknown])
        assert caught.value.token_id == unknown
    assert tokenizer.decode([300, 310]) == "ab<s>"


def test_single_tokens_encode_and_decode() -> None:
    for i, token in TOKENIZER.vocab.items():
        assert TOKENIZER.decode_single_token_bytes(i) == token
        assert TOKENIZER.encode_single_token(token) == i or TOKENIZER.is_special_token(i)
    assert TOKENIZER.encode_single_token("<é>") == TOKENIZER.special_tokens["<é>"]
    assert TOKENIZER.token_to_id("no such token") is None
    for missing in ("no such token", b"no such token", ""):
        with pytest.raises(KeyError):
            TOKENIZER.encode_single_token(missing)
