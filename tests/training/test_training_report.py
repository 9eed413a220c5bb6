"""Progress, the training report, and the threads and files left after training."""

import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest

import bytemill
from bytemill import (
    Corpus,
    CorpusError,
    Pattern,
    TrainingProgress,
    TrainingStoppedEarly,
    reference,
    train,
    train_from_iterator,
)

END = "<|endoftext|>"


# Early stop


def test_training_that_stops_early_warns_and_reports() -> None:
    with pytest.warns(TrainingStoppedEarly) as caught:
        tokenizer = train_from_iterator(["ab ab"], 300, [END])
    (warning,) = caught
    assert str(warning.message) == (
        "training ended after 2 of 43 merges: "
        "no pair of tokens occurs any more; the vocabulary has 259 tokens"
    )
    assert warning.filename == __file__
    report = tokenizer.training_report
    assert report is not None
    assert (report.n_merges, report.n_merges_wanted, report.stopped_early) == (2, 43, True)
    assert tokenizer.special_tokens == {END: 258}


def test_training_that_fills_the_vocabulary_or_reaches_the_least_frequency() -> None:
    with pytest.warns(TrainingStoppedEarly, match="after 1 of 44 merges: no pair of tokens occurs 3 times"):
        tokenizer = train_from_iterator(["ab ab ab cd cd"], 300, min_frequency=3, special_tokens=[])
    assert tokenizer.merges == [(b"a", b"b")]
    report = train_from_iterator(["ab ab"], 258).training_report
    assert report is not None
    assert not report.stopped_early


# The report


def test_the_report_tells_what_was_read_and_learnt(tmp_path: Path) -> None:
    texts = [f"low low lower{END}newest 12345\n", f"naïve 今日は、世界。 low lower{END}{END}newest"]
    for place, text in enumerate(texts):
        (tmp_path / f"{place}.txt").write_text(text, "utf-8", newline="")
    tokenizer = train(f"{tmp_path}/?.txt", 280, [END], num_threads=2)
    report = tokenizer.training_report
    assert report is not None
    counts = Counter(reference.corpus_pretokens(texts, [END], "gpt2"))
    assert report.n_bytes == sum(len(text.encode()) for text in texts)
    assert report.n_pretokens == counts.total()
    assert report.n_unique_pretokens == len(counts)
    assert report.n_special_tokens == 3
    assert report.n_replaced == 0
    assert report.n_merges == report.n_merges_wanted == 280 - 257
    assert report.num_threads == 2
    assert [phase.name for phase in report.phases] == ["read", "count", "merge", "build"]
    read, *others = (phase.seconds for phase in report.phases)
    assert 0 <= read <= others[0]
    assert report.seconds == pytest.approx(sum(others))
    assert report.seconds > 0
    peaks = [phase.peak_memory_bytes for phase in report.phases]
    assert report.peak_memory_bytes == max(peaks)
    assert all(1 << 20 < peak < psutil.virtual_memory().total for peak in peaks)


def test_the_report_lists_the_longest_tokens(shared_data: Path) -> None:
    tokenizer = train(shared_data / "tinystories.txt", 1000, [END])
    report = tokenizer.training_report
    assert report is not None
    sizes = sorted((len(left + right) for left, right in tokenizer.merges), reverse=True)
    assert [len(token) for token in report.longest_tokens] == sizes[:20]
    assert len(set(report.longest_tokens)) == 20
    assert set(report.longest_tokens) <= set(tokenizer.vocab.values())


def test_peak_memory_follows_the_corpus(tmp_path: Path) -> None:
    # Pre-tokens that are all different take memory; the same one over and over takes none.
    size = 6_000_000
    (tmp_path / "same.txt").write_bytes(b"low " * (size // 4))
    (tmp_path / "different.txt").write_bytes(b" ".join(b"%x" % (i * 2654435761) for i in range(size // 11)))
    program = """
import sys
from bytemill import Pattern, train
for path in sys.argv[1:]:
    report = train(path, 257, num_threads=1, chunk_bytes=1 << 16).training_report
    print(report.phases[1].peak_memory_bytes)
"""
    # In a process of its own: in this one earlier tests have left memory behind that is taken first.
    paths = [str(tmp_path / f"{name}.txt") for name in ("same", "different")]
    command = [sys.executable, "-W", "ignore", "-c", program, *paths]
    same, different = map(int, subprocess.run(command, capture_output=True, check=True).stdout.split())
    assert different - same > size


# Progress


def recorded(inputs, vocab_size: int = 300, function=train, **options) -> list[TrainingProgress]:
    seen: list[TrainingProgress] = []
    function(inputs, vocab_size, progress=seen.append, **options)
    return seen


def test_progress_goes_through_the_phases_and_ends_at_the_total(tmp_path: Path) -> None:
    rng = random.Random(1)
    words = ["".join(rng.choices("abcdefgh", k=8)) for _ in range(20_000)]
    large = f"{' '.join(words)}{END}" * 4
    files = [tmp_path / "large.txt", tmp_path / "empty.txt", tmp_path / "small.txt"]
    for file, content in zip(files, (large, "", "low lower"), strict=True):
        file.write_text(content, "utf-8")
    seen = recorded(files, 1000, special_tokens=[END], num_threads=1, chunk_bytes=1)
    assert [step.phase for step in seen] == sorted(step.phase for step in seen)
    for phase, total in (("count", sum(file.stat().st_size for file in files)), ("merge", 1000 - 257)):
        steps = [step for step in seen if step.phase == phase]
        assert {step.total for step in steps} == {total}
        assert all(earlier.done <= later.done for earlier, later in pairwise(steps))
        assert steps[-1].done == total


def test_progress_is_reported_within_a_file(tmp_path: Path) -> None:
    path = tmp_path / "zeros.txt"
    n_bytes = 1 << 40  # of a sparse file, which nobody reads to its end
    with path.open("wb") as file:
        file.truncate(n_bytes)
    seen: set[int] = set()

    def progress(step: TrainingProgress) -> None:
        seen.add(step.done)
        if len(seen) == 3:
            raise EnoughError

    with pytest.raises(EnoughError):
        train(Corpus([path], format="text"), 257, pattern=Pattern.regex(r"\x00"), progress=progress)
    assert max(seen) < n_bytes


def test_progress_of_a_pipe_has_no_total_and_never_falls(tmp_path: Path) -> None:
    pipe, file = tmp_path / "pipe", tmp_path / "file.txt"
    os.mkfifo(pipe)
    file.write_bytes(b"low lower " * 1000)
    piece = b"newest widest " * 25_000
    seen: list[TrainingProgress] = []
    n_pieces = 0

    def write() -> None:
        nonlocal n_pieces
        with pipe.open("wb", buffering=0) as stream:
            while len({step.done for step in seen}) <= 3:
                stream.write(piece)
                n_pieces += 1
                time.sleep(0.01)

    writer = threading.Thread(target=write)
    writer.start()
    train([file, pipe], 262, progress=seen.append)
    writer.join()
    counting = [step for step in seen if step.phase == "count"]
    assert {step.total for step in counting} == {None}
    assert all(earlier.done <= later.done for earlier, later in pairwise(counting))
    assert counting[-1].done == n_pieces * len(piece) + file.stat().st_size


def test_progress_of_texts_counts_their_characters() -> None:
    texts = ["é" * 600_000, "low lower newest "] * 4
    seen = [step for step in recorded(texts, 257, train_from_iterator) if step.phase == "count"]
    assert len(seen) > 1
    assert all(earlier.done < later.done for earlier, later in pairwise(seen))
    assert seen[-1].done == sum(map(len, texts))


class EnoughError(Exception):
    """Raised by a callback to end training."""


@pytest.mark.parametrize(
    ("error", "phase", "as_file"),
    [
        (OSError("pipe closed"), "count", True),
        (EnoughError(), "merge", True),
        (KeyboardInterrupt(), "count", False),
        (SystemExit(3), "merge", False),
    ],
)
def test_an_exception_of_progress_ends_training_and_comes_through(
    tmp_path: Path, error: BaseException, phase: str, as_file: bool
) -> None:
    text = "low lower newest widest " * 50_000
    (tmp_path / "corpus.txt").write_text(text, "utf-8")

    def progress(step: TrainingProgress) -> None:
        if step.phase == phase:
            raise error

    corpus = bytemill.Corpus(tmp_path / "corpus.txt") if as_file else bytemill.Corpus.from_texts([text])
    with pytest.raises(type(error)) as caught:
        train(corpus, 262, progress=progress)
    assert caught.value is error


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="platform: this system has no named pipes")
def test_an_exception_in_the_middle_of_a_file_comes_through(tmp_path: Path) -> None:
    # A pipe that is written for as long as somebody reads has no end to be reached first on a fast machine.
    path = tmp_path / "endless.txt"
    os.mkfifo(path)
    stopped = threading.Event()

    def write() -> None:
        with path.open("wb", buffering=0) as pipe:
            try:
                while True:
                    pipe.write(b"low lower newest widest " * 1_000)
            except BrokenPipeError:
                stopped.set()

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    error = UnicodeDecodeError("utf-8", b"\xff", 0, 1, "raised by the callback")
    calls: list[int] = []

    def progress(step: TrainingProgress) -> None:
        calls.append(step.done)
        raise error

    with pytest.raises(UnicodeDecodeError) as caught:
        train(path, 262, progress=progress, num_threads=1)
    assert caught.value is error
    assert len(calls) == 1
    assert stopped.wait(60), "the file is still open for reading"


# Threads


def n_threads_once_settled(expected: int) -> int:
    """Return the number of threads; a joined thread may be visible a moment longer."""
    deadline = time.monotonic() + 60
    while (n := psutil.Process().num_threads()) > expected and time.monotonic() < deadline:
        time.sleep(0.01)
    return n


def stop(_: TrainingProgress) -> None:
    raise EnoughError


def not_texts() -> Iterable[Any]:
    yield 5


def failing_texts() -> Iterable[str]:
    yield "low " * 600_000
    raise EnoughError


@pytest.mark.parametrize(
    ("attempt", "error"),
    [
        pytest.param(lambda file: train(file, 258, num_threads=7), None, id="success"),
        pytest.param(lambda file: train(file, 258, num_threads=7, progress=stop), EnoughError, id="progress"),
        pytest.param(
            lambda _: train_from_iterator(["low lower"], 258, num_threads=7, progress=stop),
            EnoughError,
            id="texts-progress",
        ),
        pytest.param(
            lambda _: train_from_iterator(failing_texts(), 258, num_threads=7), EnoughError, id="iterable"
        ),
        pytest.param(lambda file: train(f"{file}.gone", 258, num_threads=7), CorpusError, id="missing"),
        pytest.param(
            lambda _: train_from_iterator(not_texts(), 258, num_threads=7), CorpusError, id="no-text"
        ),
    ],
)
def test_all_threads_end_with_training_whichever_way_it_ends(
    tmp_path: Path, attempt: Callable[[Path], object], error: type[Exception] | None
) -> None:
    file = tmp_path / "corpus.txt"
    file.write_bytes(b"low lower newest widest " * 100_000)
    before = psutil.Process().num_threads()
    kept: BaseException | None = None
    try:
        attempt(file)
    except Exception as raised:
        kept = raised  # and with it the traceback, as an interactive session keeps the last one
    assert type(kept) is (error or type(None))
    assert n_threads_once_settled(before) == before
