"""A run in an object store resumes on another machine, and loses nothing that was uploaded."""

import hashlib
import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bytemill.errors import BytemillError, CheckpointError, OutputError, StorageError
from bytemill.lm.training.config import Resolved
from bytemill.lm.training.metrics_log import read_metrics
from bytemill.lm.training.run_checkpoint import MANIFEST, read_checkpoint
from bytemill.lm.training.run_folder import RUN_NAME, RunFolder, StoredRun
from bytemill.lm.training.saved_model import find_saved_model, load_trained
from bytemill.lm.training.trainer import train
from bytemill.storage import StoreFolder
from tests.support.s3_server import Request, S3Server

Settings = Callable[..., Resolved]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Moves to another machine: it has another cache folder."""

    def move(name: str) -> None:
        monkeypatch.setenv("BYTEMILL_CACHE", str(tmp_path / name))

    move("first")
    return move


def files_of(run: RunFolder, step: int) -> dict[str, bytes]:
    checkpoint = run.checkpoint_path(step)
    names = ("model.safetensors", "optimizer/process_00000.safetensors")
    return {name: (checkpoint / name).read_bytes() for name in names}


def losses(run: RunFolder) -> list[Any]:
    return [(record["step"], record["loss"]) for record in read_metrics(run.metrics, "step")]


def test_another_machine_goes_on(
    settings: Settings, s3: S3Server, machine: Callable[[str], None], tmp_path: Path
):
    expected = train(settings(training__steps=9, run__checkpoint_every=3, run__log_every=1))
    url = f"{s3.bucket()}/runs/mine"
    changes: dict[str, Any] = {"run__folder": url, "run__checkpoint_every": 3, "run__log_every": 1}

    def stop(record: dict[str, Any]) -> None:
        if (record["kind"], record["step"]) == ("checkpoint", 6):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(settings(training__steps=9, **changes), on_record=stop)
    store = StoreFolder(url)
    names = store.list()
    assert {"config.toml", "metrics.jsonl", "tokenizer.json", RUN_NAME} <= names.keys()
    assert len({name.split("/")[1] for name in names if name.startswith("checkpoints/")}) == 1
    machine("second")
    run = train(settings(training__steps=9, **changes))
    assert files_of(run, 9) == files_of(expected, 9)
    assert losses(run) == losses(expected)
    assert json.loads(store.get(RUN_NAME).data)["step"] == 9  # pyright: ignore[reportOptionalMemberAccess]
    # A third one only reads.
    machine("third")
    model = load_trained(url)
    assert model.step == 9
    assert find_saved_model(url).path.is_relative_to(tmp_path / "third")
    # A copy made by the store's own tool is a folder of a run.
    copy = tmp_path / "copy"
    for name in store.list():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        store.download(name, copy / name)
    assert find_saved_model(copy).step == 9


def test_an_older_checkpoint_in_the_store_is_not_fetched(
    settings: Settings, s3: S3Server, machine: Callable[[str], None]
):
    url = s3.bucket() + "/run"
    changes: dict[str, Any] = {"run__folder": url, "run__checkpoint_every": 2}
    train(settings(training__steps=2, **changes))
    store = StoreFolder(url)
    with (
        s3.fault(lambda request: "403" if request.method == "PUT" else None),
        pytest.raises(StorageError) as failed,
    ):
        train(settings(training__steps=4, **changes))
    assert "the checkpoint was not uploaded: " in str(failed.value)
    assert "run the same command again to upload it" in str(failed.value.hint)
    assert json.loads(store.get(RUN_NAME).data)["step"] == 2  # pyright: ignore[reportOptionalMemberAccess]
    run = train(settings(training__steps=4, **changes))
    assert json.loads(store.get(RUN_NAME).data)["step"] == 4  # pyright: ignore[reportOptionalMemberAccess]
    machine("second")
    assert find_saved_model(url).step == 4
    assert run.stored is not None


def test_an_upload_that_failed_is_tried_again_at_the_end(
    settings: Settings, s3: S3Server, machine: Callable[[str], None]
):
    url, n_failed = s3.bucket() + "/run", 0

    def fail_once(request: Request) -> str | None:
        nonlocal n_failed
        if request.method == "PUT" and "trainer.json" in request.path and not n_failed:
            n_failed += 1
            return "403"
        return None

    with s3.fault(fail_once):
        train(settings(run__folder=url, training__steps=2))
    assert n_failed == 1
    machine("second")
    assert find_saved_model(url).step == 2
    assert (
        len({name.split("/")[1] for name in StoreFolder(url).list() if name.startswith("checkpoints/")}) == 1
    )


def test_of_two_machines_one_fails(settings: Settings, s3: S3Server, machine: Callable[[str], None]):
    url = s3.bucket() + "/run"
    changes: dict[str, Any] = {"run__folder": url, "run__checkpoint_every": 2, "training__steps": 4}
    has_begun = False

    def other_machine(record: dict[str, Any]) -> None:
        nonlocal has_begun
        if record["kind"] == "start" and not has_begun:
            has_begun = True
            machine("second")
            train(settings(**changes))
            machine("first")

    with pytest.raises(OutputError, match=r"another process has written the run s3://"):
        train(settings(**changes), on_record=other_machine)
    machine("third")
    assert find_saved_model(url).step == 4
    assert (
        len({name.split("/")[1] for name in StoreFolder(url).list() if name.startswith("checkpoints/")}) == 1
    )


def test_overwriting(settings: Settings, s3: S3Server, machine: Callable[[str], None]):
    url = s3.bucket() + "/run"
    train(settings(run__folder=url, training__steps=4))
    machine("second")
    with pytest.raises(CheckpointError, match="has other settings"):
        train(settings(run__folder=url, training__steps=2, training__seed=5))
    train(settings(run__folder=url, training__steps=2, training__seed=5), overwrite=True)
    machine("third")
    assert find_saved_model(url).step == 2
    StoreFolder(url).put(RUN_NAME, b"{")
    with pytest.raises(CheckpointError, match=r"run\.json is damaged"):
        find_saved_model(url)


@pytest.mark.parametrize("what", ["503", "lose", "truncate"])
def test_faults(settings: Settings, s3: S3Server, machine: Callable[[str], None], what: str):
    url, chosen, lock = s3.bucket() + "/run", random.Random(what), threading.Lock()

    def fault(_: Request) -> str | None:
        with lock:
            return what if chosen.random() < 0.1 else None

    with s3.fault(fault):
        run = train(settings(run__folder=url, run__checkpoint_every=1, training__steps=2))
        machine("second")
        assert find_saved_model(url).step == 2
    fetched = RunFolder(url)
    assert (fetched.checkpoint_path(2) / "model.safetensors").read_bytes() == (
        run.checkpoint_path(2) / "model.safetensors"
    ).read_bytes()


def test_damage_is_noticed(settings: Settings, s3: S3Server, machine: Callable[[str], None]):
    url = s3.bucket() + "/run"
    train(settings(run__folder=url, training__steps=2))
    store = StoreFolder(url)
    name = next(name for name in store.list() if name.endswith("model.safetensors"))
    store.put(name, bytes(store.size(name) or 0))
    machine("second")
    with pytest.raises(StorageError, match="has sha256"):
        find_saved_model(url)
    with pytest.raises(BytemillError):
        find_saved_model(s3.bucket() + "/nothing")


WHOLE: dict[str, Any] = {
    "format": 1, "step": 7, "folder": "checkpoints/step_00000007.0123456789ab", "files": {"a": [1, None]},
}  # fmt: skip
NAMES = ["", "/abs", "../up", "a/../../up", "a//b", "a\\b", ".", "a\x00"]
WRONG: list[Any] = [None, True, -1, 1.5, float("nan"), [], [[]], {}, *NAMES]


class OneObject:
    """A store whose only object is `run.json`; the files that this names can be read too."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def get(self, name: str) -> Any:
        assert name == RUN_NAME
        return SimpleNamespace(data=self.data, version=None)

    def size(self, _: str) -> int | None:
        return None

    def download(self, _: str, path: Path, *_more: Any) -> None:
        path.write_bytes(b"x")


def hostile() -> Iterator[bytes]:
    """Yield contents of `run.json` that are to be refused."""
    whole = json.dumps(WHOLE).encode()
    yield from (b"", whole[:-9], b"\xff" + whole, bytes(len(whole)), b"[1]", b"[" * 100_000, b"null")
    changed = [{name: value for name, value in WHOLE.items() if name != key} for key in WHOLE]
    changed += [{**WHOLE, key: value} for key in WHOLE for value in WRONG if (key, value) != ("files", {})]
    changed += [{**WHOLE, "files": {name: [1, None]}} for name in NAMES]
    changed += [{**WHOLE, "files": {"a": value}} for value in WRONG]
    changed += [
        {**WHOLE, "files": {"a": [1, value]}}
        for value in WRONG
        if not (value is None or isinstance(value, str))
    ]
    yield from (json.dumps(each).encode() for each in changed)


def test_a_hostile_run_json_is_refused_and_creates_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    store = OneObject(b"")
    monkeypatch.setattr("bytemill.lm.training.run_folder.StoreFolder", lambda _: store)
    for store.data in hostile():
        with pytest.raises(CheckpointError) as raised:
            StoredRun("s3://bucket/run", tmp_path / "run").fetch()
        assert str(raised.value).startswith("s3://bucket/run/run.json ")
        assert raised.value.hint
    assert list(tmp_path.iterdir()) == []
    store.data = json.dumps(WHOLE).encode()
    StoredRun("s3://bucket/run", tmp_path / "run").fetch()
    assert [each.name for each in tmp_path.glob("run/checkpoints/step_00000007/*")] == ["a"]


def test_a_checkpoint_that_names_files_outside_is_refused(settings: Settings):
    checkpoint = train(settings(training__steps=1)).checkpoint_path(1)
    manifest = checkpoint / MANIFEST
    whole = json.loads(manifest.read_text())
    for files in ({"../x": "0"}, {"/etc/passwd": "0"}, ["a"], None, {"": ""}):
        document = {name: value for name, value in whole.items() if name != "sha256"} | {"files": files}
        digest = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
        manifest.write_text(json.dumps({**document, "sha256": digest}))
        with pytest.raises(CheckpointError, match="is damaged"):
            read_checkpoint(checkpoint)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="platform: signals")
def test_machines_that_are_killed(
    settings: Settings, s3: S3Server, machine: Callable[[str], None], corpus: Any, tmp_path: Path
):
    """Two machines are killed at random times; a third one ends the run with the result of one."""
    expected = train(settings(training__steps=40, run__checkpoint_every=2))
    url, chosen = s3.bucket() + "/run", random.Random(2)
    resolved = settings(run__folder=url, training__steps=40, run__checkpoint_every=2)
    sections = resolved.config.to_dict().items()
    values = {f"{section}.{name}": value for section, own in sections for name, value in own.items()}
    code = f"""
import json, time
from bytemill.lm.training.config import resolve
from bytemill.lm.training.trainer import train
train(resolve([("the test", json.loads({json.dumps(values)!r}))], n_vocab={corpus.tokenizer.n_vocab}),
    on_record=lambda record: (print(record["kind"], flush=True), time.sleep(0.05)))
"""
    for number in range(2):
        machine(f"killed{number}")
        with subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True
        ) as process:
            assert process.stdout
            for line in process.stdout:
                if line == "checkpoint\n":
                    break
            time.sleep(chosen.random())
            process.send_signal(signal.SIGKILL)
        assert process.returncode == -signal.SIGKILL
    machine("last")
    run = train(resolved)
    assert files_of(run, 40) == files_of(expected, 40)
