"""Several processes that share nothing but an object store."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING, Any

import pytest

import bytemill as bm
from bytemill.cluster import encode_corpus, open_executor
from bytemill.corpus import Corpus
from bytemill.data.executors.count import count_corpus, remove_work
from bytemill.data.layouts import LAYOUTS
from bytemill.errors import ClusterError, CorpusError, StorageError
from bytemill.storage import StoreFolder
from bytemill.training.counting import CountingSettings
from bytemill.training.counting import count_corpus as count_in_one_process
from bytemill.training.counts import save
from bytemill.training.work_folder import WorkFolder
from tests.cluster.corpora import EOT, InlineExecutor, mixed_corpus, tokenizer
from tests.support.stored_shards import assert_stored

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.s3_server import Request, S3Server


@pytest.fixture(scope="module")
def tok() -> bm.Tokenizer:
    return tokenizer()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return Corpus(mixed_corpus(tmp_path_factory.mktemp("corpus")))


@pytest.mark.parametrize(
    "options",
    [pytest.param({}, marks=pytest.mark.slow), {"validation_fraction": 0.4, "document_index": True}],
)
@pytest.mark.parametrize(
    "layout",
    [
        pytest.param(layout, marks=() if layout in {"npy", "megatron"} else pytest.mark.slow)
        for layout in sorted(LAYOUTS)
    ],
)
def test_every_layout(
    tok: bm.Tokenizer, corpus: Corpus, tmp_path: Path, s3: S3Server, layout: str, options: dict[str, Any]
) -> None:
    url = f"{s3.bucket()}/shards"
    options = {"layout": layout, "shard_tokens": 5000, "documents": EOT, **options}
    bm.encode_corpus(tok, corpus, tmp_path / "here", **options)
    with InlineExecutor() as executor:
        manifest = encode_corpus(executor, tok, corpus, url, unit_bytes=20_000, **options)
        assert encode_corpus(executor, tok, corpus, url, unit_bytes=20_000, **options) == manifest
    assert_stored(url, tmp_path / "copy", tmp_path / "here")


def test_local_processes(tok: bm.Tokenizer, corpus: Corpus, tmp_path: Path, s3: S3Server) -> None:
    url = s3.bucket()
    bm.encode_corpus(tok, corpus, tmp_path / "here", shard_tokens=5000)
    with open_executor("local", num_workers=2) as executor:
        encode_corpus(executor, tok, corpus, url, unit_bytes=20_000, shard_tokens=5000)
    assert_stored(url, tmp_path / "copy", tmp_path / "here")


def test_an_interrupted_run_resumes(tok: bm.Tokenizer, corpus: Corpus, tmp_path: Path, s3: S3Server) -> None:
    url = s3.bucket()
    options: dict[str, Any] = {"unit_bytes": 5_000, "shard_tokens": 5000}
    bm.encode_corpus(tok, corpus, tmp_path / "here", shard_tokens=5000)
    n_done = 0

    def stop_at(n: int) -> Any:
        def report(event: Any) -> None:
            if event.stage == "encode" and event.n_done >= n:
                raise KeyboardInterrupt

        return report

    for n in (3, 9):
        with InlineExecutor() as executor, pytest.raises(KeyboardInterrupt):
            encode_corpus(executor, tok, corpus, url, progress=stop_at(n), **options)
        assert "manifest.json" not in StoreFolder(url).list()
    store = StoreFolder(url)
    store.put(".units/left.0123.ids", b"of a killed attempt")
    with (
        InlineExecutor() as executor,
        pytest.raises(ClusterError, match="unfinished work with other settings: shard_tokens was 5000"),
    ):
        encode_corpus(executor, tok, corpus, url, unit_bytes=5_000, shard_tokens=4000)

    def note_first(event: Any) -> None:
        nonlocal n_done
        n_done = n_done or event.n_done

    with InlineExecutor() as executor:
        encode_corpus(executor, tok, corpus, url, progress=note_first, **options)
    assert n_done >= 9
    assert_stored(url, tmp_path / "copy", tmp_path / "here")


@pytest.mark.parametrize("what", ["503", "lose", "truncate"])
def test_faults(tok: bm.Tokenizer, corpus: Corpus, tmp_path: Path, s3: S3Server, what: str) -> None:
    url, chosen, lock = s3.bucket(), random.Random(what), threading.Lock()

    def fault(_: Request) -> str | None:
        with lock:
            return what if chosen.random() < 0.1 else None

    bm.encode_corpus(tok, corpus, tmp_path / "here", shard_tokens=9000)
    with s3.fault(fault), InlineExecutor() as executor:
        encode_corpus(executor, tok, corpus, url, unit_bytes=40_000, shard_tokens=9000)
    assert_stored(url, tmp_path / "copy", tmp_path / "here")


def test_bad_input_and_lost_access(tok: bm.Tokenizer, tmp_path: Path, s3: S3Server) -> None:
    (tmp_path / "good.txt").write_text("good " * 1000)
    (tmp_path / "bad.txt").write_bytes(b"bad " * 1000 + b"\xff")
    url = s3.bucket()
    with InlineExecutor() as executor, pytest.raises(CorpusError, match=r"bad\.txt"):
        encode_corpus(executor, tok, Corpus([tmp_path / "bad.txt", tmp_path / "good.txt"]), url)
    assert "manifest.json" not in StoreFolder(url).list()
    url = s3.bucket()
    with (
        s3.fault(lambda request: "403" if request.method == "PUT" and ".ids" in request.path else None),
        InlineExecutor() as executor,
        pytest.raises(StorageError, match="ExpiredToken"),
    ):
        encode_corpus(executor, tok, Corpus([tmp_path / "good.txt"]), url)


def test_counting(corpus: Corpus, tmp_path: Path, s3: S3Server) -> None:
    settings = CountingSettings([EOT], None, 1)
    work = f"{s3.bucket()}/work"
    with WorkFolder(None) as one:
        save(count_in_one_process(corpus, settings, one), tmp_path / "one.counts")
    for _ in range(2):
        with InlineExecutor() as executor:
            counted = count_corpus(executor, corpus, settings, work, unit_bytes=10_000)
        save(counted, tmp_path / "many.counts")
        assert (tmp_path / "many.counts").read_bytes() == (tmp_path / "one.counts").read_bytes()
    assert StoreFolder(work).list()
    remove_work(work)
    assert StoreFolder(work).list() == {}
