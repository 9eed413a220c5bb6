"""Windows of shards in an object store are those of shards on this machine."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import bytemill
from bytemill.lm.batches import DocumentMask, PackedBatches, ShardBatches, windows_at
from bytemill.lm.training.config import Resolved
from bytemill.lm.training.metrics_log import read_metrics
from bytemill.lm.training.run_folder import RunFolder
from bytemill.lm.training.trainer import train
from tests.support.s3_server import S3Server

from .conftest import Corpus

END = "<|endoftext|>"


@pytest.fixture
def stored(corpus: Corpus, tmp_path: Path, s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """The same shards here and in a store."""
    monkeypatch.setenv("BYTEMILL_CACHE", str(tmp_path / "cache"))
    url = f"{s3.bucket()}/shards"
    for folder in (tmp_path / "here", url):
        texts = bytemill.Corpus.from_texts([corpus.text])
        bytemill.encode_corpus(
            corpus.tokenizer, texts, folder, shard_tokens=500, validation_fraction=0.0, documents=END
        )
    return str(tmp_path / "here"), url


@pytest.mark.parametrize("cache", ["0", "3000", "1000000"])
@pytest.mark.parametrize("is_packed", [False, True])
def test_windows(
    corpus: Corpus, stored: tuple[str, str], monkeypatch: pytest.MonkeyPatch, cache: str, is_packed: bool
):
    monkeypatch.setenv("BYTEMILL_SHARD_CACHE", cache)

    def batches(folder: str) -> ShardBatches:
        if is_packed:
            documents = DocumentMask(corpus.tokenizer.special_tokens[END])
            return PackedBatches([folder], 16, documents, seed=3, n_processes=2, rank=1)
        return ShardBatches([folder, folder], 16, seed=3, n_processes=2, rank=1)

    here, there = map(batches, stored)
    for _ in range(40):
        for expected, found in zip(here.take(5), there.take(5), strict=True):
            assert torch.equal(expected, found)
    for expected, found in zip(
        windows_at(here.tokens, [0, 40, 600], 16), windows_at(there.tokens, [0, 40, 600], 16), strict=True
    ):
        assert torch.equal(expected, found)


def test_training(settings: Callable[..., Resolved], stored: tuple[str, str], tmp_path: Path, s3: S3Server):
    losses: list[list[float]] = []
    for number, folder in enumerate(stored):
        run = str(tmp_path / f"run{number}")
        resolved = settings(data__train=folder, data__validation=folder, run__folder=run, training__steps=6)
        train(resolved)
        losses.append([record["loss"] for record in read_metrics(RunFolder(run).metrics, "step")])
    assert losses[0] == losses[1]
    assert losses[0]
