"""`tokenizer compare`: tables, JSON, files, groups by name, errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Run = Callable[..., Any]


@pytest.fixture
def command(tokenizer_file: str, run: Run) -> tuple[str, ...]:
    assert run("tokenizer train corpus.txt -n 280 -o other.json -q").status == 0
    return ("tokenizer", "compare", tokenizer_file, "other.json")


def test_groups_have_a_table_each(command: tuple[str, ...], run: Run):
    outcome = run(*command, "--text", "corpus.txt", "lines=corpus.txt", "--documents", "line")
    assert outcome.status == 0, outcome.err
    for expected in ("text: ", "lines: ", "trigram bits/byte", "bytes/token", "other", "* best"):
        assert expected in outcome.out
    assert "counting lines" in outcome.err


def test_json_and_files_have_the_same_values(command: tuple[str, ...], run: Run):
    outcome = run(*command, "--text", "corpus.txt", "-o", "table.json", "--json", "-q")
    assert outcome.status == 0, outcome.err
    assert json.loads(outcome.out) == json.loads(Path("table.json").read_text(encoding="utf-8"))
    assert outcome.err == ""
    assert run(*command, "--text", "corpus.txt", "-o", "table.md").status == 0
    assert Path("table.md").read_text(encoding="utf-8").startswith("## text")


def test_languages_have_a_table(command: tuple[str, ...], run: Run):
    Path("parallel").mkdir()
    Path("parallel/en.txt").write_text("a b\nc d\n")
    Path("parallel/de.txt").write_text("ä ö\nü ß\n", encoding="utf-8")
    outcome = run(*command, "--text", "corpus.txt", "--parallel", "parallel", "--ngram-bytes", "0")
    assert "relative to en" in outcome.out
    assert "Gini coefficient" in outcome.out
    assert "trigram bits/byte" in outcome.out


def test_errors_say_what_to_do(command: tuple[str, ...], run: Run):
    assert run(*command).status == 2
    alone = run("tokenizer compare other.json --text corpus.txt")
    assert alone.status == 1
    assert "hint: give 2 to 20 of them" in alone.err
    typo = run(*command, "--text", "corpus.txt", "--documents", "<|endoftxt|>")
    assert "documents is '<|endoftxt|>', which is not a special token\nhint: did you mean <|end" in typo.err
    missing = run(*command, "--text", "nothing.txt")
    assert missing.status == 1
    assert "nothing.txt" in missing.err
    assert run(*command, "--text", "corpus.txt", "-o", "x.xlsx").status == 1
