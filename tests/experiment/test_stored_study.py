"""A study in an object store: another machine runs what is missing, and shows it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from bytemill.errors import StorageError
from bytemill.experiment import run_study
from bytemill.experiment.findings import Findings
from bytemill.experiment.report import report
from bytemill.storage import StoreFolder

from .conftest import InThisProcess

if TYPE_CHECKING:
    from pathlib import Path

    from bytemill.experiment.runner import Event
    from tests.support.s3_server import S3Server


def test_another_machine_goes_on(
    study_file: Path, tmp_path: Path, s3: S3Server, monkeypatch: pytest.MonkeyPatch
):
    study_file.write_text(study_file.read_text().replace("seeds = 2", "seeds = 1"))
    expected = run_study(study_file, tmp_path / "here", execute=InThisProcess())
    url = f"{s3.bucket()}/study"

    def stop(event: Event) -> None:
        if event.kind == "finished" and event.n_done == 1:
            raise KeyboardInterrupt

    monkeypatch.setenv("BYTEMILL_CACHE", str(tmp_path / "first"))
    with pytest.raises(KeyboardInterrupt):
        run_study(study_file, url, execute=InThisProcess(), on_event=stop)
    monkeypatch.setenv("BYTEMILL_CACHE", str(tmp_path / "second"))
    assert len(Findings(url).missing) == 1
    executor = InThisProcess()
    folder = run_study(study_file, url, execute=executor)
    assert len(executor.performed) == 1
    assert folder.results.read_bytes() == expected.results.read_bytes()
    monkeypatch.setenv("BYTEMILL_CACHE", str(tmp_path / "third"))
    assert report(Findings(url)) == report(Findings(folder.path))
    names = StoreFolder(url).list()
    assert {"report.html", "results.jsonl", "study.toml", "study.json"} <= names.keys()
    assert not [name for name in names if "checkpoints" in name or name.startswith(("text/", "shards/"))]
    executor.performed.clear()
    run_study(study_file, url, execute=executor)
    assert executor.performed == []


def test_a_result_is_uploaded_after_its_files(
    study_file: Path, tmp_path: Path, s3: S3Server, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("BYTEMILL_CACHE", str(tmp_path / "first"))
    url = f"{s3.bucket()}/study"
    with (
        s3.fault(lambda request: "403" if request.method == "PUT" and "/bytes." in request.path else None),
        pytest.raises(StorageError),
    ):
        run_study(study_file, url, execute=InThisProcess())
    assert not [name for name in StoreFolder(url).list() if name.endswith("result.json")]


@pytest.mark.parametrize("name", ["/x/result.json", "../x/result.json", "cells/../../x.json", "a\\b.json"])
def test_names_that_leave_the_folder_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str):
    store = SimpleNamespace(list=lambda: {"study.json": 1, name: 1})
    monkeypatch.setattr("bytemill.experiment.results.StoreFolder", lambda _: store)
    monkeypatch.setenv("BYTEMILL_CACHE", str(tmp_path))
    with pytest.raises(StorageError, match="which is no file of a study"):
        Findings("s3://bucket/study")
    assert list(tmp_path.iterdir()) == []
