"""Results are whole or absent, and of two attempts one counts."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from bytemill.cluster.stage import Stage, digest
from bytemill.errors import OutputError


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    stage = Stage(tmp_path / "units")
    stage.create()
    return stage


def path_of(stage: Stage, result: dict[str, Any]) -> Path:
    return stage.folder / result["files"]["ids"][0]


def attempt(stage: Stage, content: bytes) -> dict[str, Any]:
    with stage.attempt("a") as attempt:
        attempt.file("ids").write_bytes(content)
        return attempt.publish({"content": content.decode()})


def test_the_first_attempt_counts(stage: Stage) -> None:
    assert stage.result("a") is None
    with stage.attempt("a") as first, stage.attempt("a") as second:
        first.file("ids").write_bytes(b"first")
        second.file("ids").write_bytes(b"second")
        assert second.publish({"who": 2})["who"] == 2
        assert first.publish({"who": 1})["who"] == 2
    result = stage.result("a")
    assert result is not None
    assert path_of(stage, result).read_bytes() == b"second"
    assert len(list(stage.folder.iterdir())) == 2
    assert attempt(stage, b"third")["who"] == 2
    assert len(list(stage.folder.iterdir())) == 2


def test_a_failed_attempt_leaves_nothing(stage: Stage) -> None:
    def fail() -> None:
        with stage.attempt("a") as failing:
            failing.file("ids").write_bytes(b"x")
            (failing.folder() / "inner").write_bytes(b"y")
            raise ZeroDivisionError

    def publish_nothing() -> None:
        with stage.attempt("a") as missing:
            missing.file("ids")
            missing.publish({})

    with pytest.raises(ZeroDivisionError):
        fail()
    assert list(stage.folder.iterdir()) == []
    with pytest.raises(OutputError, match="cannot write"):
        publish_nothing()
    assert list(stage.folder.iterdir()) == []


@pytest.mark.parametrize("damage", ["data gone", "data short", "JSON short", "JSON of others"])
def test_a_damaged_result_is_none_and_is_replaced(stage: Stage, damage: str) -> None:
    result = attempt(stage, b"content")
    data = path_of(stage, result)
    final = stage.folder / "a.json"
    match damage:
        case "data gone":
            data.unlink()
        case "data short":
            data.write_bytes(b"con")
        case "JSON short":
            final.write_bytes(final.read_bytes()[:10])
        case _:
            final.write_text(json.dumps([1]))
    assert stage.result("a") is None
    attempt(stage, b"again")
    again = stage.result("a")
    assert again is not None
    assert path_of(stage, again).read_bytes() == b"again"


def test_sweeping_keeps_results(stage: Stage) -> None:
    attempt(stage, b"content")
    (stage.folder / "b.0123.ids").write_bytes(b"left")
    (stage.folder / "b.json").write_text('{"files": {"ids": ["b.0123.ids", 99]}}')
    (stage.folder / "b.0123.tmp").mkdir()
    stage.sweep()
    assert sorted(path.suffix for path in stage.folder.iterdir()) == [".ids", ".json"]
    assert stage.result("a") is not None


def test_file_systems_without_links(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "link", refuse)
    assert attempt(stage, b"content")["content"] == "content"
    assert stage.result("a") is not None


def test_digests_depend_on_every_part() -> None:
    values = [digest(1, [2]), digest(1, [2, 3]), digest({"a": 1}), digest({"a": 2}), digest()]
    assert len({*values}) == len(values)
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
