"""Packing: every document once per epoch, whole where it fits, and the same losses as each document alone."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import bytemill
from bytemill.errors import RunConfigError
from bytemill.lm.batches import (
    PADDING,
    DocumentMask,
    PackedBatches,
    best_fit,
    cut_documents,
    inputs_and_targets,
)
from bytemill.lm.training.metrics_log import read_metrics
from bytemill.lm.training.trainer import train

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bytemill.lm.training.config import Resolved
    from tests.lm.conftest import RankServer

    Settings = Callable[..., Resolved]

LENGTH = 16


@given(st.lists(st.integers(1, 40), min_size=1, max_size=60), st.integers(2, 20))
def test_every_id_of_a_document_but_the_first_is_a_target_once(lengths: list[int], capacity: int):
    ends = np.cumsum(lengths)
    starts, sizes, continues = cut_documents(ends, capacity)
    assert continues.tolist() == [start not in {0, *ends.tolist()} for start in starts.tolist()]
    assert sizes.max() <= capacity
    targets = [i for start, size in zip(starts, sizes, strict=True) for i in range(start + 1, start + size)]
    firsts = {0, *ends.tolist()}
    assert targets == [i for i in range(int(ends[-1])) if i not in firsts]


@given(st.lists(st.integers(1, 20), min_size=1, max_size=80), st.integers(20, 30))
def test_bins_hold_every_item_once_and_no_two_could_be_one(lengths: list[int], capacity: int):
    bins = best_fit(np.array(lengths), capacity)
    assert sorted(item for items in bins for item in items) == list(range(len(lengths)))
    fills = sorted(sum(lengths[item] for item in items) for items in bins)
    assert fills[-1] <= capacity
    assert len(fills) < 2 or fills[0] + fills[1] > capacity


@pytest.fixture
def documents(tmp_path: Path) -> tuple[Path, list[list[int]]]:
    """Shards of 60 documents of 1 to 50 ids, and the ids of each."""
    tokenizer = bytemill.Tokenizer({i: bytes([i]) for i in range(256)}, [], ["<|endoftext|>"])
    generator = np.random.default_rng(1)
    texts = ["".join(chr(97 + i % 26) for i in range(n)) + str(n) for n in generator.integers(0, 48, 60)]
    path = tmp_path / "texts.txt"
    path.write_text("<|endoftext|>".join(texts) + "<|endoftext|>")
    bytemill.encode_corpus(tokenizer, path, tmp_path / "shards", documents="<|endoftext|>")
    tokenizer.save(tmp_path / "tokenizer.json")
    return tmp_path / "shards", [[*tokenizer.encode(text), 256] for text in texts]


@pytest.mark.parametrize("separator_first", [False, True])
@pytest.mark.parametrize("seed", [0, 3])
def test_every_id_is_predicted_once_from_the_ids_before_it_in_its_document(
    documents: tuple[Path, list[list[int]]], seed: int, separator_first: bool
):
    mask = DocumentMask(256, separator_first=separator_first)
    batches = PackedBatches([documents[0]], LENGTH, mask, seed=seed)
    is_separator = batches.tokens[:] == 256
    positions = np.arange(len(is_separator)) + 1000
    batches.tokens = cast("Any", np.where(is_separator, 256, positions))  # ids that tell where they stand
    starts_document = np.concatenate([[True], is_separator[:-1]])
    seen: Counter[int] = Counter()
    inputs, targets = inputs_and_targets(batches.windows(0, batches.n_windows), "cpu")
    for row, own, starts in zip(
        *(each.tolist() for each in (inputs, targets, mask.starts(inputs))), strict=True
    ):
        for i, target in enumerate(own):
            if target >= 1000:
                seen[target - 1000] += 1
                context = row[starts[i] : i + 1]
                if starts_document[target - 1000]:
                    assert context[-1] == 256
                else:
                    whole = list(range(target - len(context), target))
                    assert context == whole or (separator_first and context == [256, *whole[1:]])
    firsts = set(np.flatnonzero(starts_document & ~is_separator).tolist())
    expected = set(np.flatnonzero(~is_separator).tolist()) - (set() if separator_first else firsts)
    expected.discard(0)  # the corpus has no separator in front of it
    assert {position for position in seen if position not in firsts or separator_first} == expected
    assert set(seen.values()) == {1}


@pytest.mark.parametrize("seed", [0, 3])
def test_an_epoch_has_the_same_windows_in_another_order_and_little_padding(
    documents: tuple[Path, list[list[int]]], seed: int
):
    batches = PackedBatches([documents[0]], LENGTH, DocumentMask(256), seed=seed)
    epochs = [batches.windows(epoch * batches.n_windows, batches.n_windows).tolist() for epoch in range(2)]
    assert epochs[0] != epochs[1]
    assert sorted(epochs[0]) == sorted(epochs[1])
    counts = [sum(token >= 0 for row in rows for token in row[1:]) for rows in (epochs[0][:1], epochs[0])]
    assert [batches.n_targets(0, n) for n in (1, batches.n_windows)] == counts
    assert batches.padding_share == pytest.approx(1 - counts[1] / (batches.n_windows * LENGTH))
    assert batches.padding_share < 0.15
    firsts = [int(batches.tokens[i : i + 1][0]) for i in batches.starts(0, 5)]
    assert firsts == [max(row[0], ~row[0]) for row in epochs[0][:5]]


@pytest.mark.parametrize("seed", range(6))
def test_a_last_document_without_its_separator_is_followed_by_no_other(tmp_path: Path, seed: int):
    tokenizer = bytemill.Tokenizer({i: bytes([i]) for i in range(256)}, [], ["<|endoftext|>"])
    (tmp_path / "text.txt").write_text("ab<|endoftext|>cdef<|endoftext|>ghij")
    bytemill.encode_corpus(tokenizer, tmp_path / "text.txt", tmp_path / "shards", separators=False)
    batches = PackedBatches([tmp_path / "shards"], 11, DocumentMask(256), seed=seed)
    ids = [token for token in batches.windows(0, 1)[0].tolist() if token != PADDING]
    assert len(ids) == 12
    assert bytes(ids[-4:]) == b"ghij"


def test_processes_divide_the_windows_and_any_position_resumes(documents: tuple[Path, list[list[int]]]):
    folder, _ = documents
    whole = PackedBatches([folder], LENGTH, DocumentMask(256)).windows(0, 14)
    shares = [PackedBatches([folder], LENGTH, DocumentMask(256), rank=rank, n_processes=2) for rank in (0, 1)]
    inputs = [torch.cat([each.take(3)[0] for each in shares]) for _ in range(2)]
    assert torch.equal(torch.cat(inputs), inputs_and_targets(whole[:12], "cpu")[0])
    again = PackedBatches([folder], LENGTH, DocumentMask(256))
    again.load_state_dict(shares[0].state_dict())
    assert torch.equal(again.windows(again.position, 2), whole[12:])


def test_a_step_is_the_mean_over_the_targets_of_all_passes_and_processes(
    settings: Settings, documents: tuple[Path, list[list[int]]], rank_server: RankServer, tmp_path: Path
):
    folder, _ = documents
    always: dict[str, Any] = {
        "data__train": str(folder),
        "data__tokenizer": str(tmp_path / "tokenizer.json"),
        "data__validation": [],
        "data__packing": "documents",
        "training__document_mask": True,
        "training__steps": 3,
        "run__log_every": 1,
        "model__vocab_size": 300,
    }
    curves: list[list[float]] = []
    for n_processes, batch in ((1, 8), (1, 2), (2, 4)):
        resolved = settings(
            **always,
            training__batch_size=batch,
            training__accumulation=8 // batch,
            run__folder=str(tmp_path / f"{n_processes}-{batch}"),
        )
        if n_processes == 1:
            train(resolved)
        else:
            assert rank_server(n_processes, resolved) == [None] * n_processes
        records = read_metrics(tmp_path / f"{n_processes}-{batch}" / "metrics.jsonl", "step")
        curves.append([record["loss"] for record in records])
    assert curves[1] == pytest.approx(curves[0], abs=1e-5)
    assert curves[2] == pytest.approx(curves[0], abs=1e-5)


def test_without_a_separator_documents_cannot_be_packed(settings: Settings, tmp_path: Path):
    tokenizer = bytemill.Tokenizer({i: bytes([i]) for i in range(256)}, [], [])
    tokenizer.save(tmp_path / "tokenizer.json")
    (tmp_path / "text.txt").write_text("abc " * 100)
    bytemill.encode_corpus(tokenizer, tmp_path / "text.txt", tmp_path / "plain")
    with pytest.raises(RunConfigError, match="needs a separator between documents"):
        train(
            settings(
                data__train=str(tmp_path / "plain"),
                data__tokenizer=str(tmp_path / "tokenizer.json"),
                data__validation=[],
                data__packing="documents",
            )
        )
