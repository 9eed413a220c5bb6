"""Shards with BPE-dropout: a pure function of the seed, the epoch and the text of each document."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers

from bytemill import Corpus, Tokenizer, train_from_iterator
from bytemill.cluster import encode_corpus as encode_by_tasks
from bytemill.data.encode import encode_with
from bytemill.data.manifest import DropoutSettings
from bytemill.errors import ClusterError, ShardError, TokenizerError
from bytemill.shards import EncodeSettings, read_manifest
from tests.cluster.corpora import InlineExecutor

TOKENIZER = train_from_iterator(
    ["the number of the others, there and then 1 2 3"] * 9, 275, ["<|endoftext|>"]
)
CHANCE = DropoutSettings(probability=0.5, seed=3)
SETTINGS = EncodeSettings(documents="line", dropout=CHANCE, document_index=True)


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    file = tmp_path / "lines.txt"
    file.write_text("".join(f"the number {n} of the others there\n" for n in range(200)), "utf-8")
    return file


def documents(folder: Path) -> list[list[int]]:
    ids = np.concatenate([np.load(file) for file in sorted(folder.glob("shard_*.npy"))])
    ends = np.load(folder / "documents.npy")
    return [part.tolist() for part in np.split(ids, ends[:-1].astype(np.int64))]


def encoded(
    lines: Path, folder: Path, settings: EncodeSettings = SETTINGS, **options: Any
) -> list[list[int]]:
    encode_with(TOKENIZER, [lines], folder, settings, **options)
    return documents(folder)


def test_documents_keep_their_text_and_epochs_differ(lines: Path, tmp_path: Path) -> None:
    first = encoded(lines, tmp_path / "first")
    texts = [TOKENIZER.decode(ids) for ids in first]
    plain = encoded(lines, tmp_path / "plain", replace(SETTINGS, dropout=None))
    assert texts == [TOKENIZER.decode(ids) for ids in plain]
    assert sum(map(len, first)) > sum(map(len, plain))
    second = encoded(lines, tmp_path / "second", replace(SETTINGS, dropout=replace(CHANCE, epoch=1)))
    other = encoded(lines, tmp_path / "other", replace(SETTINGS, dropout=replace(CHANCE, seed=4)))
    assert first != second
    assert second != other
    assert texts == [TOKENIZER.decode(ids) for ids in second]
    assert read_manifest(tmp_path / "second").settings.dropout == replace(CHANCE, epoch=1)


def test_threads_and_the_order_of_documents_change_nothing(lines: Path, tmp_path: Path) -> None:
    first = encoded(lines, tmp_path / "first")
    assert encoded(lines, tmp_path / "threads", num_threads=2) == first
    turned = tmp_path / "turned.txt"
    turned.write_text("".join(reversed(lines.read_text("utf-8").splitlines(keepends=True))), "utf-8")
    assert encoded(turned, tmp_path / "turned") == first[::-1]


def test_nothing_left_out_is_another_encoding_with_the_same_ids(lines: Path, tmp_path: Path) -> None:
    none = replace(SETTINGS, dropout=replace(CHANCE, probability=0.0))
    plain = replace(SETTINGS, dropout=None)
    assert encoded(lines, tmp_path / "none", none) == encoded(lines, tmp_path / "plain", plain)
    with pytest.raises(ShardError):
        encoded(lines, tmp_path / "none", plain)


def test_what_dropout_does_not_do_is_refused(lines: Path, tmp_path: Path) -> None:
    with pytest.raises(ShardError, match="dropout is for text to train on"):
        replace(SETTINGS, validation_fraction=0.5)
    with pytest.raises(ShardError, match=r"dropout is 1\.5"):
        replace(SETTINGS, dropout=replace(CHANCE, probability=1.5))
    with pytest.raises(ClusterError, match="with dropout"), InlineExecutor() as executor:
        encode_by_tasks(
            executor, TOKENIZER, Corpus([lines], documents="line"), tmp_path / "tasks", dropout=CHANCE
        )
    library = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "?": 1}, unk_token="?"))
    with pytest.raises(TokenizerError, match="dropout needs a tokenizer that bytemill's core runs"):
        encode_with(Tokenizer.from_huggingface(library), [lines], tmp_path / "library", SETTINGS)
    assert not (tmp_path / "library").exists()
