"""Streams: text that arrives in pieces has the ids of the whole, and ids that arrive one at a time its text."""

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import bytemill
from bytemill.errors import SpecialTokenError

END = "<|endoftext|>"


def feed_all(stream: Any, pieces: list[Any]) -> list[int]:
    arrays = [stream.feed(piece) for piece in pieces] + [stream.finish()]
    assert all(array.dtype == arrays[0].dtype for array in arrays)
    return np.concatenate(arrays).tolist()


def cut(data: Any, places: list[int]) -> list[Any]:
    """The pieces between the places, taken modulo the length."""
    places = sorted(place % (len(data) + 1) for place in places)
    return [data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)]


some_bytes = st.lists(
    st.sampled_from(["the fox", " é", "今日", "😀", END, "\n", "a" * 40, "\u0301"]).map(str.encode)
    | st.sampled_from(
        [b"\x80", b"\xc3", b"\xe4\xbb", b"\xf0\x9f\x98", b"\xed\xa0\x80", b"\xff", b"\xc0\xaf", b"\xf4\x90"]
    ),
    max_size=20,
).map(b"".join)


@pytest.mark.parametrize("num_threads", [1, 3])
@given(
    text=st.text(max_size=30)
    | st.lists(st.sampled_from(["fox", END, "😀", " 字"]), max_size=10).map("".join),
    places=st.lists(st.integers(0, 10_000), max_size=8),
    times=st.sampled_from([1, 1, 1, 700]),
)
def test_chunks_of_bytes_have_the_ids_of_the_text(
    small: bytemill.Tokenizer, num_threads: int, text: str, places: list[int], times: int
) -> None:
    text *= times
    for allowed in ("all", "none", {END}):
        expected = small.encode(text, allowed_special=allowed)
        for pieces in (cut(text.encode(), places), cut(text, places)):
            stream = small.core.stream(allowed, "strict", num_threads)
            assert feed_all(stream, pieces) == expected
            assert stream.n_bytes == len(text.encode())
            assert stream.n_replaced == 0


@given(data=some_bytes, places=st.lists(st.integers(0, 500), max_size=8))
def test_malformed_bytes_are_replaced_as_python_does(
    small: bytemill.Tokenizer, data: bytes, places: list[int]
) -> None:
    stream = small.core.stream("all", "replace", 1)
    text = data.decode("utf-8", "replace")
    assert feed_all(stream, cut(data, places)) == small.encode(text)
    assert stream.n_replaced == text.count("\ufffd")
    assert stream.n_bytes == len(data)


@given(data=some_bytes, places=st.lists(st.integers(0, 500), max_size=8))
def test_malformed_bytes_are_reported_with_their_offset(
    small: bytemill.Tokenizer, data: bytes, places: list[int]
) -> None:
    stream = small.core.stream("all", "strict", 1)
    malformed = first_malformed_byte(data)
    if malformed is None:
        assert feed_all(stream, cut(data, places)) == small.encode(data.decode())
        return
    with pytest.raises(UnicodeDecodeError, match="utf-8") as caught:
        feed_all(stream, cut(data, places))
    assert caught.value.start == malformed
    assert malformed < caught.value.end <= len(data)


def first_malformed_byte(data: bytes) -> int | None:
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return error.start
    return None


@pytest.mark.parametrize("tail", [b"\xc3", b"\xe4\xbb", b"\xf0\x9f\x98"])
def test_a_stream_that_ends_inside_a_character_is_malformed(small: bytemill.Tokenizer, tail: bytes) -> None:
    stream = small.core.stream("all", "strict", 1)
    assert len(stream.feed(b"fox" + tail)) == 0
    with pytest.raises(UnicodeDecodeError) as caught:
        stream.finish()
    assert caught.value.start == 3
    stream = small.core.stream("all", "replace", 1)
    assert feed_all(stream, [b"fox" + tail]) == small.encode("fox\ufffd")
    assert stream.n_replaced == 1


def test_finish_resets_the_encoder(small: bytemill.Tokenizer) -> None:
    stream = small.core.stream("all", "strict", 1)
    for text in ("the fox", "", "'s end", "  ", "foxes" * 9000, "x"):
        assert feed_all(stream, cut(text.encode(), [3, 5])) == small.encode(text)
    assert stream.n_bytes == 7 + 6 + 2 + 45_000 + 1
    assert stream.finish().tolist() == []


@pytest.mark.parametrize(("allowed", "data"), [("all", b"fox\xc3"), ("none_raise", b"fox" + END.encode())])
def test_a_failed_finish_resets_the_encoder(small: bytemill.Tokenizer, allowed: Any, data: bytes) -> None:
    stream = small.core.stream(allowed, "strict", 1)
    stream.feed(data)
    with pytest.raises(ValueError):  # noqa: PT011 (malformed text and a special token alike)
        stream.finish()
    assert feed_all(stream, ["the fox"]) == small.encode("the fox")


def test_every_bytes_like_type_is_accepted(small: bytemill.Tokenizer) -> None:
    data = "the é fox".encode()
    padded = bytes(byte for byte in data for _ in range(2))
    for given_as in (
        data,
        bytearray(data),
        memoryview(data),
        memoryview(padded)[::2],
        np.frombuffer(data, np.uint8),
        np.frombuffer(padded, np.uint8)[::2],
        data.decode(),
    ):
        stream = small.core.stream("all", "strict", 1)
        assert feed_all(stream, [given_as]) == small.encode(data.decode())
        assert stream.n_bytes == len(data)


def test_text_after_an_incomplete_character_is_refused(small: bytemill.Tokenizer) -> None:
    stream = small.core.stream("all", "strict", 1)
    stream.feed("é".encode()[:1])
    with pytest.raises(ValueError, match="inside a character"):
        stream.feed("fox")


def test_a_disallowed_token_is_named_with_its_offset(small: bytemill.Tokenizer) -> None:
    for n_before in (0, 5, 9000):
        stream = small.core.stream("none_raise", "strict", 1)
        with pytest.raises(SpecialTokenError, match=f"byte {6 * n_before}$"):
            feed_all(stream, [*["é fox".encode()] * n_before, b"<|endof", b"text|>", b" fox" * 9000])
    stream = small.core.stream("none_raise", "strict", 1)
    assert feed_all(stream, ["the fox "] * 9000) == small.encode("the fox " * 9000)
    # Offsets count from the beginning of a document.
    with pytest.raises(SpecialTokenError, match=r"byte 4$"):
        feed_all(stream, ["fox ", END])


@pytest.mark.parametrize("unit", ["a", " ", "字"])
def test_a_text_that_cannot_be_split_takes_linear_time(small: bytemill.Tokenizer, unit: str) -> None:
    text = unit * ((1 << 20) // len(unit.encode()))
    data = text.encode()
    stream = small.core.stream("all", "strict", 1)
    ids = [stream.feed(data[start : start + 128]) for start in range(0, len(data), 128)]
    ids.append(stream.finish())
    assert np.array_equal(np.concatenate(ids), small.encode_to_numpy(text, num_threads=1))


def test_large_chunks_have_the_same_ids_on_threads(small: bytemill.Tokenizer) -> None:
    chance = random.Random(8)
    text = "".join(
        chance.choices(["the fox ", "e\u0301 字 ", END, "12345 ", "\n\n", "internationalization"], k=200_000)
    )
    data = text.encode()
    expected = small.encode_to_numpy(text, num_threads=1)
    for num_threads in (1, 3):
        stream = small.core.stream("all", "strict", num_threads)
        ids = [stream.feed(data[start : start + 1_500_001]) for start in range(0, len(data), 1_500_001)]
        assert sum(map(len, ids)) > 0.9 * len(expected), "ids come as soon as they are certain"
        assert np.array_equal(np.concatenate([*ids, stream.finish()]), expected)


BYTES = {byte: bytes([byte]) for byte in range(256)}
BYTE_TOKENIZER = bytemill.Tokenizer(BYTES, [], [END, "今日😀"])
# Tokens that end inside characters, begin inside them, or hold what no character has.
PARTS = [
    b"\xe4\xbb", b"\x8a\xe6", b"\x97\xa5", b"\xf0\x9f", b"\x98\x80a", b" \xc3", b"\xa9\xa9", b"\xff\xfe",
    b"a\xed\xa0",
]  # fmt: skip
PART_TOKENIZER = bytemill.Tokenizer(BYTES | dict(enumerate(PARTS, 256)), [], [END, "今日😀"])

pieces = st.lists(
    st.binary(max_size=5)
    | st.text(max_size=4).map(str.encode)
    | st.sampled_from(
        [*PARTS, "今日は😀é".encode(), b"\xf4\x90\x80\x80", b"\xed\xa0\x80", b"\xc0\xaf", b"\xe2\x82"]
    ),
    max_size=12,
).map(b"".join)


def fed(ours: bytemill.Tokenizer, ids: list[int]) -> list[str]:
    decoder = ours.stream_decoder()
    return [*(decoder.feed(token_id) for token_id in ids), decoder.finish()]


@given(pieces)
@example(b"\xf0\x9f\x98")
@example(b"\xe4\xbbA\x8a")
def test_arbitrary_bytes_decode_as_with_decode(data: bytes) -> None:
    assert "".join(fed(BYTE_TOKENIZER, list(data))) == BYTE_TOKENIZER.decode(list(data))
    assert BYTE_TOKENIZER.decode(list(data)) == data.decode("utf-8", "replace")


@given(
    st.lists(
        st.integers(0, PART_TOKENIZER.n_vocab - 1) | st.integers(256, PART_TOKENIZER.n_vocab - 1), max_size=30
    )
)
def test_arbitrary_ids_decode_as_with_decode(ids: list[int]) -> None:
    assert "".join(fed(PART_TOKENIZER, ids)) == PART_TOKENIZER.decode(ids)


@given(st.lists(st.integers(0, PART_TOKENIZER.n_vocab - 1), max_size=30), st.integers(0, 30))
@example([0xED, 0xA0], 2)
@example([256 + len(PARTS) - 1], 1)
@example([0xED, 0x9F], 2)
@example([0xED], 1)
def test_every_complete_character_is_returned_at_once(ids: list[int], cut: int) -> None:
    """Nothing of it is taken back, whatever follows, and nothing is held back that is a whole character."""
    decoder = PART_TOKENIZER.stream_decoder()
    so_far = "".join(decoder.feed(token_id) for token_id in ids[:cut])
    data = PART_TOKENIZER.decode_bytes(ids[:cut])
    for rest in ("", "a", "é", "😀"):
        assert (data + rest.encode()).decode("utf-8", "replace").startswith(so_far)
    held_back = decoder.finish()
    assert held_back in ("", "\ufffd")
    assert so_far + held_back == data.decode("utf-8", "replace")
    if held_back:
        # There is a continuation with which the bytes held back are a character.
        tail = data[-3:]
        prefixes = [tail[at:] for at in range(len(tail))]
        endings = ["80", "8080", "808080", "9080", "908080", "a080", "bf"]
        assert any(
            len((beginning + bytes.fromhex(ending)).decode("utf-8", "ignore").encode())
            == len(beginning) + len(ending) // 2
            for beginning in prefixes
            for ending in endings
        )


@given(st.text(max_size=30))
def test_characters_are_never_split(text: str) -> None:
    for ours in (BYTE_TOKENIZER, PART_TOKENIZER):
        parts = fed(ours, ours.encode(text))
        assert "".join(parts) == text
        assert "\ufffd" not in "".join(parts) or "\ufffd" in text
        assert parts[-1] == ""


def test_special_tokens_are_returned_whole() -> None:
    assert fed(BYTE_TOKENIZER, BYTE_TOKENIZER.encode(f"a{END}今日😀é")) == ["a", END, "今日😀", "", "é", ""]


def test_an_unknown_id_does_not_change_the_decoder() -> None:
    decoder = BYTE_TOKENIZER.stream_decoder()
    assert decoder.feed(0xC3) == ""
    for unknown in (1000, -1, 1 << 40):
        with pytest.raises(KeyError):
            decoder.feed(unknown)
    assert decoder.feed(0xA9) == "é"


def test_finish_resets_the_decoder() -> None:
    decoder = BYTE_TOKENIZER.stream_decoder()
    assert decoder.feed(0xC3) == ""
    assert decoder.finish() == "\ufffd"
    assert decoder.feed(0xA9) == "\ufffd"
    assert decoder.finish() == ""
