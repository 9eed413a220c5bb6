"""A folder in an object store, against a server on loopback that also fails."""

import contextlib
import hashlib
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bytemill.errors import StorageError
from bytemill.storage import StoreFolder, is_url, split_url, url_of, write_file
from bytemill.storage.location import without_secrets
from tests.support.s3_server import KEY, SECRET, Request, S3Server


def times(what: str, n: int, method: str, part: str = "") -> Callable[[Request], str | None]:
    """A fault of the first `n` requests of a method whose path has a part."""
    left = [n]
    lock = threading.Lock()

    def fault(request: Request) -> str | None:
        with lock:
            if request.method == method and part in request.path and left[0]:
                left[0] -= 1
                return what
            return None

    return fault


@pytest.fixture
def folder(s3: S3Server) -> StoreFolder:
    return StoreFolder(f"{s3.bucket()}/some/folder")


def test_objects(folder: StoreFolder, tmp_path: Path):
    assert folder.get("a") is None
    assert folder.size("a") is None
    assert folder.list() == {}
    write_file(f"{folder}/a", b"one")
    write_file(tmp_path / "b.json", b"data")
    assert (tmp_path / "b.json").read_bytes() == b"data"
    folder.put("within/b", b"")
    assert (found := folder.get("a")) is not None
    assert (found.data, folder.size("within/b")) == (b"one", 0)
    assert folder.list() == {"a": 3, "within/b": 0}
    assert (folder / "within").list() == {"b": 0}
    assert folder.read("a", 1, 2) == b"ne"
    assert folder.read("a", 1, 0) == b""
    folder.delete(["absent", "a", "b"])
    assert folder.list() == {"within/b": 0}
    folder.delete([])
    for read in (lambda: folder.read("a", 0, 1), lambda: folder.download("a", tmp_path / "a")):
        with pytest.raises(StorageError, match=r"there is no s3://.*/some/folder/a"):
            read()
    assert not (tmp_path / "a").exists()
    folder.put("a", b"two")
    with pytest.raises(StorageError, match="ends at byte 3, before 5"):
        folder.read("a", 0, 5)


@pytest.mark.parametrize("n_bytes", [0, 1, 8 << 20, (8 << 20) + 1, 18_000_003])
def test_files_come_back(folder: StoreFolder, tmp_path: Path, n_bytes: int, s3: S3Server):
    (tmp_path / "there").write_bytes(data := os.urandom(n_bytes))
    folder.upload("file", tmp_path / "there")
    n_parts = sum("partNumber" in request.path for request in s3.requests)
    assert n_parts == (0 if n_bytes <= 8 << 20 else -(-n_bytes // (8 << 20)))
    folder.download("file", tmp_path / "back", hashlib.sha256(data).hexdigest())
    assert (tmp_path / "back").read_bytes() == data


def test_another_content_is_refused(folder: StoreFolder, tmp_path: Path):
    folder.put("file", b"content")
    with pytest.raises(StorageError, match="has sha256 ed7002b4"):
        folder.download("file", tmp_path / "file", "0" * 64)
    assert list(tmp_path.iterdir()) == []


def test_of_several_writers_the_first_wins(folder: StoreFolder):
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda number: folder.create("manifest", b"%d" % number), range(8)))
    assert sum(won) == 1
    assert (found := folder.get("manifest")) is not None
    assert found.data == b"%d" % won.index(True)
    assert folder.create("manifest", found.data)  # its own object, after a lost answer
    assert not folder.create("manifest", b"other")


def test_a_version_is_replaced_once(folder: StoreFolder):
    assert folder.replace("state", b"1", None)
    assert (first := folder.get("state")) is not None
    assert folder.replace("state", b"2", first.version)
    assert not folder.replace("state", b"3", first.version)
    assert not folder.replace("state", b"3", None)
    assert (last := folder.get("state")) is not None
    assert last.data == b"2"


@pytest.mark.parametrize("what", ["500", "503", "drop", "lose"])
def test_passing_faults_are_survived(folder: StoreFolder, tmp_path: Path, s3: S3Server, what: str):
    (tmp_path / "large").write_bytes(large := os.urandom((8 << 20) + 7))
    with contextlib.ExitStack() as stack:
        for method in ("PUT", "GET", "HEAD", "POST", "DELETE"):
            stack.enter_context(s3.fault(times(what, 2, method)))
        assert folder.create("small", b"data")
        folder.upload("large", tmp_path / "large")
        folder.download("large", tmp_path / "back")
        assert (tmp_path / "back").read_bytes() == large
        assert set(folder.list()) == {"small", "large"}
        folder.delete(["small"])
    assert set(folder.list()) == {"large"}


def test_a_truncated_answer_is_noticed(folder: StoreFolder, s3: S3Server, tmp_path: Path):
    folder.put("file", data := os.urandom(100_000))
    with s3.fault(times("truncate", 1, "GET", "/file")):
        folder.download("file", tmp_path / "file", hashlib.sha256(data).hexdigest())
    assert (tmp_path / "file").read_bytes() == data
    with s3.fault(times("truncate", 1, "GET", "/file")):
        assert (found := folder.get("file")) is not None
    assert found.data == data


def test_an_upload_of_another_size_is_an_error(
    folder: StoreFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "file").write_bytes(b"four")
    monkeypatch.setattr(StoreFolder, "size", lambda *_: 3)
    with pytest.raises(StorageError, match="file has 3 bytes after 4 were written"):
        folder.upload("file", tmp_path / "file")


def test_errors_say_what_is_wrong_and_no_secret(s3: S3Server, folder: StoreFolder):
    with s3.fault(lambda _: "403"), pytest.raises(StorageError, match="ExpiredToken: injected") as caught:
        folder.put("a", b"")
    with pytest.raises(StorageError, match="no bucket for s3://nothing-of-this-name") as missing:
        StoreFolder("s3://nothing-of-this-name").put("a", b"")
    for error in (caught.value, missing.value):
        assert error.hint
        assert error.__suppress_context__
        assert KEY not in str(error)
        assert SECRET not in str(error)


def test_a_folder_is_pickled_without_access(folder: StoreFolder):
    folder.put("a", b"data")
    data = pickle.dumps(folder)
    assert SECRET.encode() not in data
    assert pickle.loads(data).read("a", 0, 4) == b"data"  # noqa: S301


@pytest.mark.skipif(sys.platform == "win32", reason="platform: signals")
def test_ctrl_c_ends_a_request(s3: S3Server):
    url = s3.bucket()
    code = f"""
import sys
from bytemill.storage import StoreFolder
folder = StoreFolder({url!r})
print("ready", flush=True)
try:
    folder.put("a", b"data")
except KeyboardInterrupt:
    sys.exit(7)
"""
    with (
        s3.fault(times("503", 1000, "PUT")),
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process,
    ):
        assert process.stdout
        process.stdout.readline()
        while len(s3.requests) < 2:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 7  # without the signal, it is repeated for three minutes


def test_urls():
    assert url_of("S3://bucket/a//") == "s3://bucket/a"
    assert url_of(Path("s3://bucket/a")) == "s3://bucket/a"
    assert url_of("https://host/a") == "https://host/a"
    assert not is_url("a/b:c")
    assert not is_url("C:\\a")
    for bad, message in [
        ("ftp://host/a", "names no store"),
        ("s3://key:secret@bucket/a", "contains credentials"),
        ("s3://", "names no bucket"),
    ]:
        with pytest.raises(StorageError, match=message) as caught:
            url_of(bad)
        assert "secret" not in str(caught.value)
    with pytest.raises(StorageError, match="names no file"):
        split_url("s3://bucket")


_SECRETS = st.from_regex(r"[A-Za-z0-9%+=]{8,20}", fullmatch=True)


@given(_SECRETS, _SECRETS)
def test_messages_have_no_secrets(password: str, signature: str):
    text = f"PUT https://me:{password}@host/x?sv=1&sig={signature} failed, https://other/y?{signature}"
    assert without_secrets(text) == "PUT https://host/x failed, https://other/y"
