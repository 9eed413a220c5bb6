"""Killed counting resumes from its checkpoint and produces the same bytes."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

import bytemill
from bytemill import Corpus
from bytemill.training.counting import CountingSettings, count_corpus
from bytemill.training.counts import CountedCorpus
from bytemill.training.work_folder import WorkFolder

END = "<|endoftext|>"

PROGRAM = """
import signal, sys
import bytemill
from bytemill.training.work_folder import WorkFolder

seconds, keep = float(sys.argv.pop(1)), WorkFolder.keep

def keep_and_wait_for_the_end(*arguments):
    keep(*arguments)
    WorkFolder.keep = keep
    # Ends the process after so many seconds of its own work, however busy the machine is.
    signal.setitimer(signal.ITIMER_PROF, seconds)

if seconds:
    WorkFolder.keep = keep_and_wait_for_the_end
bytemill.train(
    bytemill.Corpus(sys.argv[3:], documents=sys.argv[2]), 400, ["<|endoftext|>"],
    counts=sys.argv[1], checkpoint_seconds=0, chunk_bytes=1 << 15, num_threads=2, max_memory="200MB",
).save(sys.argv[1] + ".json")
"""


def texts(folder: Path, n_files: int, n_words: int) -> list[Path]:
    """Write files with many unique words."""
    files: list[Path] = []
    for place in range(n_files):
        rng = random.Random(place)
        words = [
            f"{rng.choice(['low', 'été', '世界', 'supercalifragilistic'])}{rng.randrange(n_words)}"
            for _ in range(n_words)
        ]
        files.append(folder / f"{place}.txt")
        text = "".join(f" {word}" if number % 50 else f"{END}{word}\n" for number, word in enumerate(words))
        files[-1].write_text(text, "utf-8", newline="")
    return files


def run_to_the_end(
    counts: Path, documents: str, files: list[Path], n_kills: int, rng: random.Random, seconds: float
) -> int:
    """Run the program, end it `n_kills` times within `seconds`; return how often it had a journal."""
    work = counts.with_name(f".{counts.name}.counting")
    n_resumed = 0

    def run(seconds: float) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", PROGRAM, str(seconds), str(counts), documents, *map(str, files)]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)

    for _ in range(n_kills):
        run(rng.uniform(0.001, seconds))
        n_resumed += (work / "journal.json").exists()
        if counts.exists():
            break
    outcome = run(0)
    assert outcome.returncode == 0, outcome.stderr
    return n_resumed


def check_kills(tmp_path: Path, documents: str, files: list[Path], n_kills: int, seconds: float) -> None:
    expected, found = tmp_path / "expected", tmp_path / "found"
    expected.mkdir()
    found.mkdir()
    run_to_the_end(expected / "counts.bin", documents, files, 0, random.Random(1), seconds)
    n_resumed = run_to_the_end(found / "counts.bin", documents, files, n_kills, random.Random(2), seconds)
    assert n_resumed > 0
    assert sorted(file.name for file in found.iterdir()) == ["counts.bin", "counts.bin.json"]
    for name in ("counts.bin", "counts.bin.json"):
        assert (found / name).read_bytes() == (expected / name).read_bytes()


@pytest.mark.parametrize("documents", ["file", "line"])
def test_killed_twice_it_ends_with_the_same_bytes(tmp_path: Path, documents: str) -> None:
    check_kills(tmp_path, documents, texts(tmp_path, 3, 100_000), 2, 0.02)


@pytest.mark.slow
@pytest.mark.parametrize("documents", ["file", "line", END])
def test_killed_twenty_times_it_ends_with_the_same_bytes(tmp_path: Path, documents: str) -> None:
    check_kills(tmp_path, documents, texts(tmp_path, 10, 500_000), 20, 0.4)


class StoppedError(Exception):
    """Interrupts counting."""


def count_until(
    files: list[Path], work_path: Path, n_reports: int | None, **options: object
) -> CountedCorpus:
    """Count with a checkpoint after every batch; stop after `n_reports`."""
    seen: list[int] = []

    def report(n_bytes: int, _: int | None) -> None:
        seen.append(n_bytes)
        if n_reports is not None and len(seen) > n_reports:
            raise StoppedError

    corpus = Corpus(list(map(str, files)), documents="line")
    settings = CountingSettings(chunk_bytes=1 << 12, checkpoint_seconds=0, **options)  # type: ignore[arg-type]
    with WorkFolder(work_path) as work:
        return count_corpus(corpus, settings, work, report)


def test_counting_resumes_at_its_position_and_reads_nothing_twice(tmp_path: Path) -> None:
    files = texts(tmp_path, 4, 2_000)
    expected = count_until(files, tmp_path / "none", None)
    with pytest.raises(StoppedError):
        count_until(files, tmp_path / "work", 2)
    assert (tmp_path / "work" / "journal.json").exists()
    # What is finished is not read again: there is nothing in it any more, and its size and time are the same.
    first = files[0]
    times, size = first.stat(), first.stat().st_size
    first.write_bytes(b"\n" * size)
    os.utime(first, ns=(times.st_atime_ns, times.st_mtime_ns))
    found = count_until(files, tmp_path / "work", None)
    assert found.items() == expected.items()
    assert found.info == expected.info
    assert not (tmp_path / "work").exists()
    assert found.notes == []


def test_a_journal_of_other_settings_is_dropped_with_a_note(tmp_path: Path) -> None:
    files = texts(tmp_path, 4, 2_000)
    with pytest.raises(StoppedError):
        count_until(files, tmp_path / "work", 2)
    found = count_until(files, tmp_path / "work", None, pattern="o200k")
    assert found.items() == count_until(files, tmp_path / "none", None, pattern="o200k").items()
    assert found.notes == [
        "discarded the checkpoint of a run with different pattern; counting starts from the beginning"
    ]
    assert not (tmp_path / "work").exists()


@pytest.mark.parametrize("damage", ["run", "journal", "missing", "state", "position"])
def test_damaged_checkpoints_are_counted_again(tmp_path: Path, damage: str) -> None:
    files = texts(tmp_path, 4, 2_000)
    expected = count_until(files, tmp_path / "none", None)
    with pytest.raises(StoppedError):
        count_until(files, tmp_path / "work", 2)
    journal = tmp_path / "work" / "journal.json"
    (run, *_) = (tmp_path / "work").glob("run-*")
    match damage:
        case "run":
            run.write_bytes(run.read_bytes()[:-1])
        case "missing":
            run.unlink()
        case "journal":
            journal.write_text(journal.read_text()[:-20])
        case "position":
            document = json.loads(journal.read_text())
            document["position"]["source"] += 1
            journal.write_text(json.dumps(document))
        case _:
            document = json.loads(journal.read_text())
            document["state"] = document["state"].replace('"seed"', '"sowing"')
            journal.write_text(json.dumps(document))
    found = count_until(files, tmp_path / "work", None)
    assert found.items() == expected.items()
    (note,) = found.notes
    assert note.startswith("discarded an unusable checkpoint (")
    assert not (tmp_path / "work").exists()


def test_ctrl_c_and_errors_keep_the_journal_and_its_files_alone(tmp_path: Path) -> None:
    files = texts(tmp_path, 4, 2_000)
    with pytest.raises(StoppedError):
        count_until(files, tmp_path / "work", 3)
    kept = {file.name for file in (tmp_path / "work").iterdir()}
    journal = json.loads((tmp_path / "work" / "journal.json").read_text())
    needed = {run["name"] for run in json.loads(journal["state"])["runs"]}
    assert kept == {"journal.json"} | needed


def test_what_a_run_left_that_was_killed_when_its_counts_were_saved_is_removed(tmp_path: Path) -> None:
    (file,) = texts(tmp_path, 1, 500)
    corpus, counts, left = Corpus([str(file)]), tmp_path / "a.counts", tmp_path / ".a.counts.counting"
    first = bytemill.train(corpus, 300, counts=counts)
    for folder in (left, tmp_path / "chosen"):
        folder.mkdir()
        for name in ("journal.json", "run-0", "lock"):
            (folder / name).write_text("{}")
    # A folder that was chosen may hold the checkpoint of other counts.
    assert bytemill.train(corpus, 300, counts=counts, work_folder=tmp_path / "chosen").merges == first.merges
    assert (left.exists(), (tmp_path / "chosen" / "run-0").exists()) == (True, True)
    (left / "mine.txt").write_text("")
    assert bytemill.train(corpus, 300, counts=counts).merges == first.merges
    assert [path.name for path in left.iterdir() if path.name != "lock"] == ["mine.txt"]
    (left / "mine.txt").unlink()
    bytemill.train(corpus, 300, counts=counts)
    assert not left.exists()
