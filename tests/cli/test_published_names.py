"""Where a command takes a tokenizer, the name of a published one will do."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


@pytest.fixture
def gpt2(work: Path, shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a tokenizer that is in bytemill's cache and nowhere else."""
    monkeypatch.setenv("BYTEMILL_CACHE", str(work / "cache"))
    (work / "cache" / "tokenizers").mkdir(parents=True)
    (work / "cache" / "tokenizers" / "r50k_base.tiktoken").symlink_to(shared_data / "r50k_base.tiktoken")
    return "gpt2"


def test_every_command_takes_a_name(gpt2: str, work: Path, run: Run) -> None:
    assert run("tokenizer", "encode", gpt2, "Hello, world").out == "15496 11 995\n"
    assert run("tokenizer", "decode", gpt2, "15496", "11").out == "Hello,"
    assert "50,257" in run("tokenizer", "show", gpt2).out
    assert "Hello" in run("tokenizer", "inspect", gpt2, "Hello").out
    answer = run("data", "encode", gpt2, "corpus.txt", "--output", "shards", "--json")
    assert answer.status == 0, answer.err
    assert json.loads(answer.out)["n_tokens"] > 0


def test_a_file_of_that_name_comes_first(gpt2: str, tokenizer_file: str, work: Path, run: Run) -> None:
    (work / tokenizer_file).rename(work / gpt2)
    assert json.loads(run("tokenizer", "show", gpt2, "--json").out)["n_vocab"] == 300


def test_no_other_name_is_looked_for(work: Path, run: Run) -> None:
    answer = run("tokenizer", "show", "me/small")
    assert (answer.status, answer.out) == (1, "")
    assert answer.err.startswith("error: me/small: no such file")


def test_a_gguf_file_is_shown_as_any_other(work: Path, run: Run, tokenizer_file: str) -> None:
    from bytemill import Tokenizer
    from bytemill.formats.gguf import gguf

    gguf.write(Tokenizer.load(tokenizer_file).to_spec(), "t.gguf")
    shown = [json.loads(run("tokenizer", "show", name, "--json").out) for name in (tokenizer_file, "t.gguf")]
    assert shown[0]["fingerprint"] == shown[1]["fingerprint"]
