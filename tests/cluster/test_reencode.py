"""Shards that several processes encode with another tokenizer are those of one process."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import bytemill as bm
from bytemill.cluster import encode_corpus, open_executor
from bytemill.corpus import Corpus
from bytemill.data.layouts import LAYOUTS
from bytemill.data.reencode import reencode_settings
from bytemill.errors import ShardError
from bytemill.shards import reencode_shards, shard_corpus
from tests.cluster.corpora import EOT, InlineExecutor, files_of, mixed_corpus, tokenizer

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def tok() -> bm.Tokenizer:
    return tokenizer()


@pytest.fixture(scope="module")
def target() -> bm.Tokenizer:
    return bm.train_from_iterator(["low lower lowest 日本語 newer wider " * 20], 280, [EOT, "<s>"])


def check(
    shards: Path, tok: bm.Tokenizer, target: bm.Tokenizer, folder: Path, unit_bytes: int, **options: Any
) -> None:
    corpus = shard_corpus(shards, tok, target, **options)
    manifest = reencode_shards(corpus, target, folder / "one", overwrite=True)
    with InlineExecutor() as executor:
        found = encode_corpus(
            executor,
            target,
            corpus,
            folder / "many",
            unit_bytes=unit_bytes,
            overwrite=True,
            **vars(reencode_settings(corpus, target)),
        )
    assert found == manifest
    assert files_of(folder / "many") == files_of(folder / "one")


@pytest.mark.parametrize(
    ("layout", "has_index"),
    [
        ("megatron", True),
        ("npy", False),
        *(
            pytest.param(layout, True, marks=pytest.mark.slow)
            for layout in sorted(LAYOUTS)
            if layout != "megatron"
        ),
        pytest.param("bin", False, marks=pytest.mark.slow),
    ],
)
def test_every_layout(
    tok: bm.Tokenizer, target: bm.Tokenizer, tmp_path: Path, layout: str, has_index: bool
) -> None:
    paths = mixed_corpus(tmp_path)
    bm.encode_corpus(
        tok,
        Corpus(paths),
        tmp_path / "shards",
        layout=layout,
        shard_tokens=3000,
        document_index=has_index,
        documents=EOT,
        prepend="<s>",
    )
    for unit_bytes in (700, 9000, 10**9):
        check(tmp_path / "shards", tok, target, tmp_path, unit_bytes)


@given(
    documents=st.lists(
        st.lists(st.sampled_from(["low ", "é", "日本語", "\n", "x" * 40, "<s>"]), max_size=60).map("".join),
        min_size=1,
        max_size=30,
    ),
    unit_bytes=st.integers(2, 500),
    shard_tokens=st.integers(5, 200),
    has_separators=st.booleans(),
)
def test_any_documents(
    tok: bm.Tokenizer,
    target: bm.Tokenizer,
    tmp_path: Path,
    documents: list[str],
    unit_bytes: int,
    shard_tokens: int,
    has_separators: bool,
) -> None:
    if not any(documents):
        return
    bm.encode_corpus(
        tok,
        Corpus.from_texts(documents),
        tmp_path / "shards",
        shard_tokens=shard_tokens,
        document_index=True,
        documents=EOT,
        separators=has_separators,
        overwrite=True,
    )
    check(tmp_path / "shards", tok, target, tmp_path, unit_bytes, on_error="skip")


def test_parts_are_even_and_pickled_without_their_files(
    tok: bm.Tokenizer, target: bm.Tokenizer, tmp_path: Path
) -> None:
    texts = [f"document {number} of many " * 5 for number in range(3000)]
    bm.encode_corpus(tok, Corpus.from_texts(texts), tmp_path / "shards", document_index=True)
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
    texts = [f"document {number} " * 9 for number in range(500)]
    bm.encode_corpus(tok, Corpus.from_texts(texts), tmp_path / "shards", document_index=True)
    corpus = shard_corpus(tmp_path / "shards", tok, target)
    reencode_shards(corpus, target, tmp_path / "one")
    with open_executor("local", num_workers=2) as executor:
        encode_corpus(
            executor,
            target,
            corpus,
            tmp_path / "many",
            unit_bytes=3000,
            **vars(reencode_settings(corpus, target)),
        )
    assert files_of(tmp_path / "many") == files_of(tmp_path / "one")
    bm.encode_corpus(tok, Corpus.from_texts(texts), tmp_path / "unknown", separators=False)
    corpus = shard_corpus(tmp_path / "unknown", tok, target)
    with (
        InlineExecutor() as executor,
        pytest.raises(ShardError, match=r"ends of documents in .* are unknown"),
    ):
        encode_corpus(executor, target, corpus, tmp_path / "out", **vars(reencode_settings(corpus, target)))
