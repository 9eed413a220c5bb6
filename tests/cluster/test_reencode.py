"""Shards that several processes encode with another tokenizer are those of one process."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pytest

import bytemill as bm
from bytemill.cluster import encode_corpus, open_executor
from bytemill.corpus import Corpus
from bytemill.data.layouts import LAYOUTS
from bytemill.data.reencode import reencode_settings
from bytemill.errors import ShardError
from bytemill.shards import reencode_shards, shard_corpus
from tests.cluster.corpora import EOT, encode_by_units, files_of

if TYPE_CHECKING:
    from pathlib import Path

TEXTS = [f"document {number} of many " * 5 for number in range(3000)]


@pytest.fixture(scope="module")
def target() -> bm.Tokenizer:
    return bm.train_from_iterator(["low lower lowest 日本語 newer wider " * 20], 280, [EOT, "<s>"])


@pytest.mark.parametrize(
    ("layout", "has_index"),
    [
        ("megatron", True),
        ("npy", False),
        *(pytest.param(name, True, marks=pytest.mark.slow) for name in sorted(LAYOUTS) if name != "megatron"),
        pytest.param("bin", False, marks=pytest.mark.slow),
    ],
)
def test_every_layout(
    tok: bm.Tokenizer,
    target: bm.Tokenizer,
    paths: list[Path],
    tmp_path: Path,
    layout: str,
    has_index: bool,
) -> None:
    options: dict[str, Any] = {"layout": layout, "shard_tokens": 3000, "document_index": has_index}
    bm.encode_corpus(tok, Corpus(paths), tmp_path / "shards", documents=EOT, prepend="<s>", **options)
    corpus = shard_corpus(tmp_path / "shards", tok, target)
    manifest = reencode_shards(corpus, target, tmp_path / "one")
    for unit_bytes in (1500, 10**9):
        settings = vars(reencode_settings(corpus, target))
        out = tmp_path / f"{unit_bytes}"
        assert encode_by_units(target, corpus, out, unit_bytes=unit_bytes, **settings) == manifest
        assert files_of(out) == files_of(tmp_path / "one")


def test_parts_are_even_and_pickled_without_their_files(
    tok: bm.Tokenizer, target: bm.Tokenizer, tmp_path: Path
) -> None:
    bm.encode_corpus(tok, Corpus.from_texts(TEXTS), tmp_path / "shards", document_index=True)
    corpus = shard_corpus(tmp_path / "shards", tok, target)
    parts = corpus.divide(20_000)
    assert len(parts) > 5
    assert all(20_000 <= part.n_bytes < 21_000 for part in parts[:-1])
    small = shard_corpus(tmp_path / "shards", tok, target)
    assert len(pickle.dumps(small)) < (tmp_path / "shards" / "documents.npy").stat().st_size
    copy = pickle.loads(pickle.dumps(corpus))
    assert [bytes(batch.data) for batch in copy.read_range(parts[1])] == [
        bytes(batch.data) for batch in corpus.read_range(parts[1])
    ]


def test_local_processes_and_errors(tok: bm.Tokenizer, target: bm.Tokenizer, tmp_path: Path) -> None:
    bm.encode_corpus(tok, Corpus.from_texts(TEXTS[:500]), tmp_path / "shards", document_index=True)
    corpus = shard_corpus(tmp_path / "shards", tok, target)
    settings = vars(reencode_settings(corpus, target))
    reencode_shards(corpus, target, tmp_path / "one")
    with open_executor("local", num_workers=2) as executor:
        encode_corpus(executor, target, corpus, tmp_path / "many", unit_bytes=6000, **settings)
    assert files_of(tmp_path / "many") == files_of(tmp_path / "one")
    bm.encode_corpus(tok, Corpus.from_texts(TEXTS[:500]), tmp_path / "unknown", separators=False)
    corpus = shard_corpus(tmp_path / "unknown", tok, target)
    with pytest.raises(ShardError, match=r"ends of documents in .* are unknown"):
        encode_by_units(target, corpus, tmp_path / "out", **vars(reencode_settings(corpus, target)))
