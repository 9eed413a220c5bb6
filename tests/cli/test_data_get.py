"""`bytemill data get`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bytemill.datasets.catalogue import DATASETS, Dataset

Run = Callable[..., Any]
TEXT = b"Once upon a time there was a file.\n"


@pytest.fixture
def story(work: Path, monkeypatch: pytest.MonkeyPatch) -> Dataset:
    """A data set that is in the cache; there is no network."""
    dataset = Dataset(
        "story",
        "a story",
        "CC0-1.0",
        "https://example.org/story",
        "story.txt",
        len(TEXT),
        "2f4f8a1ff9a46f2b8a5a6e0bdbd4b4ac4b7f0f1c9b8a7f2a70c8ac9f8d0a3b11",
        "http://127.0.0.1:1/story.txt",
    )
    monkeypatch.setitem(DATASETS, "story", dataset)
    monkeypatch.setenv("BYTEMILL_CACHE", str(work / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(work / "hub"))
    folder = work / "cache" / "datasets"
    folder.mkdir(parents=True)
    (folder / "story.txt").write_bytes(TEXT)
    return dataset


def test_the_path_alone_stands_on_standard_output(story: Dataset, work: Path, run: Run):
    outcome = run("data get story")
    assert (outcome.status, outcome.out) == (0, f"{work / 'cache' / 'datasets' / 'story.txt'}\n")
    assert outcome.err == ""


def test_json_says_what_the_file_is(story: Dataset, work: Path, run: Run):
    answer = json.loads(run("data get story --json").out)
    assert answer["path"] == str(work / "cache" / "datasets" / "story.txt")
    assert (answer["sha256"], answer["licence"], answer["n_bytes"]) == (story.sha256, "CC0-1.0", len(TEXT))


def test_verify_computes_the_checksum(story: Dataset, run: Run):
    outcome = run("data get story --verify")
    assert outcome.status == 1
    assert "is not the published file of story: its sha256 is" in outcome.err
    assert "hint: --overwrite downloads it again" in outcome.err


def test_offline_is_one_error_with_a_hint(story: Dataset, run: Run):
    outcome = run("data get story --output here.txt")
    assert outcome.status == 1
    assert outcome.out == ""
    error, hint = outcome.err.splitlines()
    assert error == "error: story: cannot download here.txt from 127.0.0.1:1: Connection refused"
    assert hint.startswith(
        "hint: download http://127.0.0.1:1/story.txt on another machine, then: bytemill data get story --from-file"
    )
    assert not Path("here.txt").exists()


def test_the_list_has_sizes_and_licences_and_marks_what_is_downloaded(story: Dataset, run: Run):
    listed = run("data get --list").out
    for dataset in DATASETS.values():
        assert dataset.name in listed
        assert dataset.licence in listed
        assert dataset.homepage in listed
    [line] = [line for line in listed.splitlines() if line.startswith("story ")]
    assert line.split() == ["story", "35", "bytes", "downloaded"]


def test_the_list_is_json_on_request(story: Dataset, run: Run):
    listed = {entry["name"]: entry for entry in json.loads(run("data get --list --json").out)}
    assert list(listed) == list(DATASETS)
    assert listed["story"]["path"].endswith("story.txt")
    assert listed["tinystories"]["path"] is None
    assert listed["tinystories"]["n_bytes"] == 2_227_753_162


def test_without_a_name_there_is_nothing_to_get(story: Dataset, run: Run):
    outcome = run("data get")
    assert outcome.status == 2
    assert outcome.err.startswith("error: pass the name of a data set, or --list\n")


def test_an_unknown_name_is_answered_with_the_nearest(story: Dataset, run: Run):
    outcome = run("data get hellaswagg")
    assert outcome.status == 1
    assert "error: hellaswagg: no data set of that name\nhint: did you mean hellaswag?" in outcome.err
