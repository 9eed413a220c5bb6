"""`bytemill data convert` and `bytemill data reencode`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

import bytemill
from bytemill.cli.data_convert import BuiltInLayout
from bytemill.data.layouts import LAYOUTS, BinLayout
from bytemill.shards import TokenShards, verify

Run = Callable[..., Any]


def test_the_help_lists_all_layouts():
    assert list(get_args(BuiltInLayout)) == list(LAYOUTS)


def test_a_registered_layout_is_accepted(tokenizer_file: str, run: Run, monkeypatch: pytest.MonkeyPatch):
    class OwnLayout(BinLayout):
        name = "own"
        suffix = ".own"

    monkeypatch.setitem(LAYOUTS, "own", OwnLayout())
    outcome = run("data encode tokenizer.json corpus.txt -o shards --layout own -q")
    assert outcome.status == 0, outcome.err
    assert Path("shards/shard_00000.own").exists()


def encode(run: Run, tokenizer_file: str) -> None:
    Path("a.txt").write_text("the cat")
    Path("b.txt").write_text("the rat")
    outcome = run("data encode tokenizer.json '[ab].txt' --output shards -q")
    assert outcome.status == 0, outcome.err


def test_convert_moves_the_separator_and_says_so(tokenizer_file: str, run: Run):
    encode(run, tokenizer_file)
    outcome = run("data convert shards llmc --layout llmc")
    assert outcome.status == 0, outcome.err
    end = bytemill.Tokenizer.load(tokenizer_file).special_tokens["<|endoftext|>"]
    assert f"separator {end} is moved to the start of each document" in outcome.err
    ids = np.fromfile("llmc/shard_00000.bin", np.uint16, offset=1024)
    tokenizer = bytemill.Tokenizer.load(tokenizer_file)
    assert tokenizer.decode(ids) == "<|endoftext|>the cat<|endoftext|>the rat"
    assert outcome.out.startswith(f"llmc: {len(ids):,} tokens\n")
    kept = run("data convert shards kept --layout llmc --keep-separators -q")
    assert (kept.status, kept.out, kept.err) == (0, "", "")
    ids = np.fromfile("kept/shard_00000.bin", np.uint16, offset=1024)
    assert tokenizer.decode(ids) == "the cat<|endoftext|>the rat<|endoftext|>"


def test_convert_reads_what_nanogpt_prepared(tokenizer_file: str, run: Run):
    tokenizer = bytemill.Tokenizer.load(tokenizer_file)
    text = "the cat<|endoftext|>the rat<|endoftext|>"
    np.array(tokenizer.encode(text), np.uint16).tofile("train.bin")
    refused = run("data convert train.bin out --layout megatron")
    assert refused.status == 1
    assert "the layout of train.bin is unknown" in refused.err
    assert "--source-layout bin --source-dtype uint16" in refused.err
    arguments = [
        "--source-layout",
        "bin",
        "--source-dtype",
        "uint16",
        "--separator",
        "<|endoftext|>",
        "--tokenizer",
    ]
    outcome = run(
        "data", "convert", "train.bin", "out", "--layout", "megatron", *arguments, tokenizer_file, "--json"
    )
    assert outcome.status == 0, outcome.err
    manifest = json.loads(outcome.out)
    assert (manifest["n_documents"], manifest["fingerprint"]) == (2, tokenizer.fingerprint)
    assert tokenizer.decode(TokenShards("out")[:]) == text
    assert verify("out") == []


def test_reencode_gives_what_encoding_the_text_gives(tokenizer_file: str, run: Run):
    encode(run, tokenizer_file)
    other = bytemill.train_from_iterator(
        iter(["the rat sat on the mat"] * 5), vocab_size=265, special_tokens=["<|endoftext|>"]
    )
    other.save("other.json")
    outcome = run("data reencode shards --from tokenizer.json --to other.json --output out")
    assert outcome.status == 0, outcome.err
    assert other.decode(TokenShards("out")[:]) == "the cat<|endoftext|>the rat<|endoftext|>"
    assert TokenShards("out")[:].tolist() == other.encode("the cat<|endoftext|>the rat<|endoftext|>")
    assert verify("out") == []
    again = run("data reencode shards --from tokenizer.json --to other.json --output out")
    assert "out already contains these shards" in again.err
    bare = ["--no-separators", "--layout", "bin"]
    arguments = ["--from", tokenizer_file, "--to", "other.json", "--output", "bare", *bare, "-q"]
    assert run("data", "reencode", "shards", *arguments).status == 0
    assert other.decode(np.fromfile("bare/shard_00000.bin", np.uint16)) == "the catthe rat"


def test_reencode_refuses_another_tokenizer(tokenizer_file: str, run: Run):
    encode(run, tokenizer_file)
    bytemill.Tokenizer({i: bytes([i]) for i in range(256)}, []).save("bytes.json")
    outcome = run("data reencode shards --from bytes.json --to tokenizer.json --output out")
    assert outcome.status == 1
    assert "error: the shards in shards were encoded with tokenizer" in outcome.err
    assert "hint: name the tokenizer that encoded them (--from)" in outcome.err
    assert not Path("out").exists()
