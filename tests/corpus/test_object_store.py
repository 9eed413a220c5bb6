"""Corpora in an object store, without the library that fsspec names for it."""

import gzip
import json
import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bytemill as bm
from bytemill.cluster import encode_corpus
from bytemill.corpus import Corpus
from bytemill.errors import CorpusError
from bytemill.storage import StoreFolder
from tests.cluster.corpora import InlineExecutor, files_of, tokenizer
from tests.support.s3_server import SECRET, S3Server


@pytest.fixture
def store(s3: S3Server, tmp_path: Path) -> StoreFolder:
    store = StoreFolder(f"{s3.bucket()}/corpus")
    lines = "".join(json.dumps({"text": f"line {number} of 日本語"}) + "\n" for number in range(900))
    store.put("a.jsonl", lines.encode())
    store.put("b/c.jsonl.gz", gzip.compress(lines.encode()))
    table = pa.table({"text": [f"row {number}" for number in range(500)]})
    pq.write_table(table, tmp_path / "d.parquet", row_group_size=50)
    store.upload("d.parquet", tmp_path / "d.parquet")
    return store


def inputs(store: StoreFolder) -> list[str]:
    return [f"{store}/a.jsonl", f"{store}/b", f"{store}/*.parquet"]


def texts(corpus: Corpus) -> list[bytes]:
    found: list[bytes] = []
    for batch in corpus.read():
        start = 0
        for end in batch.ends.tolist():
            found.append(bytes(batch.data[start:end]))
            start = end
    return found


def test_names(store: StoreFolder):
    assert Corpus(inputs(store)).source_names == [f"{store}/{name}" for name in sorted(store.list())]
    assert Corpus(f"{store}/b/*.gz").source_names == [f"{store}/b/c.jsonl.gz"]
    corpus = Corpus(inputs(store))
    assert corpus.total_bytes == sum(store.list().values())
    assert len(texts(corpus)) == 900 + 900 + 500
    before = corpus.description
    store.put("a.jsonl", b'{"text": "changed"}\n')
    assert Corpus(inputs(store)).description != before
    with pytest.raises(CorpusError, match="no such file: s3://"):
        Corpus(f"{store}/nothing.txt")


def test_everything_in_the_store(store: StoreFolder, tmp_path: Path, s3: S3Server):
    """Several processes read from the store and write to it."""
    tok = tokenizer()
    corpus = pickle.loads(pickle.dumps(Corpus(inputs(store))))  # noqa: S301
    bm.encode_corpus(tok, corpus, tmp_path / "one", shard_tokens=5000)
    with InlineExecutor() as executor:
        encode_corpus(executor, tok, corpus, tmp_path / "many", unit_bytes=8000, shard_tokens=5000)
    assert files_of(tmp_path / "many") == files_of(tmp_path / "one")


def test_errors_have_no_secrets(store: StoreFolder, s3: S3Server):
    with s3.fault(lambda _: "403"), pytest.raises(CorpusError) as caught:
        Corpus(f"{store}/a.jsonl")
    assert SECRET not in str(caught.value)


def test_urls_with_secrets(store: StoreFolder, s3: S3Server, tmp_path: Path):
    """A signed URL is read, and nothing that is written down contains the signature."""
    with pytest.raises(CorpusError, match=r"the URL https://host/a\.txt contains credentials"):
        Corpus("https://me:password@host/a.txt")
    url = f"{s3.endpoint}/{store.url.removeprefix('s3://')}/a.jsonl?X-Amz-Signature=0123secret"
    corpus = Corpus(url)
    assert corpus.source_names == [url.partition("?")[0]]
    tok = tokenizer()
    bm.encode_corpus(tok, corpus, tmp_path / "shards")
    assert "0123secret" not in (tmp_path / "shards" / "manifest.json").read_text()
    with pytest.raises(CorpusError) as caught:
        Corpus(url.replace("a.jsonl", "none.jsonl"))
    assert "0123secret" not in str(caught.value)
