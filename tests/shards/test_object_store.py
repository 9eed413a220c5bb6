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
from bytemill.data.manifest import files_of
from bytemill.data.object_store import unnamed_files, work_folder
from bytemill.data.unfinished import held
from bytemill.errors import CorpusError, OutputError, ShardError, StorageError
from bytemill.storage import StoreFolder
from tests.support.s3_server import Request, S3Server
from tests.support.stored_shards import assert_stored

from .packed_documents import END

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


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize(
    "layout",
    [
        pytest.param(layout, marks=() if layout in {"npy", "megatron"} else pytest.mark.slow)
        for layout in sorted(LAYOUTS)
    ],
)
def test_every_layout(
    byte_tokenizer: bm.Tokenizer, texts: list[Path], tmp_path: Path, s3: S3Server, layout: str, options: Any
):
    url = f"{s3.bucket()}/shards"
    options = {"layout": layout, "shard_tokens": 1500, **options}
    expected = bm.encode_corpus(byte_tokenizer, texts, tmp_path / "here", **options)
    manifest = bm.encode_corpus(byte_tokenizer, texts, url, **options)
    assert manifest.n_tokens == expected.n_tokens
    assert_stored(url, tmp_path / "copy", tmp_path / "here")
    part = f"{url}/train" if "validation_fraction" in options else url
    assert bm.shards.read_manifest(part) == manifest
    assert not work_folder(url).exists() or not any(work_folder(url).rglob("shard*"))
    # The second run has nothing to do.
    s3.requests.clear()
    assert bm.encode_corpus(byte_tokenizer, texts, url, **options) == manifest
    assert {request.method for request in s3.requests} <= {"GET", "HEAD"}


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_conversions(
    byte_tokenizer: bm.Tokenizer, texts: list[Path], tmp_path: Path, s3: S3Server, layout: str
):
    bm.encode_corpus(byte_tokenizer, texts, tmp_path / "shards", shard_tokens=1500, **OPTIONS["framed"])
    options: Any = {"layout": layout, "tokenizer": byte_tokenizer}
    convert_shards(tmp_path / "shards", tmp_path / "here", **options)
    url = f"{s3.bucket()}/shards"
    manifest = convert_shards(tmp_path / "shards", url, **options)
    assert_stored(url, tmp_path / "copy", tmp_path / "here")
    assert not work_folder(url).exists() or not any(work_folder(url).rglob("shard*"))
    with pytest.raises(ShardError, match=f"{url} already contains shards"):
        convert_shards(tmp_path / "shards", url, **options)
    with pytest.raises(OutputError, match=f"{url} is an input"):
        convert_shards(url, url, overwrite=True, **options)
    StoreFolder(url).put("shard_00000.0123456789ab.npy", b"left")
    again = convert_shards(tmp_path / "shards", url, overwrite=True, shard_tokens=2000, **options)
    assert again.n_tokens == manifest.n_tokens
    assert set(StoreFolder(url).list()) == {"manifest.json", *(info.file for info in files_of(again))}


def test_a_conversion_that_fails_leaves_nothing_that_counts(
    byte_tokenizer: bm.Tokenizer, texts: list[Path], tmp_path: Path, s3: S3Server
):
    bm.encode_corpus(byte_tokenizer, texts, tmp_path / "shards", shard_tokens=1500)
    url = f"{s3.bucket()}/shards"

    def denied(request: Request) -> str | None:
        return "403" if request.method == "PUT" and "manifest" not in request.path else None

    with s3.fault(denied), pytest.raises(StorageError, match="cannot access"):
        convert_shards(tmp_path / "shards", url, layout="npy")

    def other_comes_first(done: Any) -> None:
        if done.n_tokens == done.total_tokens:
            with pytest.MonkeyPatch.context() as patch:  # as on another machine
                patch.setenv("BYTEMILL_CACHE", str(tmp_path / "cache"))
                bm.encode_corpus(byte_tokenizer, texts, url, shard_tokens=700)

    with pytest.raises(ShardError, match="another process has written shards"):
        convert_shards(tmp_path / "shards", url, layout="npy", progress=other_comes_first)
    manifest = bm.shards.read_manifest(url)
    assert manifest.settings.shard_tokens == 700
    assert unnamed_files(StoreFolder(url), manifest) == {}
    assert not list(work_folder(url).rglob("shard*"))


def test_other_shards_are_not_replaced(
    byte_tokenizer: bm.Tokenizer, texts: list[Path], tmp_path: Path, s3: S3Server
):
    url = s3.bucket()
    bm.encode_corpus(byte_tokenizer, texts, url, shard_tokens=2000)
    StoreFolder(url).put("notes.txt", b"mine")
    with pytest.raises(
        ShardError, match=r"already contains other shards: shard_tokens was 2000, now it is 99"
    ):
        bm.encode_corpus(byte_tokenizer, texts, url, shard_tokens=99)
    bm.encode_corpus(byte_tokenizer, texts, url, shard_tokens=3000, overwrite=True)
    assert StoreFolder(url).get("notes.txt") is not None
    StoreFolder(url).delete(["notes.txt"])
    bm.encode_corpus(byte_tokenizer, texts, tmp_path / "here", shard_tokens=3000)
    assert_stored(url, tmp_path / "copy", tmp_path / "here")
    store = StoreFolder(url)
    store.delete([name for name in store.list() if name.startswith("shard_00001")])
    with pytest.raises(ShardError, match=r"damaged: shard_00001\.\w+\.npy is missing"):
        bm.encode_corpus(byte_tokenizer, texts, url, shard_tokens=3000)
    with pytest.raises(ShardError, match="contains no manifest"):
        bm.shards.read_manifest(f"{url}/nothing")
    store.put("manifest.json", b"{")
    with pytest.raises(ShardError, match=r"manifest\.json is not JSON"):
        bm.shards.read_manifest(url)


def test_bad_input_leaves_nothing_that_counts(byte_tokenizer: bm.Tokenizer, tmp_path: Path, s3: S3Server):
    url = s3.bucket()
    (tmp_path / "bad.txt").write_bytes(b"good " * 1000 + b"\xff")
    with pytest.raises(CorpusError, match="not valid UTF-8"):
        bm.encode_corpus(byte_tokenizer, [tmp_path / "bad.txt"], url)
    assert "manifest.json" not in StoreFolder(url).list()


def test_two_encodings_at_once_leave_one_result(
    byte_tokenizer: bm.Tokenizer,
    texts: list[Path],
    tmp_path: Path,
    s3: S3Server,
    monkeypatch: pytest.MonkeyPatch,
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

        results.append(bm.encode_corpus(byte_tokenizer, texts, url, shard_tokens=2000, progress=meet))

    threads = [threading.Thread(target=encode) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 2
    assert results[0] == results[1]
    bm.encode_corpus(byte_tokenizer, texts, tmp_path / "here", shard_tokens=2000)
    assert_stored(url, tmp_path / "copy", tmp_path / "here")


def test_of_two_encodings_with_other_settings_one_fails(
    byte_tokenizer: bm.Tokenizer, texts: list[Path], tmp_path: Path, s3: S3Server
):
    url = s3.bucket()
    is_first = True

    def other_comes_first(_: Any) -> None:
        nonlocal is_first
        if is_first:
            is_first = False
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("BYTEMILL_CACHE", str(tmp_path / "cache"))
                bm.encode_corpus(byte_tokenizer, texts, url, shard_tokens=2000)

    with pytest.raises(ShardError, match=r"another process has written shards to .*: shard_tokens was 2000"):
        bm.encode_corpus(byte_tokenizer, texts, url, shard_tokens=700, progress=other_comes_first)
    bm.encode_corpus(byte_tokenizer, texts, tmp_path / "here", shard_tokens=2000)
    assert_stored(url, tmp_path / "copy", tmp_path / "here")


@pytest.mark.parametrize("what", ["500", "503", "drop", "lose", "truncate"])
def test_faults(byte_tokenizer: bm.Tokenizer, texts: list[Path], tmp_path: Path, s3: S3Server, what: str):
    """A fifth of all requests fail; nothing is lost."""
    url = s3.bucket()
    chosen = random.Random(what)
    lock = threading.Lock()

    def fault(_: Request) -> str | None:
        with lock:
            return what if chosen.random() < 0.2 else None

    with s3.fault(fault):
        bm.encode_corpus(byte_tokenizer, texts, url, shard_tokens=900, layout="megatron")
    bm.encode_corpus(byte_tokenizer, texts, tmp_path / "here", shard_tokens=900, layout="megatron")
    assert_stored(url, tmp_path / "copy", tmp_path / "here")


def test_access_that_ends_in_the_middle(
    byte_tokenizer: bm.Tokenizer, texts: list[Path], tmp_path: Path, s3: S3Server
):
    url = s3.bucket()
    n_uploads = 0

    def expired(request: Request) -> str | None:
        nonlocal n_uploads
        n_uploads += request.method == "PUT"
        return "403" if n_uploads > 3 else None

    with s3.fault(expired), pytest.raises(StorageError, match=r"ExpiredToken|403 Forbidden"):
        bm.encode_corpus(byte_tokenizer, texts, url, shard_tokens=900, checkpoint_bytes=2000)
    assert "manifest.json" not in StoreFolder(url).list()
    assert 0 < len(unnamed_files(StoreFolder(url), None)) < 6
    with pytest.raises(ShardError, match=r"contains \d shards but no manifest\.json: an encoding is running"):
        bm.shards.read_manifest(url)
    bm.encode_corpus(byte_tokenizer, texts, url, shard_tokens=900, checkpoint_bytes=2000)
    bm.encode_corpus(byte_tokenizer, texts, tmp_path / "here", shard_tokens=900)
    assert_stored(url, tmp_path / "copy", tmp_path / "here")


@pytest.mark.skipif(sys.platform == "win32", reason="platform: signals")
def test_kills(texts: list[Path], tmp_path: Path, s3: S3Server):
    """Kill the process at random times until it has ended by itself, on one machine and then on another."""
    url = s3.bucket()
    s3.latency = 0.02
    chosen = random.Random(3)
    code = f"""
import bytemill as bm
from tests.shards.packed_documents import tokenizer_of_bytes
bm.encode_corpus(tokenizer_of_bytes(), {[str(path) for path in texts]!r}, {url!r}, shard_tokens=300,
    checkpoint_bytes=1000, progress=lambda _: __import__("time").sleep(0.01))
"""
    n_kills = 0
    while True:
        with subprocess.Popen([sys.executable, "-c", code], start_new_session=True) as process:
            try:
                process.wait(timeout=0.6 + chosen.random() if n_kills < 8 else 120)
                break
            except subprocess.TimeoutExpired:
                assert n_kills < 8
                process.send_signal(signal.SIGKILL)
                n_kills += 1
                if "manifest.json" in StoreFolder(url).list():  # killed at the very end
                    assert bm.shards.verify(url) == []
    assert process.returncode == 0
    from .packed_documents import tokenizer_of_bytes

    bm.encode_corpus(tokenizer_of_bytes(), texts, tmp_path / "here", shard_tokens=300)
    assert_stored(url, tmp_path / "copy", tmp_path / "here")


def test_what_was_left_after_the_manifest_is_removed_and_named(
    byte_tokenizer: bm.Tokenizer, texts: list[Path], s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"{s3.bucket()}/shards"
    store = StoreFolder(url)
    left = [".units/1.ids", ".units/1.json", ".units.json"]
    for name in left:
        store.put(name, b"left")
    bm.encode_corpus(byte_tokenizer, texts, url, validation_fraction=0.5)
    store.put(".units/2.ids", b"of an encoding that replaces these shards")
    later = {**store.times(), ".units/2.ids": datetime.now(UTC) + timedelta(hours=1)}
    monkeypatch.setattr(StoreFolder, "times", lambda _: later)
    before = set(store.list())
    (work_folder(url) / "train").mkdir(parents=True)
    (work_folder(url) / "train" / "shard_00000.0123456789ab.npy").write_bytes(b"left")
    notes: list[str] = []
    with held(work_folder(url)):  # an encoding that runs keeps its folder
        bm.encode_corpus(byte_tokenizer, texts, url, validation_fraction=0.5, note=notes.append)
    assert before - set(store.list()) == set(left)
    assert notes == [
        f"removed 3 objects that an encoding left that was killed at its end, such as {url}/.units.json"
    ]
    later = {name: time for name, time in later.items() if name not in left}
    bm.encode_corpus(byte_tokenizer, texts, url, validation_fraction=0.5, note=notes.append)
    assert notes[1:] == [f"removed the local copies that an encoding to {url} left"]
    assert not work_folder(url).exists()
