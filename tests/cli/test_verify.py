"""`bytemill tokenizer verify`: equal ids, the shortest text that differs, and libraries that do not read the file."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bytemill as bm

FEW = ("--random-texts", "40", "-q")


@pytest.fixture(autouse=True)
def _tokenizers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in (("a", "the cat and the hat "), ("b", "abcabcabc ")):
        bm.train_from_iterator(iter([text * 20]), 262, ["<|end|>"]).save(f"{name}.json")


def test_a_tokenizer_agrees_with_hugging_faces_library(run: Callable[..., Any]) -> None:
    outcome = run("tokenizer", "verify", "a.json", "the hat<|end|>", "--json", *FEW)
    assert outcome.status == 0, outcome.err
    found = json.loads(outcome.out)
    assert found["differences"] == []
    assert found["against"].startswith("tokenizers ")
    assert found["n_texts"] > 1000


def test_the_shortest_text_with_other_ids_is_printed(run: Callable[..., Any]) -> None:
    outcome = run("tokenizer", "verify", "a.json", "--against", "b.json", "--json", *FEW)
    assert outcome.status == 1
    of_ids = [each for each in json.loads(outcome.out)["differences"] if each["kind"] == "ids"]
    assert of_ids
    a, b = (bm.Tokenizer.load(f"{name}.json") for name in "ab")
    for each in of_ids:
        assert len(each["text"]) <= 3
        assert a.encode(each["text"]) != b.encode(each["text"])


def test_a_library_that_does_not_read_the_file_is_an_error(run: Callable[..., Any]) -> None:
    outcome = run("tokenizer", "verify", "a.json", "--against", "sentencepiece", *FEW)
    assert outcome.status == 1
    assert outcome.err.startswith("error: sentencepiece does not read a.json")
