"""Results are whole or absent, and of two attempts one counts."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bytemill.data.stage import FolderStage, Stage, StoreStage, digest
from bytemill.errors import BytemillError
from bytemill.storage import StoreFolder

if TYPE_CHECKING:
    from tests.support.s3_server import S3Server


@pytest.fixture(params=["folder", "store"])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Stage:
    stage: Stage = FolderStage(tmp_path / "units")
    if request.param == "store":
        s3: S3Server = request.getfixturevalue("s3")
        stage = StoreStage(StoreFolder(f"{s3.bucket()}/units"))
    stage.create()
    return stage


def content_of(stage: Stage, result: dict[str, Any]) -> bytes:
    file, n_bytes = result["files"]["ids"]
    content = stage.read_all(file)
    assert stage.read(file, 1, n_bytes - 1) == content[1:]
    with stage.range_as_file(file, 1, n_bytes) as (path, start, stop):
        assert path.read_bytes()[start:stop] == content[1:]
    return content


def names_in(stage: Stage) -> list[str]:
    if isinstance(stage, StoreStage):
        return sorted(stage.store.list())
    assert isinstance(stage, FolderStage)
    return sorted(path.name for path in stage.folder.iterdir())


def write(stage: Stage, name: str, data: bytes | None) -> None:
    if isinstance(stage, StoreStage):
        stage.store.put(name, data) if data is not None else stage.store.delete([name])
    else:
        assert isinstance(stage, FolderStage)
        path = stage.folder / name
        path.write_bytes(data) if data is not None else path.unlink()


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
    assert content_of(stage, result) == b"second"
    assert len(names_in(stage)) == 2
    assert attempt(stage, b"third")["who"] == 2
    assert len(names_in(stage)) == 2


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
    assert names_in(stage) == []
    with pytest.raises(BytemillError, match="cannot write"):
        publish_nothing()
    assert names_in(stage) == []


@pytest.mark.parametrize("damage", ["data gone", "data short", "JSON short", "JSON of others"])
def test_a_damaged_result_is_none_and_is_replaced(stage: Stage, damage: str) -> None:
    result = attempt(stage, b"content")
    data = result["files"]["ids"][0]
    match damage:
        case "data gone":
            write(stage, data, None)
        case "data short":
            write(stage, data, b"con")
        case "JSON short":
            write(stage, "a.json", b'{"fil')
        case _:
            write(stage, "a.json", b"[1]")
    assert stage.result("a") is None
    attempt(stage, b"again")
    again = stage.result("a")
    assert again is not None
    assert content_of(stage, again) == b"again"
    assert stage.results(["b", "a"]) == {1: again}
    stage.remove()
    assert stage.results(["b", "a"]) == {}


def test_sweeping_keeps_results(stage: Stage) -> None:
    attempt(stage, b"content")
    write(stage, "b.0123.ids", b"left")
    write(stage, "b.json", b'{"files": {"ids": ["b.0123.ids", 99]}}')
    if isinstance(stage, FolderStage):
        (stage.folder / "b.0123.tmp").mkdir()
    assert stage.sweep() == ["b"]
    assert [name.rpartition(".")[2] for name in names_in(stage)] == ["ids", "json"]
    assert stage.result("a") is not None


def test_sweeping_removes_results_of_other_content(tmp_path: Path) -> None:
    stage = FolderStage(tmp_path)
    attempt(stage, b"content")
    assert stage.sweep() == []
    next(tmp_path.glob("a.*.ids")).write_bytes(b"CONTENT")
    assert stage.result("a") is not None  # workers compare sizes only
    assert stage.sweep() == ["a"]
    assert names_in(stage) == []


def test_a_wrong_number_in_a_record_is_damage(stage: Stage) -> None:
    with stage.attempt("a") as first:
        first.publish({"n_tokens": 512})
    write(stage, "a.json", json.dumps(stage.result("a")).encode().replace(b"512", b"513"))
    assert stage.result("a") is None


def test_data_that_is_gone_is_an_error(stage: Stage) -> None:
    for read in (lambda: stage.read_all("none"), lambda: stage.read("none", 0, 5)):
        with pytest.raises((BytemillError, FileNotFoundError)):
            read()
    file = attempt(stage, b"content")["files"]["ids"][0]
    with pytest.raises(BytemillError, match=r"shorter|ends at byte"):
        stage.read(file, 3, 100)


def test_file_systems_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = FolderStage(tmp_path)

    def refuse(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "link", refuse)
    assert attempt(stage, b"content")["content"] == "content"
    assert stage.result("a") is not None


def test_digests_depend_on_every_part() -> None:
    values = [digest(1, [2]), digest(1, [2, 3]), digest({"a": 1}), digest({"a": 2}), digest()]
    assert len({*values}) == len(values)
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
