"""Processes of a run on one machine end together, and report the first error."""

import json
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bytemill.errors import OutputError, ProcessFailedError, RunConfigError
from bytemill.lm.training import launch
from bytemill.lm.training.config import Resolved, config_to_toml
from bytemill.lm.training.launch import train_on_devices
from bytemill.lm.training.metrics_log import read_metrics
from bytemill.lm.training.run_folder import RunFolder
from bytemill.lm.training.trainer import train

Settings = Callable[..., Resolved]

RANK = """
import json, os, signal, sys, time
rank = int(os.environ["RANK"])
request = json.loads(sys.stdin.readline())
def send(**line):
    print(json.dumps(line), flush=True)
def fail(type, message, at, traceback=""):
    send(kind="error", type=type, message=message, hint="a hint", traceback=traceback, time=at)
    open(has_failed, "w").close()
    os._exit(1)
def lose():
    fail("ProcessFailedError", "lost the connection", 0.0)
def wait():
    while os.read(0, 1):
        pass
    os._exit(1)
has_failed = os.environ["BYTEMILL_RENDEZVOUS"].removeprefix("file://") + ".failed"
def lose_after_a_failure():
    while not os.path.exists(has_failed):
        time.sleep(0.01)
    lose()
"""


@pytest.fixture
def ranks_do(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Replace the program of the processes by a few lines that import nothing large."""
    monkeypatch.setattr(launch, "_GRACE_SECONDS", 60)  # on a busy machine a process takes its time to start

    def replace(lines: str) -> None:
        monkeypatch.setattr(launch, "_COMMAND", [sys.executable, "-c", RANK + lines])

    return replace


def test_records_of_the_first_process_are_passed_on(ranks_do: Callable[[str], None], settings: Settings):
    ranks_do("if rank == 0: send(kind='start', step=0, config=request['config']['training']['steps'])")
    records: list[dict[str, Any]] = []
    train_on_devices(settings(training__steps=7), 2, on_record=records.append)
    assert records == [{"kind": "start", "step": 0, "config": 7}]


def test_an_exception_in_one_process_ends_the_others_and_shows_its_traceback(
    ranks_do: Callable[[str], None], settings: Settings, monkeypatch: pytest.MonkeyPatch
):
    ranks_do(
        "if rank == 1: fail('ZeroDivisionError', 'x', 5.0, 'Traceback: line 7\\n')\n"
        "lose_after_a_failure() if rank else wait()"
    )
    monkeypatch.setattr(launch, "_GRACE_SECONDS", 0.5)  # the first process waits for more than that
    with pytest.raises(ProcessFailedError, match=r"process 1 of 4 failed\nTraceback: line 7$") as caught:
        train_on_devices(settings(), 4)
    assert caught.value.hint == "run the same command again to start over (no checkpoint was saved yet)"


def test_an_error_of_the_user_is_raised_as_in_one_process(
    ranks_do: Callable[[str], None], settings: Settings
):
    ranks_do("fail('OutputError', f'no space in process {rank}', 2.0 - rank)")
    with pytest.raises(OutputError, match=r"^no space in process 1$") as caught:
        train_on_devices(settings(), 2)
    assert caught.value.hint == "a hint"


@pytest.mark.parametrize(
    ("end", "message"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "was killed by SIGKILL"),
        ("sys.exit('the last words')", "ended with exit code 1\nthe last words"),
    ],
)
def test_a_process_that_dies_is_named(
    ranks_do: Callable[[str], None], settings: Settings, end: str, message: str
):
    ranks_do(f"if rank == 1: {end}\nlose()")
    with pytest.raises(ProcessFailedError, match=f"process 1 of 2 {message}"):
        train_on_devices(settings(), 2)


def test_a_process_that_others_have_waited_for_is_named(
    ranks_do: Callable[[str], None], settings: Settings, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(launch, "_GRACE_SECONDS", 0.5)
    ranks_do("wait() if rank == 1 else os.kill(os.getpid(), signal.SIGABRT)")
    with pytest.raises(
        ProcessFailedError, match=r"^no answer of process 1; process [02] of 3 was killed by SIGABRT"
    ):
        train_on_devices(settings(training__batch_size=3), 3)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_passed_to_the_first_process(
    ranks_do: Callable[[str], None], settings: Settings, number: signal.Signals
):
    ranks_do(
        "if rank == 0:\n"
        "    is_asked = []\n"
        "    signal.signal(signal.SIGTERM, lambda *_: is_asked.append(True))\n"
        "    send(kind='start', step=0)\n"
        "    while not is_asked: time.sleep(0.01)\n"
        "    send(kind='checkpoint', step=3)\n"
        "sys.exit(130)"
    )
    kinds: list[str] = []

    def interrupt(record: dict[str, Any]) -> None:
        kinds.append(record["kind"])
        if record["kind"] == "start":
            os.kill(os.getpid(), number)

    with pytest.raises(KeyboardInterrupt):
        train_on_devices(settings(), 2, on_record=interrupt)
    assert kinds == ["start", "checkpoint"]


def test_an_exception_of_the_caller_ends_all_processes(ranks_do: Callable[[str], None], settings: Settings):
    ranks_do("send(kind='start', step=0, pid=os.getpid())\nwait()")
    pids: list[int] = []

    def fail(record: dict[str, Any]) -> None:
        pids.append(record["pid"])
        raise RuntimeError("the display fails")

    with pytest.raises(RuntimeError, match="display"):
        train_on_devices(settings(), 2, on_record=fail)
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


def test_processes_end_when_the_launcher_is_killed(
    ranks_do: Callable[[str], None], settings: Settings, tmp_path: Path
):
    path = f"{tmp_path}/pid_{{rank}}"
    child = f"open(f'{path}.tmp', 'w').write(str(os.getpid()))\nos.rename(f'{path}.tmp', f'{path}')\nwait()"
    ranks_do(child)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python 3.12 warns of threads; the child uses none of them
        launcher = os.fork()
    if launcher == 0:
        try:
            train_on_devices(settings(), 2)
        finally:
            os._exit(1)
    files = [tmp_path / f"pid_{rank}" for rank in range(2)]
    while not all(file.exists() for file in files):
        time.sleep(0.05)
    os.kill(launcher, signal.SIGKILL)
    os.waitpid(launcher, 0)
    for file in files:
        while is_running(int(file.read_text())):
            time.sleep(0.05)


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0]
    except FileNotFoundError:
        return False
    return state != "Z"  # killed, but not yet collected by the process that adopts it


def test_wrong_settings_are_refused_before_a_process_starts(
    ranks_do: Callable[[str], None], settings: Settings, monkeypatch: pytest.MonkeyPatch
):
    ranks_do("raise AssertionError")
    with pytest.raises(RunConfigError, match="cannot be divided evenly among 3 processes"):
        train_on_devices(settings(), 3)
    with pytest.raises(RunConfigError, match="device cuda:1 is one device, but the run has 2 processes"):
        train_on_devices(settings(training__device="cuda:1"), 2)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    with pytest.raises(RunConfigError, match=r"only 1 GPU$"):
        train_on_devices(settings(training__device="cuda"), 2)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(RunConfigError, match="in a process of torchrun"):
        train_on_devices(settings(), 2)


LIVE = {"training__batch_size": 4, "run__log_every": 1, "run__validate_every": 0, "run__checkpoint_every": 5}


@pytest.mark.slow
def test_a_run_whose_process_was_killed_resumes(settings: Settings, tmp_path: Path):
    def kill(record: dict[str, Any]) -> None:
        if record["kind"] == "step" and record["step"] == 8:
            os.kill(other_rank(), signal.SIGKILL)

    killed = settings(**LIVE, training__steps=10_000, schedule__name="constant")
    with pytest.raises(ProcessFailedError, match="process 1 of 2 was killed by SIGKILL") as caught:
        train_on_devices(killed, 2, on_record=kill)
    assert caught.value.hint == "run the same command again to resume from the last checkpoint"
    found = RunFolder(tmp_path / "run").load_newest()
    assert found is not None
    last = found.checkpoint.step + 5
    resumed = train(settings(**LIVE, training__steps=last, schedule__name="constant"))
    whole = train(
        settings(**LIVE, training__steps=last, schedule__name="constant", run__folder=str(tmp_path / "whole"))
    )
    assert losses(resumed) == pytest.approx(losses(whole), abs=1e-5)


@pytest.mark.slow
def test_ctrl_c_stops_all_processes_after_the_same_step_and_saves_once(settings: Settings, tmp_path: Path):
    kinds: list[str] = []

    def interrupt(record: dict[str, Any]) -> None:
        kinds.append(record["kind"])
        if record["kind"] == "step" and record["step"] == 3:
            os.kill(os.getpid(), signal.SIGINT)

    always = {**LIVE, "run__checkpoint_every": 0, "schedule__name": "constant"}
    with pytest.raises(KeyboardInterrupt):
        train_on_devices(settings(**always, training__steps=10_000), 2, on_record=interrupt)
    assert kinds.count("checkpoint") == 1
    found = RunFolder(tmp_path / "run").load_newest()
    assert found is not None
    last = found.checkpoint.step + 5
    resumed = train_on_devices(settings(**always, training__steps=last), 2)
    whole = train(settings(**always, training__steps=last, run__folder=str(tmp_path / "whole")))
    assert losses(resumed) == pytest.approx(losses(whole), abs=1e-5)


def losses(folder: RunFolder) -> list[float]:
    return [record["loss"] for record in read_metrics(folder.metrics, "step")]


def other_rank() -> int:
    """Return the process id of rank 1."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes().split(b"\0")
            parent = int((folder / "stat").read_text().rsplit(") ", 1)[1].split()[1])
        except OSError:
            continue
        if parent == os.getpid() and b"RANK=1" in environment:
            return int(folder.name)
    raise AssertionError


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_torchrun_trains_in_several_processes_and_one_of_them_reports(
    settings: Settings, tmp_path: Path, strategy: str
):
    config = tmp_path / "run.toml"
    config.write_text(config_to_toml(settings(**LIVE, training__steps=6, training__strategy=strategy)))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*torchrun, "-m", "bytemill", "lm", "train", str(config), "--json"],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert json.loads(done.stdout)["step"]["step"] == 6
    assert len(read_metrics(tmp_path / "run/metrics.jsonl", "step")) == 6
    assert "in 2 processes" in done.stderr
