"""`bytemill tokenizer convert`, and `show` of every format."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bytemill

Run = Callable[..., Any]

MODEL = "minbpe v1\n\n1\n<|end of text|> 257\n97 98\n"


def test_convert_says_what_it_wrote_and_how_to_open_it(tokenizer_file: str, run: Run):
    fingerprint = bytemill.Tokenizer.load(tokenizer_file).fingerprint
    outcome = run("tokenizer convert tokenizer.json cat.tiktoken")
    assert (outcome.status, outcome.err) == (0, "")
    assert outcome.out == (
        "cat.tiktoken: rank file, 300 tokens\n"
        "\n"
        "  from            tokenizer.json\n"
        "  second file     cat.tiktoken.json\n"
        "  same tokenizer  yes: the new file has the same fingerprint\n"
        f"  fingerprint     {fingerprint}\n"
        "  left out        the tie-breaking rule of training; the count of each merge's pair in the training corpus\n"
        "\n"
        "Open it:\n"
        "  bytemill tokenizer show cat.tiktoken\n"
        "  import json, tiktoken.load; tok = tiktoken.Encoding(**json.load(open('cat.tiktoken.json')), "
        "mergeable_ranks=tiktoken.load.load_tiktoken_bpe('cat.tiktoken'))\n"
    )


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
@pytest.mark.parametrize("name", ["cat.tiktoken", "cat.json"])
def test_the_line_to_open_it_with_does(tokenizer_file: str, run: Run, name: str):
    text = "the cat<|endoftext|> sat"
    opened: dict[str, Any] = {}
    exec(run("tokenizer", "convert", tokenizer_file, name).out.splitlines()[-1].strip(), opened)  # noqa: S102
    tok = opened["tok"]
    ids = tok.encode(text, allowed_special="all") if name == "cat.tiktoken" else tok.encode(text).ids
    assert ids == bytemill.Tokenizer.load(tokenizer_file).encode(text)


def test_convert_as_json_is_one_object(tokenizer_file: str, run: Run):
    outcome = run("tokenizer convert tokenizer.json gpt2 --json")
    document = json.loads(outcome.out)
    assert document["output"] == ["gpt2/vocab.json", "gpt2/merges.txt"]
    assert (document["format"], document["proof"], document["warnings"]) == ("gpt2", "fingerprint", [])
    assert all(Path(name).is_file() for name in document["output"])


@pytest.mark.parametrize("name", ["t.tiktoken", "gpt2", "gpt2/vocab.json", "gpt2/merges.txt", "t.model"])
def test_show_works_with_every_format(tokenizer_file: str, run: Run, name: str):
    expected = run("tokenizer show tokenizer.json --json")
    assert run("tokenizer", "convert", tokenizer_file, name.split("/", maxsplit=1)[0], "--quiet").out == ""
    shown = json.loads(run("tokenizer", "show", name, "--json").out)
    ignored = {"file": None, "ties": None, "has_counts": None}
    assert shown | ignored == json.loads(expected.out) | ignored
    token = run("tokenizer", "show", name, "--token", "280").out
    assert token.splitlines()[0] == run("tokenizer show tokenizer.json --token 280").out.splitlines()[0]


def test_special_tokens_with_blanks_are_shown_and_converted(work: Path, run: Run):
    (work / "t.model").write_text(MODEL)
    assert "special tokens  <|end of text|> = 257" in run("tokenizer show t.model").out
    assert run("tokenizer convert t.model t.json -q").status == 0
    assert run("tokenizer encode t.json 'ab<|end of text|>'").out.split() == ["256", "257"]
    outcome = run("tokenizer convert t.json again.model")
    assert outcome.status == 1
    assert outcome.err == (
        "error: special token '<|end of text|>' contains white space, which minbpe cannot read\n"
        "hint: write a tokenizer.json\n"
    )


def test_a_listing_is_written_and_not_read(work: Path, run: Run):
    (work / "t.model").write_text(MODEL)
    outcome = run("tokenizer convert t.model t.vocab")
    assert "  same tokenizer  no: a listing cannot be read back\n" in outcome.out
    assert (work / "t.vocab").read_text().splitlines()[-2:] == ["[a][b] -> [ab] 256", "[<|end of text|>] 257"]
    outcome = run("tokenizer show t.vocab")
    assert (outcome.status, outcome.out) == (1, "")
    assert outcome.err.startswith("error: t.vocab: a listing for people")


def test_settings_that_a_rank_file_lacks_are_requested_and_accepted(tokenizer_file: str, run: Run):
    run("tokenizer convert tokenizer.json t.tiktoken")
    Path("t.tiktoken.json").unlink()
    outcome = run("tokenizer convert t.tiktoken t.json")
    assert outcome.status == 1
    assert "rank files store no pattern" in outcome.err
    assert "cl100k" in outcome.err
    given = ("--pattern", "gpt2", "--special-token", "<|endoftext|>")
    same = json.loads(run("tokenizer show tokenizer.json --json").out)["fingerprint"]
    assert json.loads(run("tokenizer", "show", "t.tiktoken", *given, "--json").out)["fingerprint"] == same
    assert (
        json.loads(run("tokenizer", "convert", "t.tiktoken", "t.json", *given, "--json").out)["fingerprint"]
        == same
    )
    shown = run("tokenizer show t.tiktoken --pattern none --special-token '<x>=400' --json")
    summary = json.loads(shown.out)
    assert (summary["pattern"], summary["special_tokens"]) == (None, {"<x>": 400})
    mixed = run("tokenizer show t.tiktoken --special-token '<x>=400' --special-token '<y>'")
    assert mixed.err == (
        "error: some special tokens have an id and others do not\nhint: add =ID to every one, or to none\n"
    )


def test_settings_stored_in_a_file_cannot_be_overridden(tokenizer_file: str, run: Run):
    outcome = run("tokenizer show tokenizer.json --pattern gpt2")
    assert outcome.status == 1
    assert "stores its pattern and special tokens" in outcome.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("tokenizer.json", "tokenizer.json"), "tokenizer.json is an input\nhint: choose another output"),
        (
            ("tokenizer.json", "x.bin"),
            "no output format has files named *.bin\nhint: name the format with --output-format: gpt2",
        ),
        (("tokenizer.json", "-"), "to standard output"),
        (("nowhere.json", "x.json"), "nowhere.json: no such file"),
        (("tokenizer.json", "no/x.json"), "cannot write no/x.json: the folder no does not exist"),
        (("corpus.txt", "x.json"), "corpus.txt: unknown format"),
    ],
)  # fmt: skip
def test_errors_are_reported_and_nothing_is_written(
    tokenizer_file: str, run: Run, arguments: tuple[str, ...], said: str
):
    before = sorted(Path().rglob("*"))
    outcome = run("tokenizer", "convert", *arguments)
    assert (outcome.status, outcome.out) == (1, "")
    assert said in outcome.err
    assert sorted(Path().rglob("*")) == before


def test_an_unknown_format_is_wrong_usage(tokenizer_file: str, run: Run):
    outcome = run("tokenizer convert tokenizer.json x --output-format sentencepiece")
    assert outcome.status == 2
    assert "huggingface" in outcome.err
