"""Data sets by name: from the cache, from a file, or fetched; in processes that are killed or meet."""

import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bytemill import datasets
from bytemill.datasets.catalogue import DATASETS
from bytemill.errors import CorpusError, DownloadError
from bytemill.lm.evaluate.items import read_items

from .file_server import CONTENT, PATH, FileServer, Reply

HALF = len(CONTENT) // 2
PROGRAM = """
import resource, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background of a shell ignores it
if limit := int(sys.argv.pop(1)):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
from bytemill.cli import main
from bytemill.datasets.catalogue import DATASETS
from tests.datasets.conftest import sample_dataset
DATASETS["sample"] = sample_dataset()
sys.exit(main(["data", "get", "sample", *sys.argv[1:]]))
"""
REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def start(cache: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts `bytemill data get sample` in a process of its own, which does not outlive the test."""
    running: list[subprocess.Popen[str]] = []

    def call(*arguments: str, file_limit: int = 0) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(file_limit), *arguments],
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        return process

    yield call
    for process in running:
        process.kill()
        process.communicate()


def wait_for(what: Callable[[], bool]) -> None:
    """Waits until something holds; half a minute is too long."""
    deadline = time.monotonic() + 60
    while not what():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def test_the_path_of_a_file_that_is_fetched_once(cache: Path, server: FileServer):
    path = datasets.get("sample")
    assert path == cache / "sample.txt" == datasets.path_of("sample")
    assert path.read_bytes() == CONTENT
    assert datasets.get("sample") == path
    assert [path for path, _ in server.requests] == [f"/{PATH}"]


def test_the_output_is_a_file_or_a_folder(cache: Path, tmp_path: Path):
    assert datasets.get("sample", tmp_path / "mine.txt") == tmp_path / "mine.txt"
    assert datasets.get("sample", tmp_path) == tmp_path / "sample.txt"
    assert datasets.get("sample", f"{tmp_path}/new/") == tmp_path / "new" / "sample.txt"
    assert not cache.exists()


def test_a_mirror_given_in_the_call_comes_before_that_of_the_environment(
    cache: Path, server: FileServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("BYTEMILL_DATA_URL", "http://127.0.0.1:1")
    datasets.get("sample", base_url=f"{server.url}/mirror/")
    assert [path for path, _ in server.requests] == [f"/mirror/{PATH}"]


@pytest.mark.parametrize("base", ["ftp://127.0.0.1", "file:///etc", "127.0.0.1:80", "https://"])
def test_what_is_no_address_of_a_mirror_is_refused(cache: Path, base: str):
    with pytest.raises(DownloadError, match="is no address of a mirror"):
        datasets.get("sample", base_url=base)


def test_a_file_of_another_size_is_refused_or_replaced(cache: Path):
    cache.mkdir(parents=True)
    (cache / "sample.txt").write_bytes(b"mine")
    with pytest.raises(DownloadError, match="it has 4 bytes, not"):
        datasets.get("sample")
    assert datasets.get("sample", overwrite=True).read_bytes() == CONTENT


def test_damage_that_keeps_the_size_is_found_on_request(cache: Path):
    cache.mkdir(parents=True)
    (cache / "sample.txt").write_bytes(b"?" + CONTENT[1:])
    datasets.get("sample")
    with pytest.raises(DownloadError, match="its sha256 is"):
        datasets.get("sample", verify=True)
    datasets.get("sample", overwrite=True)
    datasets.get("sample", verify=True)


def test_a_file_that_came_in_another_way_is_checked_and_copied(
    cache: Path, tmp_path: Path, server: FileServer
):
    own = tmp_path / "own.txt"
    own.write_bytes(CONTENT)
    cache.mkdir(parents=True)
    (cache / "sample.txt.partial").write_bytes(b"begun")
    assert datasets.get("sample", from_file=own).read_bytes() == CONTENT
    assert own.exists()
    assert [path.name for path in cache.iterdir()] == ["sample.txt"]
    assert server.requests == []


@pytest.mark.parametrize(
    ("content", "message"), [(CONTENT[1:], "bytes, not"), (b"?" + CONTENT[1:], "sha256 is")]
)
def test_another_file_is_not_taken_for_the_data_set(
    cache: Path, tmp_path: Path, content: bytes, message: str
):
    own = tmp_path / "own.txt"
    own.write_bytes(content)
    with pytest.raises(DownloadError, match=message):
        datasets.get("sample", from_file=own)
    assert not (cache / "sample.txt").exists()


def test_a_file_that_is_not_there_cannot_be_taken(cache: Path, tmp_path: Path):
    with pytest.raises(CorpusError, match=r"cannot read .*own\.txt: No such file"):
        datasets.get("sample", from_file=tmp_path / "own.txt")


def test_what_a_killed_copy_left_is_removed(cache: Path, tmp_path: Path):
    cache.mkdir(parents=True)
    for name in (
        ".sample.txt.0123abcd.tmp",
        ".sample.txt.partial.json.0123abcd.tmp",
        ".other.txt.0123abcd.tmp",
    ):
        (cache / name).write_bytes(b"begun")
    datasets.get("sample")
    assert sorted(path.name for path in cache.iterdir()) == [".other.txt.0123abcd.tmp", "sample.txt"]


def test_an_unknown_name_is_answered_with_the_known_ones(cache: Path):
    with pytest.raises(CorpusError, match="no data set of that name") as caught:
        datasets.get("tinystory")
    assert "did you mean tinystories?" in str(caught.value.hint)


def test_without_a_connection_the_hint_says_what_to_fetch_and_where_to_give_it(
    cache: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("BYTEMILL_DATA_URL", "http://127.0.0.1:1")
    with pytest.raises(DownloadError, match=r"^sample: 127\.0\.0\.1:1 cannot be reached") as caught:
        datasets.get("sample")
    assert f"http://127.0.0.1:1/{PATH}" in str(caught.value.hint)
    assert "bytemill data get sample --from-file FILE" in str(caught.value.hint)
    assert list(cache.iterdir()) == []


def test_the_entries_of_the_table_say_all_that_is_needed():
    for name, dataset in DATASETS.items():
        assert dataset.name == name
        assert re.fullmatch("[0-9a-f]{64}", dataset.sha256), name
        assert dataset.n_bytes > 1_000_000
        assert dataset.licence
        # At a fixed revision: what "main" is may change.
        assert re.match(r"https://.*/[0-9a-f]{40}/", dataset.url()), name
    assert len({dataset.file_name for dataset in DATASETS.values()}) == len(DATASETS)
    assert len({dataset.sha256 for dataset in DATASETS.values()}) == len(DATASETS)
    assert [dataset.name for dataset in datasets.available()] == list(DATASETS)


def test_a_killed_download_goes_on_where_it_was(
    cache: Path, server: FileServer, start: Callable[..., subprocess.Popen[str]]
):
    server.replies.append(Reply(hold_after=HALF))
    process = start("--quiet")
    partial = cache / "sample.txt.partial"
    wait_for(lambda: size(partial) == HALF)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not (cache / "sample.txt").exists()
    again = start()
    out, err = again.communicate()
    assert (again.returncode, out) == (0, f"{cache / 'sample.txt'}\n")
    assert "note: licence of sample: CC0-1.0 (see https://example.org/sample)" in err
    assert (cache / "sample.txt").read_bytes() == CONTENT
    assert server.ranges == [None, f"bytes={HALF}-"]
    assert [path.name for path in cache.iterdir()] == ["sample.txt"]


def test_ctrl_c_keeps_what_has_come_and_says_how_to_go_on(
    cache: Path, server: FileServer, start: Callable[..., subprocess.Popen[str]]
):
    server.replies.append(Reply(hold_after=HALF))
    process = start()
    partial = cache / "sample.txt.partial"
    wait_for(lambda: size(partial) == HALF)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert (process.returncode, out) == (130, "")
    assert err.endswith("interrupted\nhint: the same command resumes the download\n")
    assert partial.read_bytes() == CONTENT[:HALF]


def test_a_full_disk_keeps_what_fits(
    cache: Path, server: FileServer, start: Callable[..., subprocess.Popen[str]]
):
    process = start("--quiet", file_limit=300_000)
    _, err = process.communicate()
    assert process.returncode == 1
    assert "cannot write" in err
    assert "the file would grow beyond the size limit for files" in err
    assert (cache / "sample.txt.partial").read_bytes() == CONTENT[:300_000]
    assert not (cache / "sample.txt").exists()
    again = start("--quiet")
    assert again.communicate() == (f"{cache / 'sample.txt'}\n", "")
    assert server.ranges == [None, "bytes=300000-"]


def test_of_two_processes_one_fetches_and_the_other_waits(
    cache: Path, server: FileServer, start: Callable[..., subprocess.Popen[str]]
):
    server.replies.append(Reply(hold_after=HALF))
    first = start("--quiet")
    wait_for(lambda: size(cache / "sample.txt.partial") == HALF)
    second = start()
    assert second.stderr is not None
    assert second.stderr.readline().startswith("waiting for another process that downloads it")
    server.go_on.set()
    for process in (first, second):
        out, _ = process.communicate()
        assert (process.returncode, out) == (0, f"{cache / 'sample.txt'}\n")
    assert (cache / "sample.txt").read_bytes() == CONTENT
    assert len(server.requests) == 1
    assert [path.name for path in cache.iterdir()] == ["sample.txt"]


def test_a_process_goes_on_with_what_one_that_was_killed_meanwhile_has_fetched(
    cache: Path, server: FileServer, start: Callable[..., subprocess.Popen[str]]
):
    server.replies.append(Reply(hold_after=HALF))
    first = start("--quiet")
    wait_for(lambda: size(cache / "sample.txt.partial") == HALF)
    second = start()
    assert second.stderr is not None
    second.stderr.readline()
    first.kill()
    out, _ = second.communicate()
    assert (second.returncode, out) == (0, f"{cache / 'sample.txt'}\n")
    assert hashlib.sha256((cache / "sample.txt").read_bytes()).hexdigest() == DATASETS["sample"].sha256
    assert server.ranges == [None, f"bytes={HALF}-"]


def test_missing_items_of_hellaswag_are_answered_with_how_to_get_them(tmp_path: Path):
    with pytest.raises(CorpusError, match="No such file") as caught:
        read_items(tmp_path / "hellaswag_val.jsonl")
    assert "bytemill data get hellaswag" in str(caught.value.hint)


def test_nothing_of_the_network_is_imported_with_the_package():
    program = (
        "import sys, bytemill; print([name for name in sys.modules if name in ('ssl', 'urllib.request')])"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


def test_curl_finds_the_same_bytes_behind_the_address(cache: Path, server: FileServer):
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("platform: curl is not installed")
    address = DATASETS["sample"].url(server.url)
    fetched = subprocess.run([curl, "-sL", "--noproxy", "*", address], capture_output=True, check=True)
    assert fetched.stdout == datasets.get("sample").read_bytes()
