"""Batches: every window and every document occurs, ids are exact, the order is resumable."""

import itertools
import tracemalloc
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import bytemill
from bytemill.errors import RunConfigError, ShardError
from bytemill.lm.batches import (
    PADDING,
    DocumentMask,
    JoinedShards,
    PackedBatches,
    ShardBatches,
    best_fit,
    cut_documents,
    get_batch,
    inputs_and_targets,
    key_of,
    permuted,
    spread_starts,
    windows_at,
)
from bytemill.lm.training.config import Resolved
from bytemill.lm.training.metrics_log import read_metrics
from bytemill.lm.training.run_folder import RunFolder
from bytemill.lm.training.trainer import train
from tests.lm.conftest import RankServer
from tests.support.s3_server import S3Server

from .conftest import Corpus

Settings = Callable[..., Resolved]

BYTES = bytemill.Tokenizer({i: bytes([i]) for i in range(256)}, [])


def shards(
    folder: Path, n_tokens: int, shard_tokens: int = 100, tokenizer: bytemill.Tokenizer = BYTES
) -> str:
    """Shards of `n_tokens` ids, 0, 1, …, 99, 0, 1, …"""
    text = "".join(chr(number % 100) for number in range(n_tokens))
    bytemill.encode_corpus(tokenizer, bytemill.Corpus.from_texts([text]), folder, shard_tokens=shard_tokens)
    return str(folder)


@given(
    st.integers(2, 60),
    st.integers(1, 20),
    st.integers(1, 9),
    st.sampled_from([np.uint16, np.uint32, np.int64]),
)
def test_windows_are_slices_of_the_array_and_targets_are_shifted_by_one(
    n: int, length: int, size: int, dtype: type[np.integer]
):
    x = np.random.default_rng(n).integers(0, np.iinfo(np.uint16).max + 1, n).astype(dtype)
    if n <= length:
        with pytest.raises(ValueError, match="a window of"):
            get_batch(x, size, length, "cpu")
        return
    inputs, targets = get_batch(x, size, length, "cpu")
    assert inputs.shape == targets.shape == (size, length)
    assert inputs.dtype == targets.dtype == torch.int64
    places = {tuple(x[i : i + length + 1].tolist()) for i in range(n - length)}
    for row, following in zip(inputs.tolist(), targets.tolist(), strict=True):
        assert row[1:] == following[:-1]
        assert (*row, following[-1]) in places


def test_every_start_occurs_and_none_is_favoured():
    counts = Counter[int]()
    generator = torch.Generator().manual_seed(1)
    for _ in range(1000):
        inputs, _ = get_batch(np.arange(100), 32, 7, "cpu", generator=generator)
        counts.update(inputs[:, 0].tolist())
    assert set(counts) == set(range(93))  # 0 … n - m - 1
    expected = 32_000 / 93
    assert (
        sum((n - expected) ** 2 / expected for n in counts.values()) < 150
    )  # χ², 92 degrees of freedom: p ≈ 1e-4


def test_arrays_of_all_kinds_are_supported(tmp_path: Path):
    ids = np.array([32_767, 32_768, 65_535, 40_000] * 5, dtype=np.uint16)
    np.save(tmp_path / "ids.npy", ids)
    mapped = np.load(tmp_path / "ids.npy", mmap_mode="r")
    for x in (ids, mapped, torch.from_numpy(ids.astype(np.int64)), ids.astype(">u2")):
        inputs, _ = get_batch(x, 4, 4, "cpu")
        assert sorted(inputs[0].tolist()) == [32_767, 32_768, 40_000, 65_535]


@pytest.mark.parametrize("n_processes", [2, 3])
def test_processes_share_the_windows_of_one_process(tmp_path: Path, n_processes: int):
    folder = shards(tmp_path, 300, 90)
    one = ShardBatches([folder], 8, seed=5)
    several = [ShardBatches([folder], 8, seed=5, rank=r, n_processes=n_processes) for r in range(n_processes)]
    for _ in range(9):
        inputs, targets = one.take(2 * n_processes)
        shares = [each.take(2) for each in several]
        assert torch.cat([share[0] for share in shares]).equal(inputs)
        assert torch.cat([share[1] for share in shares]).equal(targets)
        assert {each.position for each in several} == {one.position}


@pytest.mark.gpu
def test_large_uint16_ids_survive_on_the_accelerator():
    ids = np.array([32_767, 32_768, 65_535, 40_000] * 5, dtype=np.uint16)
    inputs, targets = get_batch(ids, 4, 8, "cuda")
    assert inputs.device.type == targets.device.type == "cuda"
    assert set(inputs.unique().tolist()) == {32_767, 32_768, 40_000, 65_535}


def test_arguments_that_are_no_sequence_of_ids_are_refused():
    with pytest.raises(ValueError, match="one-dimensional"):
        get_batch(np.zeros((3, 3), dtype=int), 1, 1, "cpu")
    with pytest.raises(ValueError, match="must hold integers"):
        get_batch(np.zeros(9), 1, 1, "cpu")
    with pytest.raises(ValueError, match="at least 1"):
        get_batch(np.zeros(9, dtype=int), 0, 1, "cpu")
    with pytest.raises((ValueError, RuntimeError)):
        get_batch(np.zeros(9, dtype=int), 1, 1, "nowhere")


@given(st.integers(1, 300), st.integers(0, 2**64 - 1))
def test_permutations_are_permutations(n: int, key: int):
    places = permuted(np.arange(n), n, key)
    assert sorted(places.tolist()) == list(range(n))
    one_by_one = [int(permuted(np.array([i]), n, key)[0]) for i in range(min(n, 20))]
    assert one_by_one == places[:20].tolist()


def test_permutations_of_large_numbers_spread_and_differ():
    first, second = (permuted(np.arange(20_000), 10**12, key_of(7, epoch)) for epoch in range(2))
    assert len(set(first.tolist())) == 20_000
    assert len(set(first.tolist()) & set(second.tolist())) == 0
    tenths = np.bincount(first // 10**11, minlength=10)
    assert 1_700 < tenths.min() <= tenths.max() < 2_300
    with pytest.raises(ValueError, match="from 0 to 9"):
        permuted(np.array([10]), 10, 0)


@given(data=st.data())
def test_an_epoch_has_each_window_once_and_resumes_at_any_position(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
):
    n_tokens, length = data.draw(st.integers(20, 300)), data.draw(st.integers(1, 18))
    folder = shards(tmp_path_factory.mktemp("shards"), n_tokens, data.draw(st.integers(7, 90)))
    batches = ShardBatches([folder], length, seed=5)
    n = batches.n_windows
    for epoch in range(3):
        starts = sorted(batches.starts(epoch * n, n))
        assert starts == list(range(starts[0], starts[0] + n * length, length))
        assert starts[0] >= 0
        assert starts[-1] + length + 1 <= n_tokens
    position = data.draw(st.integers(0, 3 * n))
    sizes = data.draw(st.lists(st.integers(1, 5), max_size=4))
    whole = batches.starts(position, sum(sizes))
    batches.position = position
    taken = [batches.take(size)[0] for size in sizes]
    again = ShardBatches([folder], length, seed=5)
    again.load_state_dict({**batches.state_dict(), "position": position})
    for size, inputs in zip(sizes, taken, strict=True):
        assert torch.equal(inputs, again.take(size)[0])
    assert [int(start) % 100 for start in whole] == [int(row[0]) for inputs in taken for row in inputs]


def test_seeds_and_epochs_have_different_orders_and_every_start_occurs(tmp_path: Path):
    folder = shards(tmp_path / "a", 1000)
    orders = {tuple(ShardBatches([folder], 9, seed=seed).starts(0, 50)) for seed in range(20)}
    assert len(orders) == 20
    batches = ShardBatches([folder], 9)
    starts = {
        start
        for epoch in range(300)
        for start in batches.starts(epoch * batches.n_windows, batches.n_windows)
    }
    assert starts == set(range(1000 - 9))


def test_several_folders_are_one_sequence(tmp_path: Path):
    folders = [shards(tmp_path / "a", 250), shards(tmp_path / "b", 70)]
    joined = JoinedShards(folders)
    expected = np.array([i % 100 for i in range(250)] + [i % 100 for i in range(70)])
    assert len(joined) == 320
    for start, stop in ((0, 320), (10, 20), (240, 260), (249, 251), (250, 320), (5, 5)):
        assert np.array_equal(joined[start:stop], expected[start:stop])
    inputs, targets = windows_at(joined, [240, 0], 20)
    assert inputs[0].tolist() == expected[240:260].tolist()
    assert targets[0].tolist() == expected[241:261].tolist()


def test_shards_of_another_tokenizer_are_refused(tmp_path: Path):
    other = bytemill.train_from_iterator(["aaa"], 257, [])
    folders = [shards(tmp_path / "a", 250), shards(tmp_path / "b", 250, tokenizer=other)]
    with pytest.raises(ShardError, match="another tokenizer") as caught:
        JoinedShards(folders)
    assert "data encode" in (caught.value.hint or "")
    with pytest.raises(ShardError, match="than that of the run"):
        ShardBatches([folders[0]], 8, fingerprint=other.fingerprint)
    with pytest.raises(ShardError, match="no shard folder"):
        ShardBatches([], 8)


def test_too_few_tokens_and_changed_data_are_refused(tmp_path: Path):
    folder = shards(tmp_path / "a", 30)
    assert ShardBatches([folder], 29).n_windows == 1
    with pytest.raises(ShardError, match="too few for a window") as caught:
        ShardBatches([folder], 30)
    assert "--model.context-length 29" in (caught.value.hint or "")
    state = ShardBatches([folder], 5).state_dict()
    with pytest.raises(ShardError, match="n_tokens was 30 and is 40"):
        ShardBatches([shards(tmp_path / "b", 40)], 5).load_state_dict(state)


@given(st.integers(2, 500), st.integers(1, 40), st.integers(1, 60))
def test_spread_windows_do_not_overlap(n_tokens: int, length: int, n_windows: int):
    starts = spread_starts(n_tokens, length, n_windows)
    assert len(starts) == min(n_windows, (n_tokens - 1) // length)
    assert all(b - a >= length for a, b in itertools.pairwise(starts))
    assert all(start >= 0 and start + length + 1 <= n_tokens for start in starts)


def test_reading_takes_memory_only_for_the_windows(tmp_path: Path):
    bytemill.encode_corpus(
        BYTES, bytemill.Corpus.from_texts(["abcdefgh" * 1_000_000]), tmp_path / "s"
    )  # 16 MB of ids
    batches = ShardBatches([tmp_path / "s"], 64)
    batches.take(8)
    tracemalloc.start()
    for _ in range(20):
        batches.take(8)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 200_000


def test_sequential_windows_follow_each_other_and_epochs_repeat(tmp_path: Path):
    batches = ShardBatches([shards(tmp_path / "s", 50)], 8, sequential=True)
    assert batches.n_windows == 6
    inputs, targets = batches.take(6)
    assert inputs.flatten().tolist() == list(range(48))
    assert targets.flatten().tolist() == list(range(1, 49))
    assert torch.equal(batches.take(3)[0], inputs[:3])
    ranks = [
        ShardBatches([tmp_path / "s"], 8, sequential=True, rank=rank, n_processes=2) for rank in range(2)
    ]
    assert torch.equal(torch.cat([each.take(3)[0] for each in ranks]), inputs)


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


@pytest.mark.parametrize(("is_packed", "cache"), [(False, "0"), (False, "3000"), (True, "1000000")])
def test_stored_windows_are_those_of_a_folder(
    corpus: Corpus, stored: tuple[str, str], monkeypatch: pytest.MonkeyPatch, is_packed: bool, cache: str
):
    monkeypatch.setenv("BYTEMILL_SHARD_CACHE", cache)

    def batches(folder: str) -> ShardBatches:
        if is_packed:
            documents = DocumentMask(corpus.tokenizer.special_tokens[END])
            return PackedBatches([folder], 16, documents, seed=3, n_processes=2, rank=1)
        return ShardBatches([folder, folder], 16, seed=3, n_processes=2, rank=1)

    here, there = map(batches, stored)
    for _ in range(15):
        for expected, found in zip(here.take(5), there.take(5), strict=True):
            assert torch.equal(expected, found)
    for expected, found in zip(
        windows_at(here.tokens, [0, 40, 600], 16), windows_at(there.tokens, [0, 40, 600], 16), strict=True
    ):
        assert torch.equal(expected, found)


def test_a_run_reads_stored_shards(
    settings: Callable[..., Resolved], stored: tuple[str, str], tmp_path: Path, s3: S3Server
):
    losses: list[list[float]] = []
    for number, folder in enumerate(stored):
        run = str(tmp_path / f"run{number}")
        resolved = settings(data__train=folder, data__validation=folder, run__folder=run, training__steps=4)
        train(resolved)
        losses.append([record["loss"] for record in read_metrics(RunFolder(run).metrics, "step")])
    assert losses[0] == losses[1]
    assert losses[0]


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
def test_every_id_is_predicted_once_from_the_ids_before_it_in_its_document(
    documents: tuple[Path, list[list[int]]], separator_first: bool
):
    mask = DocumentMask(256, separator_first=separator_first)
    batches = PackedBatches([documents[0]], LENGTH, mask, seed=3)
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


def test_an_epoch_has_the_same_windows_in_another_order_and_little_padding(
    documents: tuple[Path, list[list[int]]],
):
    batches = PackedBatches([documents[0]], LENGTH, DocumentMask(256), seed=3)
    epochs = [batches.windows(epoch * batches.n_windows, batches.n_windows).tolist() for epoch in range(2)]
    assert epochs[0] != epochs[1]
    assert sorted(epochs[0]) == sorted(epochs[1])
    counts = [sum(token >= 0 for row in rows for token in row[1:]) for rows in (epochs[0][:1], epochs[0])]
    assert [batches.n_targets(0, n) for n in (1, batches.n_windows)] == counts
    assert batches.padding_share == pytest.approx(1 - counts[1] / (batches.n_windows * LENGTH))
    assert batches.padding_share < 0.15
    firsts = [int(batches.tokens[i : i + 1][0]) for i in batches.starts(0, 5)]
    assert firsts == [max(row[0], ~row[0]) for row in epochs[0][:5]]


@pytest.mark.parametrize("seed", range(2))
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
