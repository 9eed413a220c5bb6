"""Metrics that are read while they grow."""

import json
import math
from pathlib import Path

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bytemill.studio.run_files import STEP_COLUMNS, read_new
from tests.studio.conftest import id_of


def record(step: int, **values: object) -> dict[str, object]:
    return {
        "kind": "step",
        "step": step,
        "loss": 1 / step,
        "n_tokens": 10 * step,
        "learning_rate": None,
        **values,
    }


def line(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode() + b"\n"


@given(cuts=st.lists(st.integers(0, 3000), max_size=8))
def test_pieces_give_the_whole_wherever_the_file_was_cut(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int]
):
    records = [record(step) for step in range(1, 20)] + [{"kind": "sample", "step": 3, "text": "naïve 犬"}]
    data = b"".join(map(line, records))
    path = tmp_path_factory.mktemp("feed") / "metrics.jsonl"
    path.write_bytes(b"")
    steps: list[float] = []
    samples: list[object] = []
    cursor = ""
    for end in [*sorted(cuts), len(data)]:
        with path.open("ab") as file:
            file.write(data[file.tell() : end])
        new = read_new(path, cursor)
        if new.is_reset:
            steps.clear()
            samples.clear()
        cursor = new.cursor
        steps += new.columns["step"].tolist()
        samples += new.others.get("sample", [])
    assert steps == list(range(1, 20))
    assert samples == [records[-1]]


def test_missing_and_wrong_values_are_not_numbers(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(
        line(record(1, loss=None)) + line(record(2, loss="high")) + b"[1]\nnot json\n" + line(record(3))
    )
    new = read_new(path)
    assert list(new.columns) == list(STEP_COLUMNS)
    assert new.columns["step"].tolist() == [1, 2, 3]
    assert np.isnan(new.columns["loss"][:2]).all()
    assert new.columns["loss"][2] == pytest.approx(1 / 3)
    assert all(math.isnan(value) for value in new.columns["learning_rate"])


def test_a_longer_file_with_the_inode_of_the_last_one_is_read_anew(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b"".join(line(record(step, loss=1.0)) for step in range(1, 20)))
    first = read_new(path)
    path.write_bytes(
        b"".join(line(record(step, loss=2.0)) for step in range(1, 50))
    )  # as of a run that starts over
    second = read_new(path, first.cursor)
    assert second.is_reset
    assert second.columns["loss"].tolist() == [2.0] * 49


def test_a_file_that_was_replaced_is_read_anew(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b"".join(line(record(step)) for step in range(1, 50)))
    first = read_new(path)
    # As a resumed run does: a shorter file in its position, which then grows.
    other = tmp_path / "other"
    other.write_bytes(b"".join(line(record(step)) for step in range(1, 20)))
    other.replace(path)
    second = read_new(path, first.cursor)
    assert second.is_reset
    assert len(second.columns["step"]) == 19
    third = read_new(path, second.cursor)
    assert not third.is_reset
    assert len(third.columns["step"]) == 0


@pytest.mark.parametrize(
    "cursor", ["", "x", ":", "1-2:-5", "9:9:9", "a" * 1000, "1:" + "9" * 5000, "0-0:99999999999999999999"]
)
def test_any_cursor_is_harmless(tmp_path: Path, cursor: str):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(line(record(1)))
    assert read_new(path, cursor).columns["step"].tolist() == [1]


def test_runs_and_their_metrics(client: httpx.Client):
    run = next(each for each in client.get("/runs").json()["runs"] if each["name"] == "runs/first")
    assert run["checkpoints"] == [2, 4, 6]
    assert run["config"]["model.d_model"] == 16
    assert run["tokenizer"] == id_of(client, "runs/first")
    found = client.get(f"/runs/{run['id']}/metrics").json()
    assert {"validation", "sample"} <= set(found["others"])
    assert found["others"]["validation"][-1]["classes"]
    again = client.get(f"/runs/{run['id']}/metrics", params={"cursor": found["cursor"]}).json()
    assert not again["is_reset"]
    assert again["others"] == {}


def test_a_study_is_what_the_report_says(client: httpx.Client, root: Path):
    results = [json.loads(line) for line in (root / "study" / "results.jsonl").read_text().splitlines()]
    found = client.get(f"/studies/{id_of(client, 'study', 'studies')}").json()
    assert found["study"]["title"] == "Two sizes"
    assert len(found["missing"]) == 2
    own = [result["bits_per_byte"]["x"] for result in results if result["tokenizer"] == "a"]
    assert found["bits_per_byte"]["x"][0]["value"] == pytest.approx(sum(own) / len(own))


def test_a_run_that_is_removed_is_gone_from_the_list(root: Path, client: httpx.Client):
    own = root / "runs" / "short"
    own.mkdir()
    (own / "config.toml").write_text("not toml = = \n")
    (own / "metrics.jsonl").write_bytes(line(record(1)))
    import time

    time.sleep(2.1)
    run = id_of(client, "runs/short", "runs")
    (own / "metrics.jsonl").unlink()
    assert client.get(f"/runs/{run}/metrics").status_code == 422
    assert all(each["name"] != "runs/short" for each in client.get("/runs").json()["runs"])
    (own / "config.toml").unlink()
    own.rmdir()
