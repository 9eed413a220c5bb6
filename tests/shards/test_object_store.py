"""Shards in an object store are those on this machine, whatever fails on the way."""

import random
import signal
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import bytemill as bm
from bytemill.data.convert import convert_shards
from bytemill.data.layouts import LAYOUTS
from bytemill.data.manifest import Manifest, files_of, shard_hashes
from bytemill.data.object_store import unnamed_files, work_folder
from bytemill.data.unfinished import held
from bytemill.errors import CorpusError, OutputError, ShardError, StorageError
from bytemill.storage import StoreFolder
from tests.support.s3_server import Request, S3Server
from tests.support.stored_shards import assert_stored

from .packed_documents import END, TOKENIZER

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "split": {"validation_fraction": 0.4, "document_index": True},
    "framed": {"documents": END, "document_index": True},
}


@pytest.fixture
def texts(tmp_path: Path) -> list[Path]:
    chosen = random.Random(0)
    paths = [tmp_path / f"{number}.txt" for number in range(5)]
    for path in paths:
        parts = ["word ", "日本語", END, "\n", "é", "12"]
        path.write_text("".join(chosen.choices(parts, k=900)), "utf-8")
    return paths


def check(texts: list[Path], url: str, folder: Path, **options: Any) -> Manifest:
    """Encode here, and check that the store has these shards and nothing else."""
    manifest = bm.encode_corpus(TOKENIZER, texts, folder / "here", **options)
    assert_stored(url, folder / "copy", folder / "here")
    return manifest


@pytest.mark.parametrize(
    ("layout", "name"),
    [
        pytest.param(
            layout, name, marks=() if name == "split" and layout in {"npy", "megatron"} else pytest.mark.slow
        )
        for layout in sorted(LAYOUTS)
        for name in OPTIONS
    ],
)
def test_every_layout(texts: list[Path], tmp_path: Path, s3: S3Server, layout: str, name: str):
    url = f"{s3.bucket()}/shards"
    options = {"layout": layout, "shard_tokens": 1500, **OPTIONS[name]}
    manifest = bm.encode_corpus(TOKENIZER, texts, url, **options)
    expected = check(texts, url, tmp_path, **options)
    assert manifest.n_tokens == expected.n_tokens
    part = "train" if name == "split" else ""
    assert bm.shards.read_manifest(f"{url}/{part}") == manifest
    assert shard_hashes(f"{url}/{part}") == shard_hashes(tmp_path / "here" / part)
    assert not work_folder(url).exists() or not any(
        path.is_file() for path in work_folder(url).rglob("[!.]*")
    )
    # The second run has nothing to do.
    s3.requests.clear()
    assert bm.encode_corpus(TOKENIZER, texts, url, **options) == manifest
    assert {request.method for request in s3.requests} <= {"GET", "HEAD"}


@pytest.mark.parametrize(
    "layout",
    [pytest.param(name, marks=() if name == "datatrove" else pytest.mark.slow) for name in sorted(LAYOUTS)],
)
def test_conversions(texts: list[Path], tmp_path: Path, s3: S3Server, layout: str):
    shards, url = tmp_path / "shards", f"{s3.bucket()}/shards"
    bm.encode_corpus(TOKENIZER, texts, shards, shard_tokens=1500, **OPTIONS["framed"])
    options: Any = {"layout": layout, "tokenizer": TOKENIZER}
    convert_shards(shards, tmp_path / "here", **options)
    manifest = convert_shards(shards, url, **options)
    assert_stored(url, tmp_path / "copy", tmp_path / "here")
    assert not work_folder(url).exists() or not any(work_folder(url).rglob("shard*"))
    with pytest.raises(ShardError, match=f"{url} already contains shards"):
        convert_shards(shards, url, **options)
    with pytest.raises(OutputError, match=f"{url} is an input"):
        convert_shards(url, url, overwrite=True, **options)
    StoreFolder(url).put("shard_00000.0123456789ab.npy", b"left")
    again = convert_shards(shards, url, overwrite=True, shard_tokens=2000, **options)
    assert again.n_tokens == manifest.n_tokens
    assert set(StoreFolder(url).list()) == {"manifest.json", *(info.file for info in files_of(again))}


def test_a_conversion_that_fails_leaves_nothing_that_counts(texts: list[Path], tmp_path: Path, s3: S3Server):
    bm.encode_corpus(TOKENIZER, texts, tmp_path / "shards", shard_tokens=1500)
    url = f"{s3.bucket()}/shards"

    def denied(request: Request) -> str | None:
        return "403" if request.method == "PUT" and "manifest" not in request.path else None

    with s3.fault(denied), pytest.raises(StorageError, match="cannot access"):
        convert_shards(tmp_path / "shards", url, layout="npy")

    def other_comes_first(done: Any) -> None:
        if done.n_tokens == done.total_tokens:
            encode_elsewhere(texts, url, tmp_path, shard_tokens=700)

    with pytest.raises(ShardError, match="another process has written shards"):
        convert_shards(tmp_path / "shards", url, layout="npy", progress=other_comes_first)
    manifest = bm.shards.read_manifest(url)
    assert manifest.settings.shard_tokens == 700
    assert unnamed_files(StoreFolder(url), manifest) == {}
    assert not list(work_folder(url).rglob("shard*"))


def encode_elsewhere(texts: list[Path], url: str, folder: Path, **options: Any) -> None:
    """Encode as on another machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BYTEMILL_CACHE", str(folder / "cache"))
        bm.encode_corpus(TOKENIZER, texts, url, **options)


def test_other_shards_are_not_replaced(texts: list[Path], tmp_path: Path, s3: S3Server):
    url = s3.bucket()
    store = StoreFolder(url)
    bm.encode_corpus(TOKENIZER, texts, url, shard_tokens=2000)
    store.put("notes.txt", b"mine")
    with pytest.raises(
        ShardError, match="already contains other shards: shard_tokens was 2000, now it is 99"
    ):
        bm.encode_corpus(TOKENIZER, texts, url, shard_tokens=99)
    bm.encode_corpus(TOKENIZER, texts, url, shard_tokens=3000, overwrite=True)
    assert store.get("notes.txt") is not None
    store.delete(["notes.txt"])
    check(texts, url, tmp_path, shard_tokens=3000)
    store.delete([name for name in store.list() if name.startswith("shard_00001")])
    with pytest.raises(ShardError, match=r"damaged: shard_00001\.\w+\.npy is missing"):
        bm.encode_corpus(TOKENIZER, texts, url, shard_tokens=3000)
    with pytest.raises(ShardError, match="contains no manifest"):
        bm.shards.read_manifest(f"{url}/nothing")
    store.put("manifest.json", b"{")
    with pytest.raises(ShardError, match=r"manifest\.json is not JSON"):
        bm.shards.read_manifest(url)


def test_bad_input_leaves_nothing_that_counts(tmp_path: Path, s3: S3Server):
    url = s3.bucket()
    (tmp_path / "bad.txt").write_bytes(b"good " * 1000 + b"\xff")
    with pytest.raises(CorpusError, match="not valid UTF-8"):
        bm.encode_corpus(TOKENIZER, [tmp_path / "bad.txt"], url)
    assert "manifest.json" not in StoreFolder(url).list()


def test_two_encodings_at_once_leave_one_result(
    texts: list[Path], tmp_path: Path, s3: S3Server, monkeypatch: pytest.MonkeyPatch
):
    """Each is at its first upload when the other begins; they share no work folder, as on two machines."""
    url = s3.bucket()
    both = threading.Barrier(2)
    names = iter(("one", "two"))
    monkeypatch.setattr("bytemill.data.target.work_folder", lambda _: tmp_path / "work" / next(names))
    results: list[Any] = []

    def encode() -> None:
        waited = False

        def meet(_: Any) -> None:
            nonlocal waited
            if not waited:
                waited = True
                both.wait(timeout=60)

        results.append(bm.encode_corpus(TOKENIZER, texts, url, shard_tokens=2000, progress=meet))

    threads = [threading.Thread(target=encode) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 2
    assert results[0] == results[1]
    check(texts, url, tmp_path, shard_tokens=2000)


def test_of_two_encodings_with_other_settings_one_fails(texts: list[Path], tmp_path: Path, s3: S3Server):
    url = s3.bucket()
    left = [True]

    def other_comes_first(_: Any) -> None:
        if left and left.pop():
            encode_elsewhere(texts, url, tmp_path, shard_tokens=2000)

    with pytest.raises(ShardError, match=r"another process has written shards to .*: shard_tokens was 2000"):
        bm.encode_corpus(TOKENIZER, texts, url, shard_tokens=700, progress=other_comes_first)
    check(texts, url, tmp_path, shard_tokens=2000)


@pytest.mark.parametrize(
    "what", ["lose", "truncate", *(pytest.param(w, marks=pytest.mark.slow) for w in ("500", "503", "drop"))]
)
def test_faults(texts: list[Path], tmp_path: Path, s3: S3Server, what: str):
    """A fifth of all requests fail; nothing is lost."""
    url, chosen, lock = s3.bucket(), random.Random(what), threading.Lock()

    def fault(_: Request) -> str | None:
        with lock:
            return what if chosen.random() < 0.2 else None

    with s3.fault(fault):
        bm.encode_corpus(TOKENIZER, texts, url, shard_tokens=1800, layout="megatron")
    check(texts, url, tmp_path, shard_tokens=1800, layout="megatron")


def test_access_that_ends_in_the_middle(texts: list[Path], tmp_path: Path, s3: S3Server):
    url = s3.bucket()
    n_uploads = 0

    def expired(request: Request) -> str | None:
        nonlocal n_uploads
        n_uploads += request.method == "PUT"
        return "403" if n_uploads > 3 else None

    options: dict[str, Any] = {"shard_tokens": 900, "checkpoint_bytes": 2000}
    with s3.fault(expired), pytest.raises(StorageError, match=r"ExpiredToken|403 Forbidden"):
        bm.encode_corpus(TOKENIZER, texts, url, **options)
    assert "manifest.json" not in StoreFolder(url).list()
    assert 0 < len(unnamed_files(StoreFolder(url), None)) < 6
    with pytest.raises(ShardError, match=r"contains \d shards but no manifest\.json: an encoding is running"):
        bm.shards.read_manifest(url)
    notes: list[str] = []
    bm.encode_corpus(TOKENIZER, texts, url, note=notes.append, **options)
    assert notes == []  # it resumes
    check(texts, url, tmp_path, shard_tokens=900)


KILLED = """
import sys, time
import bytemill as bm
from tests.shards.packed_documents import TOKENIZER
url, *texts = sys.argv[1:]
slowly = lambda _: time.sleep(0.01)
bm.encode_corpus(TOKENIZER, texts, url, shard_tokens=300, checkpoint_bytes=1000, progress=slowly)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="platform: signals")
def test_kills(texts: list[Path], tmp_path: Path, s3: S3Server):
    """Kill the process at random times until it has ended by itself, on one machine and then on another."""
    url = s3.bucket()
    s3.latency = 0.02
    chosen = random.Random(3)
    n_kills, command = 0, [sys.executable, "-c", KILLED, url, *map(str, texts)]
    while True:
        with subprocess.Popen(command, start_new_session=True) as process:
            try:
                process.wait(timeout=0.6 + chosen.random() if n_kills < 3 else 120)
                break
            except subprocess.TimeoutExpired:
                assert n_kills < 3
                process.send_signal(signal.SIGKILL)
                n_kills += 1
                if "manifest.json" in StoreFolder(url).list():  # killed at the very end
                    assert bm.shards.verify(url) == []
    assert process.returncode == 0
    check(texts, url, tmp_path, shard_tokens=300)


def test_what_was_left_after_the_manifest_is_removed_and_named(
    texts: list[Path], s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"{s3.bucket()}/shards"
    store = StoreFolder(url)
    left = [".units/1.ids", ".units/1.json", ".units.json"]
    for name in left:
        store.put(name, b"left")
    bm.encode_corpus(TOKENIZER, texts, url, validation_fraction=0.5)
    store.put(".units/2.ids", b"of an encoding that replaces these shards")
    later = {**store.times(), ".units/2.ids": datetime.now(UTC) + timedelta(hours=1)}
    monkeypatch.setattr(StoreFolder, "times", lambda _: later)
    before = set(store.list())
    (work_folder(url) / "train").mkdir(parents=True)
    (work_folder(url) / "train" / "shard_00000.0123456789ab.npy").write_bytes(b"left")
    notes: list[str] = []
    with held(work_folder(url)):  # an encoding that runs keeps its folder
        bm.encode_corpus(TOKENIZER, texts, url, validation_fraction=0.5, note=notes.append)
    assert before - set(store.list()) == set(left)
    assert notes == [
        f"removed 3 objects that an encoding left that was killed at its end, such as {url}/.units.json"
    ]
    later = {name: time for name, time in later.items() if name not in left}
    bm.encode_corpus(TOKENIZER, texts, url, validation_fraction=0.5, note=notes.append)
    assert notes[1:] == [f"removed the local copies that an encoding to {url} left"]
    assert not work_folder(url).exists()
