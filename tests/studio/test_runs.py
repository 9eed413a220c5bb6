"""Runs and studies: metrics that are read while they grow, settings, and values that JSON lacks."""

import json
import math
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bytemill.lm.training import config
from bytemill.studio.library import Library
from bytemill.studio.routes import runs
from bytemill.studio.routes.runs import STEP_COLUMNS, NewMetrics, read_new
from tests.studio.conftest import client_of, id_of


def record(step: int, **values: object) -> dict[str, object]:
    own = {"loss": 1 / step, "n_tokens": 10 * step, "learning_rate": None}
    return {"kind": "step", "step": step, **own, **values}


def line(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode() + b"\n"


def lines(n: int, **values: object) -> bytes:
    return b"".join(line(record(step, **values)) for step in range(1, n + 1))


@given(cuts=st.lists(st.integers(0, 3000), max_size=8))
def test_pieces_give_the_whole_wherever_the_file_was_cut(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int]
):
    sample = {"kind": "sample", "step": 3, "text": "naïve 犬"}
    data = lines(19) + line(sample)
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
    assert samples == [sample]


def test_missing_and_wrong_values_are_not_numbers(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(
        line(record(1, loss=None)) + line(record(2, loss="high")) + b"[1]\nnot json\n" + line(record(3))
    )
    new = read_new(path)
    assert list(new.columns) == list(STEP_COLUMNS)
    assert new.columns["step"].tolist() == [1, 2, 3]
    assert str(new.columns["loss"].tolist()) == f"[nan, nan, {1 / 3}]"
    assert all(math.isnan(value) for value in new.columns["learning_rate"])


@pytest.mark.parametrize(
    "new",
    [
        lines(9, loss=2.0),  # shorter, as of a resumed run, which puts another file in its position
        lines(49, loss=2.0),  # longer, as of a run that starts over
    ],
)
@pytest.mark.parametrize("keeps_inode", [True, False])
def test_a_file_that_was_replaced_is_read_anew(tmp_path: Path, new: bytes, keeps_inode: bool):
    path, other = tmp_path / "metrics.jsonl", tmp_path / "other"
    path.write_bytes(lines(19, loss=1.0))
    first = read_new(path)
    (path if keeps_inode else other).write_bytes(new)
    if not keeps_inode:
        other.replace(path)
    second = read_new(path, first.cursor)
    assert second.is_reset
    assert second.columns["loss"].tolist() == [2.0] * new.count(b"\n")
    third: NewMetrics = read_new(path, second.cursor)
    assert (third.is_reset, len(third.columns["step"])) == (False, 0)


@pytest.mark.parametrize(
    "cursor", ["", "x", ":", "1-2:-5", "9:9:9", "a" * 1000, "1:" + "9" * 5000, "0-0:99999999999999999999"]
)
def test_any_cursor_is_harmless(tmp_path: Path, cursor: str):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(line(record(1)))
    assert read_new(path, cursor).columns["step"].tolist() == [1]


def test_runs_and_their_metrics(client: httpx.Client, root: Path):
    run = next(each for each in client.get("/runs").json()["runs"] if each["name"] == "runs/first")
    assert run["checkpoints"] == [2, 4, 6]
    assert run["config"]["model.d_model"] == 16
    # A browser learns no paths of this machine.
    assert config.TABLE in tomllib.loads((root / "runs" / "first" / "config.toml").read_text())
    assert not [name for name in run["config"] if name.startswith(config.TABLE)]
    assert runs._PATHS == config.TABLE  # pyright: ignore[reportPrivateUsage]
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


@pytest.fixture(scope="module")
def odd_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs that have finished, that have not, and with numbers that JSON lacks."""
    root = tmp_path_factory.mktemp("runs")
    for name, settings, step in (
        ("finished", "[training]\nsteps = 6\n", 6),
        ("stopped", "[training]\nsteps = 7\n", 6),
        ("odd", "[training]\nsteps = nan\nrate = inf\n", 6),
        ("without", "", 6),
        ("removed", "not toml = = \n", 6),
    ):
        folder = root / name
        (folder / "checkpoints" / f"step_{step:08d}").mkdir(parents=True)
        (folder / "config.toml").write_text(settings)
        (folder / "metrics.jsonl").write_text(
            '{"kind": "step", "step": 1, "loss": NaN}\n'
            '{"kind": "validation", "step": 1, "bits_per_byte": Infinity, "classes": {"a": {"loss": -Infinity}}}\n'
        )
    return root


@pytest.fixture(scope="module")
def odd(odd_root: Path) -> Iterator[httpx.Client]:
    with client_of(Library(odd_root)) as own:
        yield own


def test_a_run_is_finished_when_the_checkpoint_of_its_last_step_is_there(odd: httpx.Client, odd_root: Path):
    found = {run["name"]: run for run in odd.get("/runs").json()["runs"]}
    is_finished = {name: run["is_finished"] for name, run in found.items()}
    assert is_finished == {
        "finished": True,
        "stopped": False,
        "odd": False,
        "without": False,
        "removed": False,
    }
    (odd_root / "removed" / "metrics.jsonl").unlink()
    answer = odd.get(f"/runs/{found['removed']['id']}/metrics")
    assert (answer.status_code, "cannot be read" in answer.json()["detail"]) == (422, True)
    assert "removed" not in {each["name"] for each in odd.get("/runs").json()["runs"]}


def test_numbers_that_json_lacks_are_null(odd: httpx.Client):
    def refuse(constant: str) -> Any:
        raise AssertionError(f"{constant} is no JSON")

    answer = odd.get("/runs")
    (run,) = (run for run in json.loads(answer.text, parse_constant=refuse)["runs"] if run["name"] == "odd")
    assert run["config"] == {"training.steps": None, "training.rate": None}
    metrics = json.loads(odd.get(f"/runs/{run['id']}/metrics").text, parse_constant=refuse)
    (validation,) = metrics["others"]["validation"]
    assert validation == {
        "kind": "validation", "step": 1, "bits_per_byte": None, "classes": {"a": {"loss": None}},
    }  # fmt: skip
