"""Folders with files that cannot be read: what is offered, what is left out, and that all else still works."""

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from bytemill.studio.library import Library
from bytemill.studio.server import listen, running
from tests.studio.conftest import id_of

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="platform: names that are not UTF-8, and named pipes"
)

STEP = json.dumps({"kind": "step", "step": 1, "loss": 5.0}) + "\n"
DEEP = "[" * 100_000


def make_run(folder: Path, config: str = "[model]\nd_model = 8\n", metrics: str = STEP) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(config)
    (folder / "metrics.jsonl").write_text(metrics)
    return folder


def fill_with_odd_files(top: Path, outside: Path, root: Path) -> None:
    """Make every kind of file that cannot be read below `top`."""
    outside.mkdir()
    (outside / "secret.toml").write_text('password = "hunter2"\n')
    (outside / "secret.jsonl").write_text(json.dumps({"kind": "sample", "text": "hunter2"}) + "\n")
    (outside / "secret.txt").write_text("hunter2")
    shutil.copytree(root / "runs" / "first" / "checkpoints", outside / "checkpoints")
    (top / "loop.txt").symlink_to(top / "loop.txt")
    (top / "loop").symlink_to(top)
    (top / "gone.json").symlink_to(top / "nothing.json")
    (top / "away.txt").symlink_to(outside / "secret.txt")
    (top / "elsewhere").symlink_to(outside)
    for name in ("pipe.txt", "pipe.json", "pipe.gguf", "tokenizer.json"):
        os.mkfifo(top / name)
    for name in (b"caf\xe9.txt", b"caf\xe9.json"):
        Path(os.fsdecode(os.fsencode(top / "x")[:-1] + name)).write_text("{}")
    make_run(Path(os.fsdecode(os.fsencode(top / "runs" / "x")[:-1] + b"caf\xe9")))
    for part in ("config.toml", "metrics.jsonl"):
        own = make_run(top / "runs" / f"pipe {part}")
        (own / part).unlink()
        os.mkfifo(own / part)
        own = make_run(top / "runs" / f"away {part}")
        (own / part).unlink()
        (own / part).symlink_to(outside / f"secret{Path(part).suffix}")
    (make_run(top / "runs" / "away checkpoints") / "checkpoints").symlink_to(outside / "checkpoints")
    own = make_run(top / "runs" / "away step") / "checkpoints"
    own.mkdir()
    (own / "step_1").symlink_to(next((outside / "checkpoints").glob("step_*")))
    make_run(top / "runs" / "deep array", config=f"a = {DEEP}")
    make_run(top / "runs" / "deep keys", config=f"a{'.a' * 5000} = 1\n")
    make_run(top / "runs" / "deep values", config=f"a = {'[' * 200}{']' * 200}\n")
    deep = f'{{"kind": "sample", "step": 1, "text": {"[" * 200}{"]" * 200}}}\n'
    odd = [
        f"{DEEP}\n",
        deep,
        '{"kind": "sample", "step": 1, "text": "\\ud800"}\n',
        STEP.replace("5.0", "1" + "0" * 400),
    ]
    make_run(top / "runs" / "deep metrics", metrics=STEP + "".join(odd) + STEP)
    for name in ("deep model", "pipe model"):
        (top / name).mkdir()
        (top / name / "model.json").write_text(DEEP)
        (top / name / "model.safetensors").write_bytes(b"")
    (top / "pipe model" / "model.json").unlink()
    os.mkfifo(top / "pipe model" / "model.json")
    (top / "study").mkdir()
    (top / "study" / "study.toml").write_text("")
    os.mkfifo(top / "study" / "study.json")
    shutil.copytree(root / "study", top / "study of pipes")
    next((top / "study of pipes").glob("cells/*/*.f64")).unlink()
    os.mkfifo(next((top / "study of pipes").glob("cells/*")) / "bits.pipe.f64")
    shutil.copytree(root / "runs" / "first", top / "runs" / "pipe weights")
    weights = sorted((top / "runs" / "pipe weights" / "checkpoints").glob("step_*"))[-1] / "model.safetensors"
    weights.unlink()
    os.mkfifo(weights)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Iterator[httpx.Client]:
    """A client of a studio whose folder has every kind of odd file, beside a few good ones."""
    folder = tmp_path_factory.mktemp("odd")
    top = folder / "root"
    top.mkdir()
    fill_with_odd_files(top, folder / "outside", root)
    (top / "good.txt").write_text("good")
    (top / "linked.txt").symlink_to(top / "good.txt")
    shutil.copy(root / "smaller.json", top / "good.json")
    make_run(top / "runs" / "good")
    with (
        running(Library(top), listen(port=0)) as url,
        httpx.Client(base_url=f"{url}api/v1", timeout=20, trust_env=False) as own,
    ):
        yield own


def names(answer: httpx.Response, kind: str) -> set[str]:
    assert answer.status_code == 200, answer.text
    return {each["name"] for each in answer.json()[kind] if each["origin"] not in ("bundled", "published")}


def test_all_that_can_be_read_is_offered_and_works(client: httpx.Client):
    sources = client.get("/sources")
    assert {"good", "runs/pipe weights"} == names(sources, "tokenizers")
    assert {"good.txt", "linked.txt"} == names(sources, "texts")
    runs = {run["name"]: run for run in client.get("/runs").json()["runs"]}
    deep = {"runs/deep array", "runs/deep keys", "runs/deep values"}
    assert set(runs) == {"runs/good", "runs/deep metrics", "runs/pipe weights", *deep}
    assert runs["runs/good"]["config"] == {"model.d_model": 8}
    assert all(runs[name]["config"] == {} for name in deep)
    for name in ("good.txt", "linked.txt"):
        answer = client.post("/texts", json={"source": id_of(client, name, "texts")})
        assert answer.json()["text"] == "good"
    assert client.get("/models").status_code == 200


def test_what_is_left_out_is_listed_with_its_reason(client: httpx.Client):
    found = client.get("/skipped").json()
    reasons = {each["name"]: each["reason"] for each in found["skipped"]}
    outside, pipe = "it is a link that leads outside this folder", "it is not a regular file"
    assert reasons == {
        "loop.txt": "it is a link that leads to itself",
        "gone.json": "it is a link that leads to nothing",
        "away.txt": outside,
        "elsewhere": outside,
        **dict.fromkeys(("pipe.txt", "pipe.json", "pipe.gguf", "tokenizer.json"), pipe),
        **dict.fromkeys(("caf\ufffd.txt", "caf\ufffd.json", "runs/caf\ufffd"), "its name is not UTF-8"),
        **{f"runs/pipe {part}/{part}": pipe for part in ("config.toml", "metrics.jsonl")},
        **{f"runs/away {part}/{part}": outside for part in ("config.toml", "metrics.jsonl")},
        "runs/away checkpoints/checkpoints": outside,
        "runs/away step/checkpoints/step_1": outside,
        **{
            f"runs/deep {what}/config.toml": "it is nested too deeply" for what in ("array", "keys", "values")
        },
        "pipe model/model.json": pipe,
        "study/study.json": pipe,
    }
    assert found["n_skipped"] == len(reasons)


def test_no_answer_holds_what_is_outside_the_folder(client: httpx.Client):
    everything = [client.get(f"/{path}").text for path in ("sources", "skipped", "runs", "models")]
    runs = client.get("/runs").json()["runs"]
    everything += [client.get(f"/runs/{run['id']}/metrics").text for run in runs]
    assert "hunter2" not in "".join(everything)


def test_odd_records_of_a_run_are_left_out(client: httpx.Client):
    answer = client.get(f"/runs/{id_of(client, 'runs/deep metrics', 'runs')}/metrics")
    assert answer.status_code == 200
    assert answer.json()["others"] == {"sample": [{"kind": "sample", "step": 1, "text": "?"}]}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("deep model", "deep model/model.json is damaged"),
        ("runs/pipe weights", "model.safetensors cannot be read: it is not a regular file"),
    ],
)
def test_a_model_with_odd_files_is_an_error_that_names_the_file(
    client: httpx.Client, name: str, message: str
):
    answer = client.post(f"/models/{id_of(client, name, 'models')}/surprisal", json={"text": "a"})
    assert answer.status_code == 422
    assert message in answer.json()["detail"]


def test_a_study_with_odd_files_is_an_error_that_names_the_file(client: httpx.Client):
    answer = client.get(f"/studies/{id_of(client, 'study of pipes', 'studies')}")
    assert answer.status_code == 422
    assert "bits.pipe.f64 cannot be read: it is not a regular file" in answer.json()["detail"]


@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_a_file_that_was_replaced_after_the_search_is_not_followed(tmp_path: Path, root: Path, kind: str):
    folder = tmp_path / "root"
    run = make_run(folder / "run")
    (folder / "a.txt").write_text("a")
    shutil.copy(root / "smaller.json", folder / "a.json")
    (tmp_path / "secret").write_text(STEP)
    with (
        running(Library(folder), listen(port=0)) as url,
        httpx.Client(base_url=f"{url}api/v1", timeout=20, trust_env=False) as own,
    ):
        found = [id_of(own, "a.txt", "texts"), id_of(own, "a"), id_of(own, "run", "runs")]
        for path in (folder / "a.txt", folder / "a.json", run / "metrics.jsonl"):
            path.unlink()
            os.mkfifo(path) if kind == "pipe" else path.symlink_to(tmp_path / "secret")
        answers = [
            own.post("/texts", json={"source": found[0]}),
            own.get(f"/tokenizers/{found[1]}"),
            own.get(f"/runs/{found[2]}/metrics"),
        ]
    for answer in answers:
        assert answer.status_code in (404, 422)  # 404: the folder was searched again in between
        assert "loss" not in answer.text


def test_a_folder_that_cannot_be_listed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "closed").mkdir()
    scan: Any = os.scandir

    def refused(path: Any = ".") -> Any:
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refused)
    skipped = Library(tmp_path).shelf().skipped
    assert skipped == {"closed": "Permission denied"}


def test_files_that_were_named_are_left_out_for_the_same_reasons(tmp_path: Path, root: Path):
    os.mkfifo(tmp_path / "pipe.json")
    run = make_run(tmp_path / "run")
    (run / "checkpoints").symlink_to(root)
    shelf = Library(None, [str(tmp_path / "pipe.json"), str(run)]).shelf()
    assert not shelf.runs
    assert set(shelf.skipped) == {"pipe.json", "run/checkpoints"}


def test_a_root_whose_name_is_not_utf8(tmp_path: Path):
    root = Path(os.fsdecode(os.fsencode(tmp_path / "x")[:-1] + b"caf\xe9"))
    make_run(root / "run")
    with running(Library(root), listen(port=0)) as url:
        api = f"{url}api/v1"
        assert httpx.get(f"{api}/status", trust_env=False).json()["root"] == "caf\ufffd"
        assert httpx.get(f"{api}/runs", trust_env=False).json()["runs"][0]["argument"] == "run"
