"""`bytemill data encode` and `info`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import bytemill
from bytemill.shards import TokenShards

Run = Callable[..., Any]


def test_encode_writes_the_shards_of_the_library(tokenizer_file: str, run: Run):
    arguments = [
        "data",
        "encode",
        tokenizer_file,
        "corpus.txt",
        "--output",
        "shards",
        "--shard-tokens",
        "100",
    ]
    outcome = run(*arguments)
    assert outcome.status == 0, outcome.err
    tokenizer = bytemill.Tokenizer.load(tokenizer_file)
    text = Path("corpus.txt").read_text(encoding="utf-8")
    assert np.array_equal(TokenShards("shards")[:], tokenizer.encode(text))
    assert outcome.out.startswith(f"shards: {tokenizer.count(text):,} tokens\n")
    assert outcome.err.startswith("encoding: ")


def test_append_eot_ends_every_input(tokenizer_file: str, run: Run):
    Path("a.txt").write_text("the cat")
    Path("b.txt").write_text("the rat")
    arguments = [
        "data",
        "encode",
        tokenizer_file,
        "[ab].txt",
        "--output",
        "shards",
        "--append-eot",
        "--json",
        "-q",
    ]
    manifest = json.loads(run(*arguments).out)
    assert manifest["n_documents"] == 2
    assert manifest["settings"]["document_separator"] == "<|endoftext|>"
    assert [source["name"] for source in manifest["sources"]] == ["a.txt", "b.txt"]
    tokenizer = bytemill.Tokenizer.load(tokenizer_file)
    assert tokenizer.decode(TokenShards("shards")[:]) == "the cat<|endoftext|>the rat<|endoftext|>"


def test_a_document_separator_in_the_text_is_counted(tokenizer_file: str, run: Run):
    text = "the cat<|endoftext|>the rat<|endoftext|>"
    arguments = [
        "data",
        "encode",
        tokenizer_file,
        "-",
        "-o",
        "shards",
        "--document-separator",
        "<|endoftext|>",
    ]
    assert run(*arguments, stdin=text).status == 0
    assert json.loads(run("data", "info", "shards", "--json").out)["n_documents"] == 2


def test_the_same_again_does_nothing_and_other_settings_are_refused(tokenizer_file: str, run: Run):
    arguments = ["data", "encode", tokenizer_file, "corpus.txt", "--output", "shards"]
    assert run(*arguments, "--quiet").status == 0
    written = Path("shards/shard_00000.npy").stat().st_mtime_ns
    again = run(*arguments)
    assert again.status == 0
    assert again.err == "note: shards holds these shards already: nothing to do\n"
    assert Path("shards/shard_00000.npy").stat().st_mtime_ns == written
    other = run(*arguments, "--append-eot")
    assert other.status == 1
    assert other.err.startswith("error: shards holds other shards already")
    assert "--overwrite" in other.err
    assert run(*arguments, "--append-eot", "--overwrite", "--quiet").status == 0


def test_quiet_says_nothing(tokenizer_file: str, run: Run):
    outcome = run("data", "encode", tokenizer_file, "corpus.txt", "-o", "shards", "--quiet")
    assert (outcome.status, outcome.out, outcome.err) == (0, "", "")


def test_info_verifies_and_finds_damage(tokenizer_file: str, run: Run):
    run("data", "encode", tokenizer_file, "corpus.txt", "--output", "shards", "--quiet")
    good = run("data", "info", "shards", "--verify")
    assert good.status == 0
    assert "verified: every shard is as the manifest says" in good.out
    shard = Path("shards/shard_00000.npy")
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    assert run("data", "info", "shards").status == 0
    bad = run("data", "info", "shards", "--verify")
    assert bad.status == 1
    assert "note: shard_00000.npy has sha256" in bad.err
    assert "error: the shards in shards are damaged" in bad.err
    as_json = run("data", "info", "shards", "--verify", "--json")
    assert as_json.status == 1
    assert len(json.loads(as_json.out)["problems"]) == 1


def test_an_unknown_separator_is_named(tokenizer_file: str, run: Run):
    outcome = run(
        "data", "encode", tokenizer_file, "corpus.txt", "-o", "shards", "--document-separator", "<eos>"
    )
    assert outcome.status == 1
    assert outcome.err == (
        "error: the document separator '<eos>' is no special token of this tokenizer\n"
        "hint: its special tokens: <|endoftext|>\n"
    )
    assert not Path("shards").exists()
