"""Ids that are read from an object store are those on this machine."""

import os
import pickle
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bytemill as bm
from bytemill.data.layouts import LAYOUTS
from bytemill.data.reader import local_shards
from bytemill.data.token_source import open_tokens
from bytemill.errors import ShardError, StorageError
from bytemill.shards import StoredTokens, TokenShards, verify
from bytemill.storage import StoreFolder
from tests.support.s3_server import S3Server

from .packed_documents import END, TOKENIZER


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BYTEMILL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "shards"


@pytest.fixture
def encoded(tmp_path: Path, s3: S3Server, request: Any) -> tuple[str, Path]:
    """Shards in a store, and here."""
    options = {"layout": getattr(request, "param", "npy"), "shard_tokens": 700, "documents": END}
    path = tmp_path / "text.txt"
    path.write_text("".join(f"Line {number} of 日本語{END}" for number in range(300)), "utf-8")
    url = f"{s3.bucket()}/shards"
    bm.encode_corpus(TOKENIZER, [path], tmp_path / "here", document_index=True, **options)
    bm.encode_corpus(TOKENIZER, [path], url, document_index=True, **options)
    return url, tmp_path / "here"


@pytest.fixture
def tokens(encoded: tuple[str, Path]) -> Iterator[StoredTokens]:
    found = StoredTokens(encoded[0], cache_bytes=0)
    yield found
    found.close()


@pytest.mark.parametrize(
    "encoded",
    [
        pytest.param(name, marks=() if name in {"npy", "llmc"} else pytest.mark.slow)
        for name in sorted(LAYOUTS)
    ],
    indirect=True,
)
def test_ranges(encoded: tuple[str, Path], tokens: StoredTokens):
    here = TokenShards(encoded[1])
    assert (len(tokens), tokens.dtype) == (len(here), here.dtype)
    ranges = [(0, 0), (0, 1), (699, 701), (0, len(here)), (1400, 1400), (len(here) - 3, len(here))]
    for start, stop in ranges:
        assert np.array_equal(tokens.read(start, stop), here.read(start, stop)), (start, stop)
    tokens.prefetch([*ranges, (5, len(here) + 1)])
    for start, stop in ranges:
        assert np.array_equal(tokens.read(start, stop), here.read(start, stop)), (start, stop)
    again = pickle.loads(pickle.dumps(tokens))  # noqa: S301
    assert np.array_equal(again.read(690, 710), here.read(690, 710))
    again.close()
    ends, expected = tokens.document_ends(), here.document_ends()
    assert ends is not None
    assert np.array_equal(ends, np.asarray(expected))
    with pytest.raises(IndexError):
        tokens.read(3, len(here) + 1)


def test_what_is_prefetched_is_not_asked_for_again(tokens: StoredTokens, s3: S3Server):
    tokens.prefetch([(10, 20), (10, 20), (690, 720)])
    for _ in range(500):
        if sum("shard_" in request.path for request in s3.requests if request.method == "GET") == 3:
            break
        time.sleep(0.01)
    first = tokens.read(10, 20)
    tokens.read(690, 720)
    n_requests = len(s3.requests)
    assert np.array_equal(tokens.read(10, 20), first)  # read once, so this is another request
    assert len(s3.requests) == n_requests + 1


def wait_for(folder: Path, n_files: int) -> list[Path]:
    for _ in range(1200):
        found = sorted(folder.glob("*/shard_*"))
        if len(found) == n_files:
            return found
        time.sleep(0.05)
    raise AssertionError(sorted(folder.rglob("*")))


def test_shards_are_copied_up_to_the_limit(encoded: tuple[str, Path], s3: S3Server, own_cache: Path):
    url, here = encoded
    shards = TokenShards(here)
    n_shards = len(shards.manifest.shards)
    tokens = StoredTokens(url, cache_bytes=5 * 1600)
    copies = wait_for(own_cache, 5)
    time.sleep(0.1)  # no more are copied
    assert n_shards > 5
    s3.requests.clear()
    assert np.array_equal(tokens.read(0, 5 * 700), shards.read(0, 5 * 700))
    assert s3.requests == []
    assert np.array_equal(tokens.read(0, len(shards)), shards.read(0, len(shards)))
    assert len(s3.requests) == n_shards - 5
    copies[0].unlink()  # another process has made room
    assert np.array_equal(tokens.read(0, 10), shards.read(0, 10))
    tokens.close()
    whole = StoredTokens(url, cache_bytes=1 << 30)
    wait_for(own_cache, n_shards)
    s3.requests.clear()
    assert np.array_equal(whole.read(0, len(shards)), shards.read(0, len(shards)))
    assert s3.requests == []
    whole.close()


def test_copies_of_other_folders_make_room(encoded: tuple[str, Path], own_cache: Path):
    for name, time_of_use in (("new", 2), ("old", 1)):
        (own_cache / name).mkdir(parents=True)
        (own_cache / name / "shard_00000.npy").write_bytes(bytes(50_000))
        os.utime(own_cache / name, (time_of_use, time_of_use))
    tokens = StoredTokens(encoded[0], cache_bytes=110_000)
    wait_for(own_cache, len(tokens.manifest.shards) + 1)
    assert not (own_cache / "old").exists()
    assert (own_cache / "new").exists()
    tokens.close()


def test_a_whole_copy(encoded: tuple[str, Path], monkeypatch: pytest.MonkeyPatch, s3: S3Server):
    url, here = encoded
    copy = local_shards(url)
    assert verify(copy) == []
    assert np.array_equal(TokenShards(url)[:], TokenShards(here)[:])
    source, expected = open_tokens(url), open_tokens(here)
    assert source.read(100, 1500).tokens.tolist() == expected.read(100, 1500).tokens.tolist()
    s3.requests.clear()
    assert local_shards(url) == copy
    assert all("shard_" not in request.path for request in s3.requests)
    monkeypatch.setenv("BYTEMILL_SHARD_CACHE", "1000")
    with pytest.raises(ShardError, match=r"more than the 1,000 of the cache folder"):
        TokenShards(url)
    monkeypatch.setenv("BYTEMILL_SHARD_CACHE", "many")
    with pytest.raises(ShardError, match="BYTEMILL_SHARD_CACHE is 'many'"):
        StoredTokens(url)


def test_damage_and_lost_access(encoded: tuple[str, Path], s3: S3Server):
    url, _ = encoded
    store = StoreFolder(url)
    name = next(name for name in sorted(store.list()) if name.startswith("shard_00001"))
    store.put(name, bytes(store.size(name) or 0))
    with pytest.raises(StorageError, match="has sha256"):
        local_shards(url)
    tokens = StoredTokens(url, cache_bytes=0)
    with s3.fault(lambda _: "403"):
        tokens.prefetch([(705, 715)])
        with pytest.raises(StorageError, match="ExpiredToken"):
            tokens.read(705, 715)
    assert len(tokens.read(705, 715)) == 10
    tokens.close()
    with pytest.raises(ShardError, match="contains no manifest"):
        StoredTokens(s3.bucket())


def test_files_of_other_programs(s3: S3Server, tmp_path: Path):
    np.arange(100, dtype=np.uint16).tofile(tmp_path / "a.bin")
    store = StoreFolder(s3.bucket())
    store.upload("a.bin", tmp_path / "a.bin")
    assert open_tokens(f"{store}/a.bin", layout="bin", dtype="uint16").read(3, 5).tokens.tolist() == [3, 4]
