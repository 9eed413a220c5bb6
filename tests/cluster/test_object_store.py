"""Several processes that share nothing but an object store."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING, Any

import pytest

import bytemill as bm
from bytemill.cluster import encode_corpus, open_executor
from bytemill.corpus import Corpus
from bytemill.data.executors import count
from bytemill.data.executors.count import count_corpus, remove_work
from bytemill.data.layouts import LAYOUTS
from bytemill.errors import ClusterError, CorpusError, StorageError
from bytemill.storage import StoreFolder
from bytemill.training.counting import CountingSettings
from bytemill.training.counting import count_corpus as count_in_one_process
from bytemill.training.counts import save
from bytemill.training.work_folder import WorkFolder
from tests.cluster.corpora import EOT, InlineExecutor, encode_by_units
from tests.support.stored_shards import assert_stored

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.s3_server import Request, S3Server


@pytest.fixture
def corpus(paths: list[Path]) -> Corpus:
    return Corpus(paths)


@pytest.mark.parametrize("split", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize(
    "layout",
    [pytest.param(name, marks=() if name == "megatron" else pytest.mark.slow) for name in sorted(LAYOUTS)],
)
def test_every_layout(
    tok: bm.Tokenizer, corpus: Corpus, tmp_path: Path, s3: S3Server, layout: str, split: bool
) -> None:
    url = f"{s3.bucket()}/shards"
    options: dict[str, Any] = {"layout": layout, "shard_tokens": 5000, "documents": EOT}
    options |= {"validation_fraction": 0.4, "document_index": True} if split else {}
    bm.encode_corpus(tok, corpus, tmp_path / "here", **options)
    manifest = encode_by_units(tok, corpus, url, unit_bytes=20_000, **options)
    assert encode_by_units(tok, corpus, url, unit_bytes=20_000, **options) == manifest
    assert_stored(url, tmp_path / "copy", tmp_path / "here")


@pytest.mark.slow
def test_local_processes(tok: bm.Tokenizer, corpus: Corpus, tmp_path: Path, s3: S3Server) -> None:
    url = s3.bucket()
    bm.encode_corpus(tok, corpus, tmp_path / "here", shard_tokens=5000)
    with open_executor("local", num_workers=2) as executor:
        encode_corpus(executor, tok, corpus, url, unit_bytes=20_000, shard_tokens=5000)
    assert_stored(url, tmp_path / "copy", tmp_path / "here")


def test_an_interrupted_run_resumes(tok: bm.Tokenizer, corpus: Corpus, tmp_path: Path, s3: S3Server) -> None:
    url = s3.bucket()
    options: dict[str, Any] = {"unit_bytes": 10_000, "shard_tokens": 5000}
    bm.encode_corpus(tok, corpus, tmp_path / "here", shard_tokens=5000)
    seen: list[Any] = []

    def stop(event: Any) -> None:
        if event.n_done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        encode_by_units(tok, corpus, url, progress=stop, **options)
    store = StoreFolder(url)
    assert "manifest.json" not in store.list()
    store.put(".units/left.0123.ids", b"of a killed attempt")
    with pytest.raises(ClusterError, match="unfinished work with other settings: shard_tokens was 5000"):
        encode_by_units(tok, corpus, url, unit_bytes=10_000, shard_tokens=4000)
    encode_by_units(tok, corpus, url, progress=seen.append, **options)
    assert seen[0].n_done >= 4
    assert_stored(url, tmp_path / "copy", tmp_path / "here")


@pytest.mark.parametrize(
    "what", ["lose", *(pytest.param(w, marks=pytest.mark.slow) for w in ("503", "truncate"))]
)
def test_faults(tok: bm.Tokenizer, corpus: Corpus, tmp_path: Path, s3: S3Server, what: str) -> None:
    url, chosen, lock = s3.bucket(), random.Random(what), threading.Lock()

    def fault(_: Request) -> str | None:
        with lock:
            return what if chosen.random() < 0.1 else None

    bm.encode_corpus(tok, corpus, tmp_path / "here", shard_tokens=9000)
    with s3.fault(fault):
        encode_by_units(tok, corpus, url, unit_bytes=40_000, shard_tokens=9000)
    assert_stored(url, tmp_path / "copy", tmp_path / "here")


def test_bad_input_and_lost_access(tok: bm.Tokenizer, tmp_path: Path, s3: S3Server) -> None:
    (tmp_path / "good.txt").write_text("good " * 1000)
    (tmp_path / "bad.txt").write_bytes(b"bad " * 1000 + b"\xff")
    url = s3.bucket()
    with pytest.raises(CorpusError, match=r"bad\.txt"):
        encode_by_units(tok, Corpus([tmp_path / "bad.txt", tmp_path / "good.txt"]), url)
    assert "manifest.json" not in StoreFolder(url).list()
    with (
        s3.fault(lambda request: "403" if request.method == "PUT" and ".ids" in request.path else None),
        pytest.raises(StorageError, match="ExpiredToken"),
    ):
        encode_by_units(tok, Corpus([tmp_path / "good.txt"]), s3.bucket())


def test_counting(corpus: Corpus, tmp_path: Path, s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(count, "_PARTITIONS_PER_TASK", 32)
    settings = CountingSettings([EOT], None, 1)
    work = f"{s3.bucket()}/work"
    with WorkFolder(None) as one:
        save(count_in_one_process(corpus, settings, one), tmp_path / "one.counts")
    for _ in range(2):
        with InlineExecutor() as executor:
            counted = count_corpus(executor, corpus, settings, work, unit_bytes=15_000)
        save(counted, tmp_path / "many.counts")
        assert (tmp_path / "many.counts").read_bytes() == (tmp_path / "one.counts").read_bytes()
    assert StoreFolder(work).list()
    remove_work(work)
    assert StoreFolder(work).list() == {}
