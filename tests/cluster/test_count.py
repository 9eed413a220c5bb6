"""Counts of several processes are those of one process, byte for byte, and so are the merges."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import bytemill as bm
from bytemill.cluster import UnitProgress, count_corpus, open_executor
from bytemill.corpus import Corpus
from bytemill.data.executors.count import remove_work
from bytemill.errors import ClusterError, CorpusError
from bytemill.training.counting import CountingSettings
from bytemill.training.counting import count_corpus as count_in_one_process
from bytemill.training.counts import save
from bytemill.training.memory_budget import CountingPlan, MemoryBudget, resident_bytes
from bytemill.training.work_folder import WorkFolder
from tests.cluster.corpora import EOT, InlineExecutor, mixed_corpus


def one_process(corpus: Corpus, counting: CountingSettings, path: Path) -> bytes:
    with WorkFolder(None) as work:
        save(count_in_one_process(corpus, counting, work), path)
    return path.read_bytes()


def check(corpus: Corpus, counting: CountingSettings, folder: Path, unit_bytes: int) -> None:
    expected = one_process(corpus, counting, folder / "one.counts")
    with InlineExecutor() as executor:
        counted = count_corpus(executor, corpus, counting, folder / "work", unit_bytes=unit_bytes)
    save(counted, folder / "many.counts")
    assert (folder / "many.counts").read_bytes() == expected
    remove_work(folder / "work")


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return mixed_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.mark.parametrize("unit_bytes", [1500, 20_000, 10**9])
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
def test_mixed_formats(paths: list[Path], tmp_path: Path, options: dict[str, Any], unit_bytes: int) -> None:
    arguments: dict[str, Any] = {"num_threads": 1, **options}
    if (more := arguments.pop("max_memory", None)) is not None:
        # This process, which runs the tasks, may have torch in memory.
        arguments["budget"] = MemoryBudget(resident_bytes() + more)
    counting = CountingSettings(**arguments)
    check(Corpus(paths), counting, tmp_path, unit_bytes)
    check(Corpus([path for path in paths if path.suffix == ".txt"]), counting, tmp_path, unit_bytes)


def test_weights_samples_and_malformed_text(paths: list[Path], tmp_path: Path) -> None:
    counting = CountingSettings([EOT], num_threads=1)
    weights = {str(paths[0]): 2.5, str(paths[3]): 0.3}
    check(Corpus(paths, weights=weights), counting, tmp_path, 3000)
    check(Corpus(paths, sample=0.3, seed=5), counting, tmp_path, 3000)
    path = tmp_path / "bad.txt"
    path.write_bytes(b"some good text \xff with \xc3 bad bytes 123\n" * 2000)
    for errors in ("replace", "skip"):
        check(Corpus(path, errors=errors), counting, tmp_path, 10_000)
    with InlineExecutor() as executor, pytest.raises(CorpusError, match="byte offset 15 "):
        count_corpus(executor, Corpus(path), counting, tmp_path / "work", unit_bytes=10_000)


def test_a_file_that_is_named_twice(paths: list[Path], tmp_path: Path) -> None:
    counting = CountingSettings([EOT], num_threads=1)
    check(Corpus([paths[0], paths[0]], sample=0.5), counting, tmp_path, 1000)
    pattern = str(paths[0].with_name("a*.jsonl"))
    check(Corpus([pattern, paths[0]], weights={pattern: 3}), counting, tmp_path, 1000)


class TinyBudget(MemoryBudget):
    """Leaves no memory for tables, so that all counts go to disk at once."""

    def counting(self, num_threads: int | None, chunk_bytes: int | None, *, in_batches: bool) -> CountingPlan:
        return CountingPlan(1, 1 << 12, 0)


def test_counts_that_do_not_fit_into_memory_stay_on_disk(paths: list[Path], tmp_path: Path) -> None:
    expected = one_process(Corpus(paths), CountingSettings([EOT], num_threads=1), tmp_path / "one.counts")
    counting = CountingSettings([EOT], budget=TinyBudget(1))
    with InlineExecutor() as executor:
        counted = count_corpus(executor, Corpus(paths), counting, tmp_path / "work", unit_bytes=1500)
    assert counted.counts.is_on_disk
    save(counted, tmp_path / "many.counts")
    assert (tmp_path / "many.counts").read_bytes() == expected
    # Such counts serve for one training.
    merges = bm.train(counted, 400, [EOT]).merges
    assert merges == bm.train(Corpus(paths), 400, [EOT]).merges


words = st.sampled_from(["low ", "lower", "\n", " ", "é", "日本語", EOT, "<s>", "12345", "it's ", "x" * 30])


@given(
    contents=st.lists(st.lists(words, max_size=300).map("".join), min_size=1, max_size=4),
    documents=st.sampled_from(["file", "line", EOT]),
    unit_bytes=st.integers(40, 2000),
    special=st.lists(st.sampled_from([EOT, "<s>", "low l", "5"]), unique=True),
    pattern=st.sampled_from(["gpt2", "o200k"]),
)
def test_any_text(
    tmp_path: Path, contents: list[str], documents: str, unit_bytes: int, special: list[str], pattern: str
) -> None:
    names = [tmp_path / f"{number}.txt" for number in range(len(contents))]
    for name, content in zip(names, contents, strict=True):
        name.write_text(content + " end", encoding="utf-8", newline="")
    if documents == EOT and EOT not in special:
        special = [*special, EOT]
    counting = CountingSettings(special, pattern, num_threads=1)
    check(Corpus(names, documents=documents), counting, tmp_path, unit_bytes)


def test_the_tree_of_merges(paths: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bytemill.data.executors.count._FAN_IN", 3)
    seen: list[UnitProgress] = []
    counting = CountingSettings([EOT], num_threads=1)
    expected = one_process(Corpus(paths), counting, tmp_path / "one.counts")
    with InlineExecutor() as executor:
        counted = count_corpus(
            executor, Corpus(paths), counting, tmp_path / "work", unit_bytes=1500, progress=seen.append
        )
    save(counted, tmp_path / "many.counts")
    assert (tmp_path / "many.counts").read_bytes() == expected
    n_units = max(event.n_units for event in seen if event.stage == "count")
    n_merges = {event.n_units for event in seen if event.stage == "merge"}
    assert n_units > 27
    assert len(n_merges) >= 4  # 3 ** 4 files


def test_an_interrupted_counting_resumes_with_its_seed(paths: list[Path], tmp_path: Path) -> None:
    counting = CountingSettings([EOT], num_threads=1)
    expected = one_process(Corpus(paths), counting, tmp_path / "one.counts")
    stops, seen = [2, 7, 40], list[UnitProgress]()

    def stop(event: UnitProgress) -> None:
        seen.append(event)
        if stops and event.n_done >= stops[0]:
            stops.pop(0)
            raise KeyboardInterrupt

    while True:
        try:
            with InlineExecutor() as executor:
                counted = count_corpus(
                    executor, Corpus(paths), counting, tmp_path / "work", unit_bytes=1500, progress=stop
                )
            break
        except KeyboardInterrupt:
            pass
    save(counted, tmp_path / "many.counts")
    assert (tmp_path / "many.counts").read_bytes() == expected
    assert not stops
    assert next(event.n_done for event in seen if event.n_bytes_before) >= 2
    with (
        InlineExecutor() as executor,
        pytest.raises(ClusterError, match="pattern was 'gpt2', now it is 'cl100k'"),
    ):
        count_corpus(
            executor, Corpus(paths), CountingSettings([EOT], "cl100k"), tmp_path / "work", unit_bytes=1500
        )


def test_local_processes_give_the_merges_of_one(paths: list[Path], tmp_path: Path) -> None:
    counting = CountingSettings([EOT], num_threads=1)
    with open_executor("local", num_workers=2) as executor:
        counted = count_corpus(executor, Corpus(paths), counting, tmp_path / "work", unit_bytes=4000)
    many = bm.train(counted, 500, [EOT])
    assert many.fingerprint == bm.train(Corpus(paths), 500, [EOT]).fingerprint
