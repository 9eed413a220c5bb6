"""`bytemill tokenizer encode` and `decode`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bytemill

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
    assert json.loads(run("tokenizer", "encode", "tokenizer.json", "the rat", "--json").out) == ids
    assert run("tokenizer", "encode", "tokenizer.json", "the rat", "--count").out == f"{len(ids)}\n"
    counted = run("tokenizer", "encode", "tokenizer.json", "the rat", "--count", "--json").out
    assert json.loads(counted) == {"n_tokens": len(ids)}


def test_encode_of_nothing_is_an_empty_line_or_list(tokenizer_file: str, run: Run):
    assert run("tokenizer", "encode", tokenizer_file, "").out == "\n"
    assert run("tokenizer", "encode", tokenizer_file, "", "--json").out == "[]\n"
    assert run("tokenizer", "encode", tokenizer_file, "--count").out == "0\n"


def test_encode_treats_special_tokens_as_the_option_says(tokenizer: bytemill.Tokenizer, run: Run):
    text = "a<|endoftext|>"
    plain = run("tokenizer", "encode", "tokenizer.json", text, "--allowed-special", "none")
    assert plain.out.split() == list(map(str, tokenizer.encode_ordinary(text)))
    refused = run("tokenizer", "encode", "tokenizer.json", text, "--allowed-special", "none_raise")
    assert refused.status == 1
    assert "<|endoftext|>" in refused.err


def test_a_text_that_begins_with_a_hyphen_follows_two_hyphens(tokenizer: bytemill.Tokenizer, run: Run):
    outcome = run("tokenizer", "encode", "tokenizer.json", "--", "--count")
    assert outcome.out.split() == list(map(str, tokenizer.encode("--count")))


def test_encode_replaces_what_is_not_utf8_when_asked_to(tokenizer: bytemill.Tokenizer, run: Run):
    outcome = run("tokenizer", "encode", "tokenizer.json", "--errors", "replace", stdin=b"a\xffb")
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
    assert run("tokenizer", "decode", tokenizer_file, stdin=" \n").out == ""


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
    outcome = run("tokenizer", "encode", tokenizer_file, "text", "--threads", "5000")
    assert outcome.status == 2
    assert "Must be <= 4096" in outcome.err
