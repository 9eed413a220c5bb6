"""Checkpoints during training: written in the background, published whole, kept or removed."""

import errno
import json
import os
import random
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from bytemill.data.verification import BackgroundCheck
from bytemill.errors import CheckpointError, CheckpointFormatError, OutputError, ShardError
from bytemill.lm.generation.decoding import generate
from bytemill.lm.training import run_checkpoint
from bytemill.lm.training.config import Resolved
from bytemill.lm.training.run_checkpoint import FORMAT, MANIFEST, OPTIMIZER, TRAINER, WEIGHTS
from bytemill.lm.training.run_folder import RunFolder
from bytemill.lm.training.saved_model import load_trained
from bytemill.lm.training.trainer import train

from ..conftest import Corpus, RankServer

Settings = Callable[..., Resolved]
SHORT: dict[str, Any] = {
    "training__steps": 6, "schedule__name": "constant", "run__log_every": 1, "run__validate_every": 0,
    "run__checkpoint_every": 2, "run__async_checkpoints": "always",
}  # fmt: skip


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def step(n: int) -> str:
    return f"step_{n:08d}"


def test_training_continues_while_a_checkpoint_is_written(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
):
    may_write = Event()
    real = run_checkpoint.write_tensors

    def wait_and_write(*arguments: Any) -> str:
        assert may_write.wait(60)
        return real(*arguments)

    monkeypatch.setattr(run_checkpoint, "write_tensors", wait_and_write)
    seen: list[tuple[str, int]] = []

    def look(record: dict[str, Any]) -> None:
        seen.append((record["kind"], record["step"]))
        if seen[-1] == ("step", 3):
            may_write.set()

    folder = train(settings(**SHORT, model__dropout=0.2), on_record=look)
    assert seen.index(("step", 3)) < seen.index(("checkpoint", 2))
    assert [n for kind, n in seen if kind == "checkpoint"] == [2, 4, 6]
    monkeypatch.undo()
    shutil.rmtree(folder.checkpoint_path(6))
    resumed = load_file(train(settings(**SHORT, model__dropout=0.2)).checkpoint_path(6) / WEIGHTS)
    blocking = {**SHORT, "run__async_checkpoints": "never"}
    whole = settings(**blocking, model__dropout=0.2, run__folder=f"{folder.path}-2")
    expected = load_file(train(whole).checkpoint_path(6) / WEIGHTS)
    assert all(resumed[name].equal(expected[name]) for name in expected)


def test_a_damaged_line_of_the_metrics_is_reported_on_resume(settings: Settings):
    folder = train(settings(**{**SHORT, "training__steps": 2}))
    first, *rest = folder.metrics.read_bytes().splitlines(keepends=True)
    folder.metrics.write_bytes(b"#" + b"".join([first, *rest]))
    records: list[dict[str, Any]] = []
    train(settings(**{**SHORT, "training__steps": 3}), on_record=records.append)
    (notice,) = (record["text"] for record in records if record["kind"] == "notice")
    assert (
        notice == f"1 line of {folder.metrics} could not be read: see {folder.path / 'metrics.damaged.jsonl'}"
    )
    assert folder.metrics.read_bytes().startswith(b"".join(rest))


@pytest.mark.parametrize("role", ["train", "validation"])
def test_replaced_shards_end_the_run_before_a_checkpoint(
    settings: Settings, corpus: Corpus, tmp_path: Path, role: str
):
    shards = Path(shutil.copytree(corpus.folder / role, tmp_path / "shards"))
    resolved = settings(**{**SHORT, "training__steps": 4, f"data__{role}": str(shards)})
    folder = train(resolved)
    shard = shards / "shard_00000.npy"
    before, data = shard.stat(), bytearray(shard.read_bytes())
    data[-1:] = b"\0" if data[-1] else b"\1"
    shard.write_bytes(data)
    os.utime(shard, ns=(before.st_atime_ns, before.st_mtime_ns))
    longer = settings(**{**SHORT, f"data__{role}": str(shards)})
    for resolved_again, kept in ((longer, [step(2), step(4)]), (settings_in(longer, tmp_path / "new"), [])):
        with pytest.raises(
            ShardError, match=r"shards/shard_00000\.npy has other content than when it was enc"
        ):
            train(resolved_again)
        assert names(RunFolder(resolved_again.config.run.folder).checkpoints) == kept
    assert folder.load_newest() is not None


def test_a_checkpoint_waits_until_the_shards_are_verified(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
):
    may_verify = Event()
    monkeypatch.setattr(BackgroundCheck, "_check", lambda *_: may_verify.wait(60))
    records: list[tuple[str, int]] = []

    def look(record: dict[str, Any]) -> None:
        records.append((record["kind"], record["step"]))
        if record["kind"] == "notice":
            assert "waits until all shards are verified" in record["text"]
            may_verify.set()

    train(settings(**{**SHORT, "training__steps": 4}), on_record=look)
    assert [kind for kind, _ in records if kind != "step"] == [
        "start",
        "notice",
        "checkpoint",
        "checkpoint",
        "end",
    ]


def settings_in(resolved: Resolved, folder: Path) -> Resolved:
    run = resolved.config.run.model_copy(update={"folder": str(folder)})
    return Resolved(resolved.config.model_copy(update={"run": run}), resolved.origins)


@pytest.mark.parametrize("asynchronous", ["always", "never"])
def test_a_full_disk_ends_the_run_and_the_last_checkpoint_remains(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, asynchronous: str
):
    real = run_checkpoint.write_tensors
    n_written = 0

    def write_half(file: Any, *arguments: Any) -> str:
        nonlocal n_written
        n_written += 1
        if n_written == 4:  # the optimizer's state of the second checkpoint
            file.write(b"half")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(file, *arguments)

    monkeypatch.setattr(run_checkpoint, "write_tensors", write_half)
    resolved = settings(**{**SHORT, "run__async_checkpoints": asynchronous})
    with pytest.raises(
        OutputError, match=r"cannot write .*/step_00000004/.*: no space is left on the device"
    ) as caught:
        train(resolved)
    assert "free some space" in (caught.value.hint or "")
    folder = RunFolder(resolved.config.run.folder)
    assert names(folder.checkpoints) == [step(2)]
    assert names(folder.path / "checkpoints" / step(2)) == [MANIFEST, WEIGHTS, OPTIMIZER, TRAINER]
    assert load_trained(folder.path).step == 2
    monkeypatch.undo()
    assert train(resolved).checkpoint_files()[0].name == step(6)


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_at_any_moment_of_a_save_the_run_resumes_bit_for_bit(
    settings: Settings, rank_server: RankServer, tmp_path: Path, every: int
):
    changes = {"training__steps": 2, "run__checkpoint_every": 1, "run__keep_checkpoints": 1}
    always = {**SHORT, **changes, "model__dropout": 0.2}
    expected = load_file(train(settings(**always)).checkpoint_path(2) / WEIGHTS)
    left: list[list[str]] = []
    for call in range(1, 100, every):
        resolved = settings(**always, run__folder=str(tmp_path / f"killed_{call}"))
        if rank_server(1, resolved, last_call={0: call}) == [None]:
            break
        folder = RunFolder(resolved.config.run.folder)
        left.append([name for name in names(folder.checkpoints) if not name.startswith(".")])
        weights = load_file(train(resolved).checkpoint_path(2) / WEIGHTS)
        assert all(weights[name].equal(expected[name]) for name in expected)
        assert names(folder.checkpoints) in ([step(2)], [step(1), step(2)])
    assert len(left) * every >= 12
    assert left[0] == [step(1)]
    assert step(2) in left[-1]
    assert all(visible for visible in left)


def test_equal_runs_have_equal_files(settings: Settings):
    resolved = settings(training__steps=2, model__dropout=0.1, optimizer__ema_decay=0.5)
    checkpoints: list[dict[str, bytes]] = []
    for _ in range(2):
        _ = random.random(), np.random.random(), torch.rand(1)  # as other code of the process may
        (path,) = train(resolved, overwrite=True).checkpoint_files()
        files = (file for file in path.rglob("*") if file.is_file())
        checkpoints.append({file.relative_to(path).as_posix(): file.read_bytes() for file in files})
    assert checkpoints[0].keys() >= {WEIGHTS, TRAINER, MANIFEST}
    for name, content in checkpoints[0].items():
        assert checkpoints[1][name] == content, name


def test_multiples_of_keep_every_are_saved_and_kept_for_ever(settings: Settings):
    changes = {
        "training__steps": 11,
        "run__checkpoint_every": 4,
        "run__keep_every": 3,
        "run__keep_checkpoints": 1,
    }
    folder = train(settings(**{**SHORT, **changes}))
    assert names(folder.checkpoints) == [step(n) for n in (3, 6, 9, 11)]


def test_a_damaged_newer_checkpoint_does_not_displace_a_new_one(settings: Settings):
    changes = {**SHORT, "run__keep_checkpoints": 2}
    folder = train(settings(**changes))
    (folder.checkpoint_path(6) / WEIGHTS).write_bytes(b"")
    train(settings(**{**changes, "training__steps": 5, "run__keep_checkpoints": 1}))
    assert names(folder.checkpoints) == [step(5)]


def test_generation_reads_nothing_but_the_weights(settings: Settings):
    folder = train(settings(**{**SHORT, "training__steps": 2}))
    path = folder.checkpoint_path(2)
    expected = generate(load_trained(folder.path).model, [1], 8, seed=1)
    for file in (path / OPTIMIZER).iterdir():
        file.write_bytes(b"damaged")
    assert generate(load_trained(folder.path).model, [1], 8, seed=1) == expected
    shutil.rmtree(path / OPTIMIZER)
    (path / TRAINER).unlink()
    assert generate(load_trained(path).model, [1], 8, seed=1) == expected
    with pytest.raises(CheckpointError, match=r"no checkpoint in .* is usable: cannot read .*trainer\.json"):
        train(settings(**SHORT))


@pytest.mark.parametrize("file", [WEIGHTS, MANIFEST])
@pytest.mark.parametrize("damage", ["cut", "changed"])
def test_damaged_weights_are_refused_by_name(settings: Settings, file: str, damage: str):
    folder = train(settings(**{**SHORT, "training__steps": 1}))
    path = folder.checkpoint_path(1) / file
    data = bytearray(path.read_bytes())
    data[-30] ^= 1
    path.write_bytes(data if damage == "changed" else data[:-30])
    with pytest.raises(CheckpointError, match=rf"{file} is damaged"):
        load_trained(path.parent)
    with pytest.raises(CheckpointError, match=rf"no checkpoint in .* is usable: .*{file} is damaged"):
        load_trained(folder.path)


def test_a_checkpoint_of_another_format_is_refused_and_not_skipped(settings: Settings):
    folder = train(settings(**SHORT))
    manifest = folder.checkpoint_path(6) / MANIFEST
    manifest.write_text(json.dumps({"format": FORMAT + 1}))
    for load in (lambda: load_trained(folder.path), lambda: train(settings(**SHORT))):
        with pytest.raises(
            CheckpointFormatError, match="format 2, but this version of bytemill reads format 1"
        ) as caught:
            load()
        assert "--overwrite" in (caught.value.hint or "")
    train(settings(**SHORT), overwrite=True)


def test_a_run_that_fails_while_it_writes_completes_the_checkpoint(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
):
    has_failed = Event()
    real = run_checkpoint.write_tensors

    def wait_and_write(*arguments: Any) -> str:
        assert has_failed.wait(60)
        return real(*arguments)

    def fail(record: dict[str, Any]) -> None:
        if (record["kind"], record["step"]) == ("step", 3):
            has_failed.set()
            raise RuntimeError("the power fails")

    monkeypatch.setattr(run_checkpoint, "write_tensors", wait_and_write)
    resolved = settings(**SHORT)
    with pytest.raises(RuntimeError, match="power"):
        train(resolved, on_record=fail)
    assert names(RunFolder(resolved.config.run.folder).checkpoints) == [step(2)]


def test_ctrl_c_waits_for_the_checkpoint(settings: Settings):
    def interrupt(record: dict[str, Any]) -> None:
        if (record["kind"], record["step"]) == ("step", 3):
            os.kill(os.getpid(), signal.SIGINT)

    resolved = settings(**SHORT)
    with pytest.raises(KeyboardInterrupt):
        train(resolved, on_record=interrupt)
    folder = RunFolder(resolved.config.run.folder)
    assert not [name for name in names(folder.checkpoints) if name.startswith(".")]
    assert load_trained(folder.path).step in (3, 4)


def test_no_code_in_a_checkpoint_is_executed(settings: Settings):
    folder = train(settings(**{**SHORT, "training__steps": 1}))
    for path in folder.checkpoint_path(1).rglob("*"):
        assert path.is_dir() or path.suffix in (".json", ".safetensors")
