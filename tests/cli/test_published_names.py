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
    assert run(f"tokenizer encode {gpt2} 'Hello, world'").out == "15496 11 995\n"
    assert run(f"tokenizer decode {gpt2} 15496 11").out == "Hello,"
    assert "50,257" in run(f"tokenizer show {gpt2}").out
    assert "Hello" in run(f"tokenizer inspect {gpt2} Hello").out
    answer = run(f"data encode {gpt2} corpus.txt --output shards --json")
    assert answer.status == 0, answer.err
    assert json.loads(answer.out)["n_tokens"] > 0


def test_a_file_of_that_name_comes_first(gpt2: str, tokenizer_file: str, work: Path, run: Run) -> None:
    (work / tokenizer_file).rename(work / gpt2)
    assert json.loads(run(f"tokenizer show {gpt2} --json").out)["n_vocab"] == 300


def test_the_name_of_a_model_is_that_of_its_encoding(gpt2: str, run: Run) -> None:
    assert run("tokenizer encode text-davinci-001 'Hello, world'").out == "15496 11 995\n"
    answer = run("tokenizer show gpt-4")
    assert answer.err.startswith("error: cl100k_base: not found")
    assert "o200k_harmony: not supported" in run("tokenizer show gpt-oss-20b").err


@pytest.fixture
def repository(work: Path, tokenizer_file: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a repository in the hub's cache."""
    folder = work / "hub" / "models--me--small"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text("abc123")
    (folder / "snapshots" / "abc123").mkdir(parents=True)
    (work / tokenizer_file).rename(folder / "snapshots" / "abc123" / "tokenizer.json")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(work / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return "me/small"


def test_every_command_takes_a_repository(repository: str, run: Run) -> None:
    ids = run(f"tokenizer encode {repository} 'the cat'").out
    assert run("tokenizer", "decode", repository, *ids.split()).out == "the cat"
    assert run(f"tokenizer inspect {repository} 'the cat'").status == 0
    assert run(f"data encode {repository} corpus.txt -o shards -q").status == 0
    assert run(f"data reencode shards --from {repository} --to {repository} -o b").status == 0
    assert run(f"tokenizer convert {repository} own.json -q").status == 0
    assert run(f"tokenizer compare {repository} own.json --text corpus.txt").status == 0
    settings = ["--data.tokenizer", repository, "--data.train", "shards", "--print-config"]
    assert run("lm", "train", *settings).status == 0
    # A folder of the owner's name is one that a path is below.
    Path("me").mkdir()
    assert run(f"tokenizer show {repository}").err.startswith("error: me/small: no such file")


def test_a_repository_that_is_not_there_is_named(repository: str, run: Run) -> None:
    answer = run("tokenizer show me/other")
    assert (answer.status, answer.out) == (1, "")
    assert answer.err.startswith("error: me/other: no such file or folder, and it could not be downloaded")
    assert run("tokenizer show you/other.json").err.startswith("error: you/other.json: no such file\n")


def test_special_tokens_are_added_to_a_named_tokenizer(gpt2: str, run: Run) -> None:
    outcome = run(f"tokenizer convert {gpt2} chat.json --special-token '<|user|>'")
    assert outcome.err == (
        "error: gpt2 has a pattern and special tokens of its own\n"
        "hint: leave out --pattern and --special-token, which are for files that store none; --add-special-token "
        "(Tokenizer.with_special_tokens) adds special tokens\n"
    )
    added = ["--add-special-token", "<|user|>", "--add-special-token", "<|end|>"]
    outcome = run("tokenizer", "convert", gpt2, "chat.json", *added)
    assert outcome.status == 0, outcome.err
    assert run("tokenizer encode chat.json 'Hello<|user|><|end|><|endoftext|>'").out == (
        "15496 50257 50258 50256\n"
    )
    outcome = run("tokenizer convert chat.json more.json --add-special-token '<|a|>=60000' -q")
    assert outcome.status == 0, outcome.err
    assert run("tokenizer encode more.json '<|a|>'").out == "60000\n"
    outcome = run(f"tokenizer convert {gpt2} x.json --add-special-token '<|a|>=5'")
    assert outcome.err.startswith(
        "error: the id 5 of '<|a|>' belongs to the token b'&'\nhint: use ids from 50257 up"
    )


def test_a_gguf_file_is_shown_as_any_other(work: Path, run: Run, tokenizer_file: str) -> None:
    from bytemill import Tokenizer
    from bytemill.formats import gguf

    gguf.write(Tokenizer.load(tokenizer_file).to_spec(), "t.gguf")
    shown = [json.loads(run("tokenizer", "show", name, "--json").out) for name in (tokenizer_file, "t.gguf")]
    assert shown[0]["fingerprint"] == shown[1]["fingerprint"]
