"""Shuffled documents: in the order of a plain sort by a hash, whatever is read at once, resumed or held in memory."""

import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from bytemill import Corpus
from bytemill.cluster import encode_corpus as encode_by_tasks
from bytemill.corpus import DocumentBatch, DocumentSource, Position, shuffle
from bytemill.corpus import documents as settings
from bytemill.data.executors.plan import estimate_encoding
from bytemill.data.unfinished import SHUFFLE_NAME
from bytemill.errors import ClusterError, OutputError, ShardError
from bytemill.shards import (
    EncodeProgress,
    EncodeSettings,
    TokenShards,
    encode_corpus,
    read_manifest,
    reencode_shards,
    shard_corpus,
)
from tests.cluster.corpora import InlineExecutor

from .packed_documents import END, TOKENIZER, Documents

GOLDEN, MASK = 0x9E3779B97F4A7C15, (1 << 64) - 1


def splitmix64(state: int) -> int:
    """The next output of the generator, written down from the paper of Steele, Lea and Flood (2014)."""
    z = (state + GOLDEN) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def in_order(items: list[Any], seed: int) -> list[Any]:
    """The items as a shuffle with this seed orders them."""
    key = splitmix64(splitmix64(seed) ^ (-GOLDEN & MASK))
    numbers = sorted(range(len(items)), key=lambda number: splitmix64((key + number * GOLDEN) & MASK))
    return [items[number] for number in numbers]


def documents_of(source: DocumentSource, start: Position | None = None) -> list[tuple[str, bytes]]:
    """The source and the text of each document; the first one may lack its beginning."""
    found: list[tuple[str, bytes]] = []
    open_text = b""
    for batch in source.read(start):
        begin = 0
        number_of = [batch.source] * len(batch.ends) if batch.sources is None else batch.sources.tolist()
        for number, end in enumerate(batch.ends.tolist(), 1):
            open_text += bytes(batch.data[begin:end])
            begin = end
            if number < len(batch.ends) or not batch.is_open:
                found.append((source.source_names[number_of[number - 1]], open_text))
                open_text = b""
        bytes(batch.data).decode()  # parts end between characters
    assert not open_text
    return found


TEXTS = st.lists(st.text("aé日🎉", max_size=12), min_size=1, max_size=30)


@given(
    texts=TEXTS,
    seed=st.integers(0, MASK),
    batch_chars=st.integers(1, 20),
    batch_bytes=st.integers(4, 40),
    bucket_bytes=st.integers(1, 64),
    buffer_bytes=st.sampled_from([1, 50, 1 << 20]),
    loaded_bytes=st.sampled_from([0, 1 << 20]),
)
def test_documents_are_sorted_by_the_hash_of_their_numbers(
    *,
    tmp_path_factory: pytest.TempPathFactory,
    texts: list[str],
    seed: int,
    batch_chars: int,
    batch_bytes: int,
    bucket_bytes: int,
    buffer_bytes: int,
    loaded_bytes: int,
) -> None:
    folder = tmp_path_factory.mktemp("shuffle")
    expected = in_order([("documents", text.encode()) for text in texts], seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(settings, "BATCH_BYTES", batch_bytes)
        patch.setattr(shuffle, "_BUCKET_BYTES", bucket_bytes)
        patch.setattr(shuffle, "_BUFFER_BYTES", buffer_bytes)
        patch.setattr(shuffle, "_MAX_LOADED_BYTES", loaded_bytes)
        with shuffle.shuffled(Documents(texts, batch_chars), seed, folder / "work") as source:
            assert documents_of(source) == expected
            total = b"".join(text for _, text in expected)
            batches = list(source.read())
            assert source.total_bytes == len(total)
            for batch in batches:
                done = batch.after.counts
                rest = documents_of(source, batch.after)
                assert len(rest) == len(texts) - done.n_documents
                assert b"".join(text for _, text in rest) == total[done.n_bytes :]
                assert batch.n_bytes_read == done.n_bytes
            assert batches[-1].after.counts.n_documents == len(texts)
    assert not (folder / "work").exists()


@pytest.fixture
def lines(tmp_path: Path) -> list[tuple[str, str]]:
    """Three files of lines, as name and line."""
    found: list[tuple[str, str]] = []
    for name, n in (("a.txt", 40), ("b.txt", 3), ("c.txt", 90)):
        texts = [f"{name} line {number} größer" for number in range(n)]
        (tmp_path / name).write_text("\n".join(texts), "utf-8")
        found += [(str(tmp_path / name), text) for text in texts]
    return found


@pytest.mark.parametrize("fraction", [0.0, 0.3])
def test_documents_of_all_files_are_mixed_and_counted_by_file(
    tmp_path: Path, lines: list[tuple[str, str]], fraction: float
) -> None:
    corpus = Corpus([tmp_path / name for name in ("a.txt", "b.txt", "c.txt")], documents="line")
    events: list[EncodeProgress] = []
    options: dict[str, Any] = {"documents": END, "validation_fraction": fraction}
    encode_corpus(TOKENIZER, corpus, tmp_path / "out", shuffle_seed=4, progress=events.append, **options)
    parts = {"train": in_order(lines, 4)}
    if fraction:
        held_out = [
            each for each in parts["train"] if xxhash.xxh3_64_intdigest(each[1].encode()) < fraction * 2**64
        ]
        parts = {"train": [each for each in parts["train"] if each not in held_out], "validation": held_out}
    for part, expected in parts.items():
        folder = tmp_path / "out" / (part if fraction else "")
        ids = [i for _, text in expected for i in TOKENIZER.encode(text + END)]
        assert TokenShards(folder)[:].tolist() == ids
        manifest = read_manifest(folder)
        assert manifest.settings.shuffle_seed == 4
        for info in manifest.sources:
            assert info.n_bytes == sum(len(text.encode()) for name, text in expected if name == info.name)
    assert sorted(event.is_shuffling for event in events) == [False] * 2 + [True] * 3
    assert events[0].is_shuffling
    assert events[-1].n_bytes == events[-1].total_bytes == sum(len(text.encode()) for _, text in lines)
    assert not (tmp_path / "out" / SHUFFLE_NAME).exists()
    # The same command finds its result, one with another order refuses.
    again: list[EncodeProgress] = []
    encode_corpus(TOKENIZER, corpus, tmp_path / "out", shuffle_seed=4, progress=again.append, **options)
    assert [event.already_complete for event in again] == [True]
    with pytest.raises(ShardError, match="shuffle_seed"):
        encode_corpus(TOKENIZER, corpus, tmp_path / "out", shuffle_seed=5, **options)
    encode_corpus(TOKENIZER, corpus, tmp_path / "out", shuffle_seed=4, recheck=True, **options)


def test_a_sample_with_the_same_seed_is_independent_of_the_order(tmp_path: Path) -> None:
    texts = [str(number) for number in range(4000)]
    corpus = Corpus.from_texts(texts, sample=0.5, seed=3)
    taken = [text for _, text in documents_of(corpus)]
    with shuffle.shuffled(Corpus.from_texts(texts), 3, tmp_path / "work") as source:
        first = {text for _, text in documents_of(source)[:2000]}
    assert 900 < len(first.intersection(taken)) < 1100  # 6 standard deviations


def test_memory_does_not_grow_with_the_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "BATCH_BYTES", 1 << 16)
    monkeypatch.setattr(shuffle, "_BUCKET_BYTES", 1 << 18)
    monkeypatch.setattr(shuffle, "_BUFFER_BYTES", 1 << 18)
    (tmp_path / "long.txt").write_text(("x" * 999 + "\n") * 16_000, "ascii")
    corpus = Corpus(tmp_path / "long.txt", documents="line")
    tracemalloc.start()
    try:
        with shuffle.shuffled(corpus, 1, tmp_path / "work") as source:
            n_bytes = sum(len(batch.data) for batch in source.read())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert n_bytes == 16_000 * 999
    assert peak < 4 << 20


def test_what_stops_the_first_pass_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(_: EncodeProgress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        encode_corpus(TOKENIZER, Documents(["a", "b"]), tmp_path / "out", shuffle_seed=1, progress=stop)
    assert not (tmp_path / "out").exists()

    open_path = Path.open

    def full(self: Path, *arguments: Any, **options: Any) -> Any:
        if self.suffix == ".text":
            raise OSError(28, "No space left on device")
        return open_path(self, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", full)
        with pytest.raises(OutputError, match=r"0000\.text: no space is left") as raised:
            encode_corpus(TOKENIZER, Documents(["a", "b"]), tmp_path / "out", shuffle_seed=1)
    assert raised.value.errno == 28
    assert not (tmp_path / "out").exists()


def test_text_that_a_killed_run_left_is_removed(tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / SHUFFLE_NAME).mkdir(parents=True)
    (out / SHUFFLE_NAME / "0000.text").write_text("of a killed run")
    (out / "UNFINISHED.txt").touch()
    encode_corpus(TOKENIZER, Documents(["a", "b"]), out)
    assert not (out / SHUFFLE_NAME).exists()


def test_several_processes_refuse(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    with InlineExecutor() as executor:
        with pytest.raises(ClusterError, match="documents are shuffled by one process"):
            encode_by_tasks(executor, TOKENIZER, tmp_path / "a.txt", tmp_path / "out", shuffle_seed=1)
        with pytest.raises(ClusterError, match="documents are shuffled by one process"):
            estimate_encoding(executor, TOKENIZER, tmp_path / "a.txt", EncodeSettings(shuffle_seed=1))
    assert not (tmp_path / "out").exists()


def test_shards_are_shuffled_by_encoding_them_again(tmp_path: Path) -> None:
    texts = [f"document {number}" for number in range(50)]
    encode_corpus(TOKENIZER, Documents(texts), tmp_path / "plain", documents=END)
    corpus = shard_corpus(tmp_path / "plain", TOKENIZER, TOKENIZER)
    reencode_shards(corpus, TOKENIZER, tmp_path / "mixed", shuffle_seed=8)
    expected = [i for text in in_order(texts, 8) for i in TOKENIZER.encode(text + END)]
    assert TokenShards(tmp_path / "mixed")[:].tolist() == expected


def test_parts_of_a_document_come_from_one_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that are each a document longer than a batch."""
    monkeypatch.setattr(settings, "BATCH_BYTES", 100)
    for number in range(5):
        (tmp_path / f"{number}.txt").write_text(f"{number}日本語" * 60, "utf-8")
    corpus = Corpus(str(tmp_path / "*.txt"))
    expected = [(str(path), path.read_bytes()) for path in sorted(tmp_path.glob("*.txt"))]
    batches: list[DocumentBatch] = []
    with shuffle.shuffled(corpus, 2, tmp_path / "work", batches.append) as source:
        assert documents_of(source) == in_order(expected, 2)
    assert len(batches) > 5
