"""`bytemill quickstart`."""

import json
import random
import shlex
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bytemill
from bytemill.cli import output

Run = Callable[..., Any]


@pytest.fixture
def corpus(work: Path) -> str:
    chance = random.Random(3)
    words = ["".join(chance.choices("aeioubdfgklmnprst", k=chance.randint(2, 9))) for _ in range(300)]
    Path("many.txt").write_text("\n".join(" ".join(chance.choices(words, k=12)) for _ in range(400)))
    return "many.txt"


def test_the_summary_names_results_and_next_steps(corpus: str, run: Run):
    outcome = run(f"quickstart out --model-steps 0 --corpus {corpus} --vocab-size 400 --no-open")
    assert outcome.status == 0, outcome.err
    assert outcome.out.startswith("out: finished in ")
    for expected in ("round trip", "400 tokens", "out/report.html", "out/tokenizer.json"):
        assert expected in outcome.out
    assert "collecting text\n" in outcome.err
    assert "\x1b" not in outcome.out + outcome.err
    assert bytemill.Tokenizer.load("out").n_vocab == 400


def test_the_commands_that_it_recommends_work(corpus: str, run: Run):
    said = run(f"quickstart 'a folder' --model-steps 0 --corpus {corpus} -n 400 --no-open").out
    commands = [shlex.split(line) for line in said.splitlines() if line.startswith("  bytemill ")]
    assert len(commands) == 5
    for program, *arguments in commands:
        assert program == "bytemill"
        smaller = {"FILE...": corpus, "32000": "400"}
        outcome = run(*(smaller.get(word, word) for word in arguments))
        assert outcome.status == 0, (arguments, outcome.err)


def test_json_is_one_object(corpus: str, run: Run):
    outcome = run(f"quickstart out --model-steps 0 --corpus {corpus} -n 400 --json --quiet")
    assert outcome.err == ""
    result = json.loads(outcome.out)
    assert result["n_vocab"] == 400
    assert list(result["comparison"]["tokenizers"]) == ["bytes", "400 tokens"]
    assert {"shards", "timings", "seconds"} <= result.keys()


def test_several_files_and_globs_are_one_corpus(corpus: str, run: Run):
    files = ("corpus.txt", "many*.txt")
    outcome = run("quickstart", "out", "--model-steps", "0", "--corpus", *files, "-n", "400", "--json", "-q")
    result = json.loads(outcome.out)
    n_bytes = Path("corpus.txt").stat().st_size + Path(corpus).stat().st_size
    parts = result["shards"].values()
    ends = len("<|endoftext|>") * sum(part["n_documents"] for part in parts)
    assert sum(part["n_bytes"] for part in parts) == n_bytes + ends


def test_errors_are_errors(corpus: str, run: Run):
    missing = run("quickstart out --corpus nothing.txt")
    assert missing.status == 1
    assert "error: no such file: nothing.txt\n" in missing.err
    Path("mine").mkdir()
    Path("mine/tokenizer.json").write_text("precious")
    refused = run(f"quickstart mine --model-steps 0 --corpus {corpus}")
    assert refused.status == 1
    assert "error: mine holds files that are not from an earlier quickstart\n" in refused.err
    assert "hint: choose another folder: bytemill quickstart NAME\n" in refused.err
    assert Path("mine/tokenizer.json").read_text() == "precious"


def test_a_browser_is_opened_only_where_there_is_a_screen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda address: bool(opened.append(address)) or True)
    monkeypatch.setattr("sys.platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    page = tmp_path / "a page.html"
    assert not output.open_page(page.as_uri())
    assert opened == []
    monkeypatch.setenv("DISPLAY", ":0")
    assert output.open_page(page.as_uri())
    assert opened == [page.as_uri()]
