"""The stream decoder returns all text at the earliest moment and never part of a character."""

import codecs

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import bytemill

END = "<|endoftext|>"
BYTES = {byte: bytes([byte]) for byte in range(256)}
BYTE_TOKENIZER = bytemill.Tokenizer(BYTES, [], [END, "今日😀"])
# Tokens that end inside characters, begin inside them, or hold what no character has.
PARTS = [
    b"\xe4\xbb",
    b"\x8a\xe6",
    b"\x97\xa5",
    b"\xf0\x9f",
    b"\x98\x80a",
    b" \xc3",
    b"\xa9\xa9",
    b"\xff\xfe",
    b"a\xed\xa0",
]
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


def test_decoders_are_independent() -> None:
    one, other = BYTE_TOKENIZER.stream_decoder(), BYTE_TOKENIZER.stream_decoder()
    assert (one.feed(0xE4), other.feed(0xC3), one.feed(0xBB), other.feed(0xA9), one.feed(0x8A)) == (
        "",
        "",
        "",
        "é",
        "今",
    )


def test_the_oracle_is_python_s_own_decoder() -> None:
    data = b"\xf0\x9f\x98\x80\xe2\x82\xac\xff\xc3"
    oracle = codecs.getincrementaldecoder("utf-8")("replace")
    expected = [oracle.decode(bytes([byte])) for byte in data] + [oracle.decode(b"", final=True)]
    assert fed(BYTE_TOKENIZER, list(data)) == expected
