"""Counting and encoding on a Ray cluster, and what may die on the way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Self

import psutil
import pytest

import bytemill as bm
from bytemill.cluster import UnitProgress, count_corpus, encode_corpus, open_executor
from bytemill.corpus import Corpus
from bytemill.data.executors import executor as schedule
from bytemill.errors import BytemillError, ClusterError
from bytemill.storage import StoreFolder
from bytemill.training.counting import CountingSettings
from bytemill.training.counting import count_corpus as count_in_one_process
from bytemill.training.counts import save
from bytemill.training.work_folder import WorkFolder
from tests.cluster.corpora import EOT, files_of
from tests.support.stored_shards import assert_stored

if TYPE_CHECKING:
    from collections.abc import Callable

    from bytemill.cluster import Executor
    from tests.cluster.conftest import StartCluster
    from tests.support.s3_server import Request, S3Server

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="platform: the nodes have loopback addresses other than 127.0.0.1"
)

SHARDS: dict[str, Any] = {"shard_tokens": 20_000}


@pytest.fixture(scope="module")
def files(paths: list[Path], tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Some files of different formats, and a large one: 300 units in all."""
    large = tmp_path_factory.mktemp("large") / "large.txt"
    large.write_text(paths[3].read_text(encoding="utf-8") * 150, encoding="utf-8")
    return [*paths, large]


@pytest.fixture(scope="module")
def expected(
    tok: bm.Tokenizer, files: list[Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("one")
    bm.encode_corpus(tok, Corpus(files), folder, **SHARDS)
    return files_of(folder)


def check(executor: Executor, tok: bm.Tokenizer, files: list[Path], folder: Path, unit_bytes: int) -> None:
    """Check that the executor encodes and counts as one process does."""
    counting = CountingSettings([EOT], num_threads=1)
    bm.encode_corpus(tok, Corpus(files), folder / "one", **SHARDS)
    encode_corpus(executor, tok, Corpus(files), folder / "many", unit_bytes=unit_bytes, **SHARDS)
    assert files_of(folder / "many") == files_of(folder / "one")
    save(
        count_corpus(executor, Corpus(files), counting, folder / "work", unit_bytes=unit_bytes), folder / "m"
    )
    with WorkFolder(None) as work:
        save(count_in_one_process(Corpus(files), counting, work), folder / "1")
    assert (folder / "m").read_bytes() == (folder / "1").read_bytes()


def test_a_node_gives_the_result_of_one_process(
    tok: bm.Tokenizer, paths: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path.cwd()), os.environ.get("PYTHONPATH", "")]))
    with open_executor("ray", num_workers=2) as executor:
        assert executor.description == "2 Ray tasks on 1 node"
        check(executor, tok, paths, tmp_path, 20_000)


@pytest.mark.cluster
def test_two_nodes_give_the_result_of_one_process(
    tok: bm.Tokenizer, files: list[Path], tmp_path: Path, start_cluster: StartCluster
) -> None:
    cluster = start_cluster(2)
    with open_executor("ray", address=cluster.address) as executor:
        assert executor.description == "2 Ray tasks on 2 nodes"
        check(executor, tok, files, tmp_path, 500_000)


def unit_bytes_of(files: list[Path]) -> int:
    return sum(path.stat().st_size for path in files) // 120


def encode(executor: Executor, tok: bm.Tokenizer, files: list[Path], out: Path, progress: Any = None) -> None:
    unit_bytes = unit_bytes_of(files)
    encode_corpus(executor, tok, Corpus(files), out, unit_bytes=unit_bytes, progress=progress, **SHARDS)


def workers() -> list[psutil.Process]:
    """Return the processes that are running a task. Others of that name belong to a node, and end it with them."""
    found: list[psutil.Process] = []
    for process in psutil.process_iter(["cmdline"]):
        command: list[str] = process.info["cmdline"] or []
        if command and command[0].startswith("ray::_run"):
            found.append(process)
    return found


class Killer:
    """Kills processes that run a task, at random times inside the block."""

    def __init__(self, n_kills: int) -> None:
        self.n_left = n_kills
        self._random = Random(3)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._kill)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _kill(self) -> None:
        while self.n_left and not self._is_over.wait(self._random.uniform(0.05, 0.4)):
            if found := workers():
                self._random.choice(found).kill()
                self.n_left -= 1


@pytest.mark.cluster
def test_workers_killed_at_random_times(
    tok: bm.Tokenizer,
    files: list[Path],
    expected: dict[str, bytes],
    tmp_path: Path,
    start_cluster: StartCluster,
) -> None:
    cluster = start_cluster(3)
    with open_executor("ray", address=cluster.address) as executor, Killer(30) as killer:
        n_rounds = 0
        while killer.n_left and n_rounds < 20:
            n_rounds += 1
            encode(executor, tok, files, tmp_path / f"{n_rounds}")
            assert files_of(tmp_path / f"{n_rounds}") == expected
    assert killer.n_left == 0


@pytest.mark.cluster
def test_nodes_that_share_only_an_object_store(
    tok: bm.Tokenizer, files: list[Path], tmp_path: Path, s3: S3Server, start_cluster: StartCluster
) -> None:
    """Their inputs are there too. Workers are killed, and a tenth of the requests fail."""
    bucket = s3.bucket()
    store = StoreFolder(f"{bucket}/corpus")
    for path in files:
        store.upload(path.name, path)
    corpus = Corpus([f"{store}/{path.name}" for path in files])
    bm.encode_corpus(tok, corpus, tmp_path / "one", **SHARDS)
    chosen, lock = Random(4), threading.Lock()

    def fault(_: Request) -> str | None:
        with lock:
            return chosen.choice(["503", "lose", "drop"]) if chosen.random() < 0.1 else None

    cluster = start_cluster(3)
    with open_executor("ray", address=cluster.address) as executor, Killer(8) as killer, s3.fault(fault):
        n_rounds = 0
        while killer.n_left and n_rounds < 10:
            n_rounds += 1
            url = f"{bucket}/shards{n_rounds}"
            encode_corpus(executor, tok, corpus, url, unit_bytes=4 * unit_bytes_of(files), **SHARDS)
            assert_stored(url, tmp_path / f"copy{n_rounds}", tmp_path / "one")
    assert killer.n_left == 0


@pytest.mark.cluster
def test_a_node_that_dies(
    tok: bm.Tokenizer,
    files: list[Path],
    expected: dict[str, bytes],
    tmp_path: Path,
    start_cluster: StartCluster,
) -> None:
    cluster = start_cluster(3)
    nodes = list(cluster.worker_nodes)
    seen: list[UnitProgress] = []
    is_over = threading.Event()

    def lose_nodes() -> None:
        while nodes and not is_over.wait(0.01):
            raylet = nodes[-1].all_processes["raylet"][0].process.pid
            # A task takes less time than its node to die, so it is stopped first: its work is lost.
            if busy := [process for process in workers() if process.ppid() == raylet]:
                for process in busy:
                    process.suspend()
                cluster.remove_node(nodes.pop(), allow_graceful=False)
                for process in busy:
                    process.kill()

    thread = threading.Thread(target=lose_nodes)
    with open_executor("ray", address=cluster.address) as executor:
        thread.start()
        encode(executor, tok, files, tmp_path / "out", progress=seen.append)
        is_over.set()
        thread.join()
    assert not nodes
    assert max(event.n_retried for event in seen) > 0
    assert files_of(tmp_path / "out") == expected


def job(cluster: Any, out: Path, files: list[Path]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.cluster.ray_job", cluster.address, "encode", str(out)]
    return subprocess.Popen(
        [*command, str(unit_bytes_of(files)), *map(str, files)], stderr=subprocess.PIPE, text=True
    )


def finished_units(out: Path) -> set[str]:
    return {path.name for path in out.glob(".units/*.json") if path.name.count(".") == 1}


def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.cluster
def test_a_driver_that_is_killed_loses_only_the_units_in_flight(
    files: list[Path], expected: dict[str, bytes], tmp_path: Path, start_cluster: StartCluster
) -> None:
    cluster, out, random = start_cluster(3), tmp_path / "out", Random(5)
    for _ in range(4):
        before = finished_units(out)
        process = job(cluster, out, files)
        n_more = random.randrange(5, 20)
        until(lambda: len(finished_units(out)) >= len(before) + n_more or process.poll() is not None)  # noqa: B023
        process.kill()
        process.communicate()
        assert before <= finished_units(out)
        assert not (out / "manifest.json").exists()
    process = job(cluster, out, files)
    _, said = process.communicate(timeout=120)
    assert (process.returncode, said) == (0, "")
    assert files_of(out) == expected


@pytest.mark.cluster
def test_a_head_node_that_dies(
    files: list[Path], expected: dict[str, bytes], tmp_path: Path, start_cluster: StartCluster
) -> None:
    cluster, out = start_cluster(3), tmp_path / "out"
    process = job(cluster, out, files)
    until(lambda: len(finished_units(out)) >= 15)
    for kind in cluster.head_node.all_processes.values():
        for info in kind:
            info.process.kill()
    _, said = process.communicate(timeout=120)
    assert process.returncode != 0
    assert not (out / "manifest.json").exists()
    cluster.shutdown()
    before = finished_units(out)
    assert len(before) >= 15
    process = job(start_cluster(2), out, files)
    _, said = process.communicate(timeout=120)
    assert (process.returncode, said) == (0, "")
    assert files_of(out) == expected


@pytest.mark.cluster
def test_a_stalled_worker_gets_a_second_copy(
    tok: bm.Tokenizer,
    files: list[Path],
    expected: dict[str, bytes],
    tmp_path: Path,
    start_cluster: StartCluster,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(schedule, "SLOW_SECONDS", 2.0)
    cluster, stopped = start_cluster(3), list[psutil.Process]()

    def stall(event: UnitProgress) -> None:
        if event.n_done > 20 and not stopped:
            for process in workers()[:1]:
                process.send_signal(signal.SIGSTOP)
                stopped.append(process)

    with open_executor("ray", address=cluster.address) as executor:
        encode(executor, tok, files, tmp_path / "out", progress=stall)
        for process in stopped:
            if process.is_running():
                process.send_signal(signal.SIGCONT)
    assert stopped
    assert files_of(tmp_path / "out") == expected


@pytest.mark.cluster
@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="platform: mounts a small file system")
def test_a_full_disk(
    tok: bm.Tokenizer,
    files: list[Path],
    expected: dict[str, bytes],
    tmp_path: Path,
    start_cluster: StartCluster,
) -> None:
    cluster, disk = start_cluster(3), tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)], check=True)
    try:
        with open_executor("ray", address=cluster.address) as executor:
            with pytest.raises(BytemillError, match="no space is left"):
                encode(executor, tok, files, disk / "out")
            assert not (disk / "out" / "manifest.json").exists()
            subprocess.run(["mount", "-o", "remount,size=500m", str(disk)], check=True)
            encode(executor, tok, files, disk / "out")
        assert files_of(disk / "out") == expected
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_cluster_that_is_not_there() -> None:
    with pytest.raises(ClusterError, match=r"no Ray cluster at 127\.0\.0\.1:1") as caught:
        open_executor("ray", address="127.0.0.1:1")
    assert caught.value.hint is not None
