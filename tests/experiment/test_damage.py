"""Damaged and hostile study folders: only errors of bytemill come out, which name the file, and nothing is written
elsewhere."""

from __future__ import annotations

import json
import random
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from bytemill.errors import BytemillError
from bytemill.experiment.findings import Findings
from bytemill.experiment.report import report

from .made_up import write_study

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

NUMBERS: list[Any] = [True, -1, 10**400, float("nan"), float("inf"), 1e308]
WRONG: list[Any] = [None, *NUMBERS, "", "\ud800", "../x", "/x", [], [[]], {}]
BYTES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "cut": lambda data: data[: len(data) // 2 - 1],
    "not UTF-8": lambda data: b"\xff\xfe" + data,
    "zeros": lambda data: bytes(len(data)),
    "ones": lambda data: b"\xff" * len(data),
    "deep": lambda _: b"[" * 100_000,
    "a list": lambda _: b"[1]\n",
    "longer": lambda data: data + b"\x01",
}
JSON_FILES = [
    "study.json",
    "results.jsonl",
    "failures.json",
    "figures.json",
    "cells/a.m.seed0/run/metrics.jsonl",
]
FILES = [*JSON_FILES, *(f"cells/a.m.seed0/{name}" for name in ("bits.x.f64", "bytes.x.i64", "unigram.x.f64"))]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of two seeds with a search of learning rates, hellaswag, samples and a failure."""
    return write_study(tmp_path_factory.mktemp("whole") / "study", n_seeds=2, has_everything=True)


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    """A copy of the study."""
    return shutil.copytree(whole, tmp_path / "study")


def show(folder: Path) -> None:
    """Do what `bytemill experiment report` does."""
    findings = Findings(folder)
    report(findings).encode()
    json.dumps(findings.to_dict())


def problem(folder: Path) -> BytemillError | None:
    """Return the error that a folder is reported with. Every other exception fails the test."""
    try:
        show(folder)
    except BytemillError as error:
        return error
    return None


def mutations(value: Any) -> Iterator[Any]:
    """Yield copies of a JSON value in which one entry is missing or wrong; of equal entries of a list, one changes."""
    if isinstance(value, dict):
        for key, own in value.items():
            yield {name: each for name, each in value.items() if name != key}
            for wrong in WRONG:
                yield {**value, key: wrong}
            for changed in mutations(own):
                yield {**value, key: changed}
        yield {**value, "../x": next(iter(value.values()), None)}
    elif isinstance(value, list) and value:
        for wrong in [*WRONG, *mutations(value[0])]:
            yield [wrong, *value[1:]]


def test_the_whole_study_is_shown(whole: Path):
    show(whole)


@pytest.mark.parametrize("how", BYTES)
@pytest.mark.parametrize("name", FILES)
def test_damaged_bytes_are_an_error_that_names_the_file(folder: Path, name: str, how: str):
    path = folder / name
    path.write_bytes(BYTES[how](path.read_bytes()))
    error = problem(folder)
    may_be_read = name.endswith("metrics.jsonl") or (how, name) == ("empty", "results.jsonl")  # as unfinished
    assert error or may_be_read
    assert error is None or (path.name in str(error) and error.hint)


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_an_error_or_leaves_its_part_out(folder: Path, name: str):
    (folder / name).unlink()
    error = problem(folder)
    assert (error is not None) == name.endswith(("study.json", "f64", "i64"))
    assert error is None or error.hint


@pytest.mark.parametrize("n_tried", [12, pytest.param(10_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", JSON_FILES)
def test_wrong_fields_are_errors_that_name_them(folder: Path, name: str, n_tried: int):
    path = folder / name
    lines = path.read_text().splitlines() if name.endswith("l") else [path.read_text()]
    kinds = {json.dumps(sorted(json.loads(line))): at for at, line in enumerate(lines)}  # a line of each kind
    changes = [(at, changed) for at in kinds.values() for changed in mutations(json.loads(lines[at]))]
    n_errors, tried = 0, random.Random(name).sample(changes, min(n_tried, len(changes)))
    for at, changed in tried:
        path.write_text("".join(f"{line}\n" for line in [*lines[:at], json.dumps(changed), *lines[at + 1 :]]))
        error = problem(folder)
        n_errors += error is not None
        assert error is None or any(word in str(error) for word in (path.name, "f64", "seed")), error
    assert n_errors >= len(tried) // 3
    assert [each.name for each in folder.parent.iterdir()] == ["study"]
