"""`bytemill tokenizer encode` and `decode`, and ids as text, wherever the streams are cut."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import bytemill
from bytemill.cli.texts import TextInput, decode_stream, encode_text, ids_as_text, read_ids
from bytemill.errors import CorpusError, TokenizerError

Run = Callable[..., Any]


@pytest.fixture
def tokenizer(tokenizer_file: str) -> bytemill.Tokenizer:
    return bytemill.Tokenizer.load(tokenizer_file)


def test_encode_prints_ids_on_one_line(tokenizer: bytemill.Tokenizer, run: Run):
    text = "the cat → café<|endoftext|>"
    outcome = run("tokenizer", "encode", "tokenizer.json", text)
    assert outcome.out == " ".join(map(str, tokenizer.encode(text))) + "\n"
    assert (outcome.status, outcome.err) == (0, "")


@pytest.mark.parametrize("arguments", [["--file", "text"], ["--file", "-"], ["-"], []])
def test_encode_takes_files_and_standard_input_as_they_are(
    tokenizer: bytemill.Tokenizer, run: Run, arguments: list[str]
):
    text = "the cat\r\nsat → café\n"
    Path("text").write_bytes(text.encode())
    outcome = run("tokenizer", "encode", "tokenizer.json", *arguments, stdin=text)
    assert outcome.out.split() == list(map(str, tokenizer.encode(text)))


def test_encode_json_is_a_list_and_count_a_number(tokenizer: bytemill.Tokenizer, run: Run):
    ids = tokenizer.encode("the rat")
    assert json.loads(run("tokenizer encode tokenizer.json 'the rat' --json").out) == ids
    assert run("tokenizer encode tokenizer.json 'the rat' --count").out == f"{len(ids)}\n"
    counted = run("tokenizer encode tokenizer.json 'the rat' --count --json").out
    assert json.loads(counted) == {"n_tokens": len(ids)}


def test_encode_of_nothing_is_an_empty_line_or_list(tokenizer_file: str, run: Run):
    assert run("tokenizer encode tokenizer.json ''").out == "\n"
    assert run("tokenizer encode tokenizer.json '' --json").out == "[]\n"
    assert run("tokenizer encode tokenizer.json --count").out == "0\n"


def test_encode_treats_special_tokens_as_the_option_says(tokenizer: bytemill.Tokenizer, run: Run):
    text = "a<|endoftext|>"
    plain = run("tokenizer", "encode", "tokenizer.json", text, "--allowed-special", "none")
    assert plain.out.split() == list(map(str, tokenizer.encode_ordinary(text)))
    refused = run("tokenizer", "encode", "tokenizer.json", text, "--allowed-special", "none_raise")
    assert refused.status == 1
    assert "<|endoftext|>" in refused.err


def test_a_text_that_begins_with_a_hyphen_follows_two_hyphens(tokenizer: bytemill.Tokenizer, run: Run):
    outcome = run("tokenizer encode tokenizer.json -- --count")
    assert outcome.out.split() == list(map(str, tokenizer.encode("--count")))


def test_encode_replaces_what_is_not_utf8_when_asked_to(tokenizer: bytemill.Tokenizer, run: Run):
    outcome = run("tokenizer encode tokenizer.json --errors replace", stdin=b"a\xffb")
    assert outcome.out.split() == list(map(str, tokenizer.encode("a\ufffdb")))


def test_decode_writes_exactly_the_bytes(tokenizer: bytemill.Tokenizer, process: Callable[..., Any]):
    data = bytes(range(256)) + "→\r\n".encode()
    ids = [tokenizer.encode_single_token(bytes([byte])) for byte in data]
    words = process("tokenizer", "decode", "tokenizer.json", *map(str, ids))
    assert (words.returncode, words.stdout, words.stderr) == (0, data, b"")
    piped = process("tokenizer", "decode", "tokenizer.json", stdin=json.dumps(ids).encode())
    assert (piped.returncode, piped.stdout) == (0, data)


def test_encode_and_decode_of_a_large_input_are_the_same_text(
    tokenizer_file: str, process: Callable[..., Any]
):
    text = ("the cat → café, and a very " + "l" * 40 + "ong word\n").encode() * 120_000  # more than one block
    encoded = process("tokenizer", "encode", tokenizer_file, stdin=text)
    assert encoded.returncode == 0
    decoded = process("tokenizer", "decode", tokenizer_file, stdin=encoded.stdout)
    assert decoded.stdout == text


def test_decode_of_nothing_is_nothing(tokenizer_file: str, run: Run):
    assert run("tokenizer decode tokenizer.json", stdin=" \n").out == ""


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (["5", "300"], "no token has the id 300"),
        (["-5"], "no token has the id -5"),
        (["99999999999999999999999"], "no token has the id 99999999999999999999999"),
        (["12", "cat"], "IDS: entry 2 is 'cat', not an id"),
        (["1.5"], "IDS: entry 1 is '1.5', not an id"),
    ],
)
def test_decode_names_the_id_that_is_wrong(tokenizer_file: str, run: Run, ids: list[str], message: str):
    outcome = run("tokenizer", "decode", tokenizer_file, *ids)
    assert outcome.status == 1
    assert outcome.err.splitlines()[0] == f"error: {message}"
    assert outcome.err.splitlines()[1].startswith("hint: ")


def test_more_threads_than_possible_are_wrong_usage(tokenizer_file: str, run: Run):
    outcome = run("tokenizer encode tokenizer.json text --threads 5000")
    assert outcome.status == 2
    assert "Must be <= 4096" in outcome.err


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
