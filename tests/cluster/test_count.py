"""Counts of several processes are those of one process, byte for byte, and so are the merges."""

from pathlib import Path
from typing import Any

import pytest

import bytemill as bm
from bytemill.cluster import UnitProgress, count_corpus, open_executor
from bytemill.corpus import Corpus
from bytemill.data.executors import count
from bytemill.data.executors.count import remove_work
from bytemill.errors import ClusterError, CorpusError
from bytemill.training.counting import CountingSettings
from bytemill.training.counting import count_corpus as count_in_one_process
from bytemill.training.counts import CountedCorpus, save
from bytemill.training.memory_budget import CountingPlan, MemoryBudget, resident_bytes
from bytemill.training.work_folder import WorkFolder
from tests.cluster.corpora import EOT, InlineExecutor

COUNTING = CountingSettings([EOT], num_threads=1)


@pytest.fixture(autouse=True)
def few_merges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add up the partitions in two tasks, not in sixteen."""
    monkeypatch.setattr(count, "_PARTITIONS_PER_TASK", 32)


def one_process(corpus: Corpus, counting: CountingSettings, path: Path) -> bytes:
    with WorkFolder(None) as work:
        save(count_in_one_process(corpus, counting, work), path)
    return path.read_bytes()


def by_units(corpus: Corpus, counting: CountingSettings, work: Path, **options: Any) -> CountedCorpus:
    with InlineExecutor() as executor:
        return count_corpus(executor, corpus, counting, work, **options)


def saved(counted: CountedCorpus, folder: Path) -> bytes:
    save(counted, folder / "many.counts")
    return (folder / "many.counts").read_bytes()


def check(corpus: Corpus, counting: CountingSettings, folder: Path, unit_bytes: int) -> None:
    expected = one_process(corpus, counting, folder / "one.counts")
    counted = by_units(corpus, counting, folder / "work", unit_bytes=unit_bytes)
    assert saved(counted, folder) == expected
    remove_work(folder / "work")


@pytest.mark.parametrize(
    "options",
    [
        {"special_tokens": [EOT]},
        {"pattern": "cl100k", "special_tokens": [EOT, "the"]},
        {"pattern": None},
        {"pattern": r"\w+|\W"},
        {"max_memory": 400_000_000},
    ],
)
def test_mixed_formats(paths: list[Path], tmp_path: Path, options: dict[str, Any]) -> None:
    arguments: dict[str, Any] = {"num_threads": 1, **options}
    if (more := arguments.pop("max_memory", None)) is not None:
        # This process, which runs the tasks, may have torch in memory.
        arguments["budget"] = MemoryBudget(resident_bytes() + more)
    counting = CountingSettings(**arguments)
    texts = [path for path in paths if path.suffix == ".txt"]
    for inputs, unit_bytes in ((paths, 4000), (texts, 3000), (texts, 10**9)):
        check(Corpus(inputs), counting, tmp_path, unit_bytes)


def test_documents_weights_samples_and_malformed_text(paths: list[Path], tmp_path: Path) -> None:
    texts = [path for path in paths if path.suffix == ".txt"]
    special = CountingSettings([EOT, "<s>", "5"], "o200k", num_threads=1)
    pattern = str(paths[0].with_name("a*.jsonl"))
    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"some good text \xff with \xc3 bad bytes 123\n" * 1000)
    for corpus in (
        Corpus(texts, documents="line"),
        Corpus(texts, documents=EOT),
        Corpus(paths, weights={str(paths[0]): 2.5, str(paths[3]): 0.3}),
        Corpus(paths, sample=0.3, seed=5),
        Corpus([paths[0], paths[0]], sample=0.5),
        Corpus([pattern, paths[0]], weights={pattern: 3}),
        Corpus(bad, errors="replace"),
        Corpus(bad, errors="skip"),
    ):
        check(corpus, special, tmp_path, 5000)
    with pytest.raises(CorpusError, match="byte offset 15 "):
        by_units(Corpus(bad), COUNTING, tmp_path / "work", unit_bytes=10_000)


class TinyBudget(MemoryBudget):
    """Leaves no memory for tables, so that all counts go to disk at once."""

    def counting(self, num_threads: int | None, chunk_bytes: int | None, *, in_batches: bool) -> CountingPlan:
        return CountingPlan(1, 1 << 15, 0)


def test_counts_that_do_not_fit_into_memory_stay_on_disk(paths: list[Path], tmp_path: Path) -> None:
    corpus = Corpus(paths[:3])
    expected = one_process(corpus, COUNTING, tmp_path / "one.counts")
    counting = CountingSettings([EOT], budget=TinyBudget(1))
    counted = by_units(corpus, counting, tmp_path / "work", unit_bytes=3000)
    assert counted.counts.is_on_disk
    assert saved(counted, tmp_path) == expected
    # Such counts serve for one training.
    merges = bm.train(counted, 400, [EOT]).merges
    assert merges == bm.train(corpus, 400, [EOT]).merges


def test_the_tree_of_merges(paths: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(count, "_FAN_IN", 3)
    seen: list[UnitProgress] = []
    expected = one_process(Corpus(paths), COUNTING, tmp_path / "one.counts")
    options: dict[str, Any] = {"unit_bytes": 1500, "progress": seen.append}
    assert saved(by_units(Corpus(paths), COUNTING, tmp_path / "work", **options), tmp_path) == expected
    n_units = max(event.n_units for event in seen if event.stage == "count")
    n_merges = {event.n_units for event in seen if event.stage == "merge"}
    assert n_units > 27
    assert len(n_merges) >= 4  # 3 ** 4 files


def test_an_interrupted_counting_resumes_with_its_seed(paths: list[Path], tmp_path: Path) -> None:
    expected = one_process(Corpus(paths), COUNTING, tmp_path / "one.counts")
    stops, seen = [2, 7, 20], list[UnitProgress]()

    def stop(event: UnitProgress) -> None:
        seen.append(event)
        if stops and event.n_done >= stops[0]:
            stops.pop(0)
            raise KeyboardInterrupt

    while True:
        try:
            counted = by_units(Corpus(paths), COUNTING, tmp_path / "work", unit_bytes=2500, progress=stop)
            break
        except KeyboardInterrupt:
            pass
    assert saved(counted, tmp_path) == expected
    assert not stops
    assert next(event.n_done for event in seen if event.n_bytes_before) >= 2
    with pytest.raises(ClusterError, match="pattern was 'gpt2', now it is 'cl100k'"):
        by_units(Corpus(paths), CountingSettings([EOT], "cl100k"), tmp_path / "work", unit_bytes=2500)


def test_local_processes_give_the_merges_of_one(paths: list[Path], tmp_path: Path) -> None:
    with open_executor("local", num_workers=2) as executor:
        counted = count_corpus(executor, Corpus(paths), COUNTING, tmp_path / "work", unit_bytes=10_000)
    many = bm.train(counted, 500, [EOT])
    assert many.fingerprint == bm.train(Corpus(paths), 500, [EOT]).fingerprint
