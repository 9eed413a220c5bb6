"""Ids as text, to and from, wherever the streams are cut."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import bytemill
from bytemill.cli.texts import TextInput, decode_stream, encode_text, ids_as_text, read_ids
from bytemill.errors import CorpusError, TokenizerError

BYTES = {byte: bytes([byte]) for byte in range(256)}
TOKENIZER = bytemill.Tokenizer(BYTES | {256: b"th", 257: b"the"}, [(b"t", b"h"), (b"th", b"e")])


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({place % (len(data) + 1) for place in places} | {len(data)})
    return [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]


@given(
    st.lists(st.integers(0, 2**40)),
    st.sampled_from([" ", "\n", ", ", ",", "\t\r\n", " ; "]),
    st.lists(st.integers(0, 500)),
    st.booleans(),
)
def test_ids_are_read_the_same_wherever_blocks_are_cut(
    ids: list[int], between: str, places: list[int], brackets: bool
):
    text = between.join(map(str, ids))
    text = f"[{text}]" if brackets else text
    blocks = cut(text.encode(), places)
    assert [i for some in read_ids(blocks, "ids") for i in some] == ids


@given(st.text(max_size=80))
def test_ids_as_text_are_read_again(text: str):
    source = TextInput("text", None, text.encode())
    for as_json in (False, True):
        written = "".join(ids_as_text(encode_text(TOKENIZER, source), as_json=as_json))
        read = read_ids([written.encode()], "ids")
        assert b"".join(decode_stream(TOKENIZER, read)) == text.encode()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"1 2 x 3", "ids: entry 3 is 'x', not an id"),
        (b"0x10", "ids: entry 1 is '0x10', not an id"),
        (b"1 2." + b"5" * 100, "entry 2 is '2.5555"),
        (b"a" * 10_000, "entry 1 is 'aaaa"),
        (b"7 \xff\xfe", "entry 2 is '\ufffd\ufffd', not an id"),
    ],
)
def test_an_invalid_id_is_named_with_its_position(text: bytes, message: str):
    for blocks in ([text], [text[:2], text[2:]], [bytes([byte]) for byte in text]):
        with pytest.raises(TokenizerError, match=message.replace(".", r"\.")):
            list(read_ids(blocks, "ids"))


def test_a_stream_without_blanks_is_not_collected():
    def endless():
        for n_blocks in range(1_000):
            assert n_blocks < 10, "a stream that cannot be ids was read on and on"
            yield b"9" * 1_000

    with pytest.raises(TokenizerError, match="entry 1"):
        list(read_ids(endless(), "ids"))


def test_unknown_ids_are_named_with_the_range_there_is():
    with pytest.raises(TokenizerError, match="no token has the id 258") as caught:
        list(decode_stream(TOKENIZER, [[116], [104, 258]]))
    assert caught.value.hint == "the ids of this tokenizer go from 0 to 257"


def test_text_from_a_word_of_the_command_line_may_not_be_utf8():
    word = b"caf\xe9".decode("utf-8", "surrogateescape")
    with pytest.raises(CorpusError, match="TEXT: byte offset 3 is not valid UTF-8"):
        list(encode_text(TOKENIZER, TextInput.from_argument(word)))
    with pytest.raises(CorpusError, match="TEXT: byte offset 3 is not valid UTF-8"):
        TextInput.from_argument(word).read()


def test_a_name_that_means_several_files_is_no_text(tmp_path: Path):
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("x")
    with pytest.raises(CorpusError, match="matches 2 files"):
        TextInput.from_file(str(tmp_path / "*.txt"))
