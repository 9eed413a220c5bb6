"""Ctrl-C ends every phase of training with KeyboardInterrupt."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.patterns import as_pattern

from bytemill._core import PretokenCounts

pytestmark = pytest.mark.skipif(
    sys.platform == "win32", reason="platform: SIGINT cannot be sent to another process there"
)

# Says when it begins, and what ended it.
PROGRAM = """
import sys, itertools
import bytemill

def texts():
    print("ready", flush=True)
    for _ in itertools.count():
        yield "low lower newest widest " * 100

def progress(step):
    if step.phase == sys.argv[1] and not seen:
        seen.append(step)
        print("ready", flush=True)

seen = []
bytemill.train_from_iterator(["ab ab"], 257)  # imports what Python cannot always be interrupted at
try:
    {statement}
except KeyboardInterrupt:
    print("KeyboardInterrupt", flush=True)
    sys.exit(7)
"""


@contextmanager
def training(
    statement: str, phase: str = "count", stdin: int | None = None
) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(statement=statement), phase],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def interrupted(process: subprocess.Popen[str], after: float = 0.1) -> None:
    """Send Ctrl-C some time after the program is ready, and check that it ends."""
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n", process.communicate()
    time.sleep(after)
    assert process.poll() is None, process.communicate()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (7, "KeyboardInterrupt\n", "")


def sparse(path: Path) -> Path:
    """A sparse file of gigabytes of zeros."""
    with path.open("wb") as file:
        file.truncate(20 << 30)
    return path


@pytest.mark.parametrize(("pattern", "chunk_bytes"), [(r"\x00", 1000), (None, 1 << 20)])
def test_while_a_file_is_counted(tmp_path: Path, pattern: str | None, chunk_bytes: int | None) -> None:
    path = sparse(tmp_path / "zeros.txt")
    chosen = None if pattern is None else f"bytemill.{as_pattern(pattern)!r}"
    options = f"pattern={chosen}, chunk_bytes={chunk_bytes}, num_threads=2, progress=progress"
    corpus = f"bytemill.Corpus({str(path)!r}, format='text')"
    with training(f"bytemill.train({corpus}, 300, {options})") as process:
        interrupted(process)


def test_while_texts_are_counted() -> None:
    with training("bytemill.train_from_iterator(texts(), 300, num_threads=2)") as process:
        interrupted(process)


def test_while_standard_input_is_waited_for() -> None:
    reading_end, writing_end = os.pipe()
    try:
        statement = "print('ready', flush=True); bytemill.train('-', 300)"
        with training(statement, stdin=reading_end) as process:
            os.write(writing_end, b"low lower ")
            interrupted(process)
    finally:
        os.close(reading_end)
        os.close(writing_end)


@pytest.mark.parametrize(("documents", "after"), [("file", 0.0), ("line", 0.1)])
def test_while_a_pipe_waits_for_its_writer(tmp_path: Path, documents: str, after: float) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    corpus = f"bytemill.Corpus({str(pipe)!r}, documents={documents!r})"
    with training(f"print('ready', flush=True); bytemill.train({corpus}, 300)") as process:
        interrupted(process, after)


# A signal that arrives just before the main thread waits in the system leaves a flag behind and wakes nobody. The same
# is sure to happen where another thread receives it.
HEARD_BY_ANOTHER_THREAD = """
import signal, sys, threading, time
import bytemill

def receive():
    time.sleep(0.1)
    print("sent", flush=True)
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)

try:
    threading.Thread(target=receive, daemon=True).start()
    bytemill.train(bytemill.Corpus(sys.argv[1], documents=sys.argv[2]), 300)
except KeyboardInterrupt:
    sys.exit(7)
"""


@pytest.mark.parametrize(
    ("source", "documents"), [("standard input", "line"), ("pipe", "file"), ("pipe without a writer", "line")]
)
def test_a_signal_that_wakes_no_thread_is_noticed(tmp_path: Path, source: str, documents: str) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writing_end = os.open(pipe, os.O_RDWR) if source == "pipe" else None
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            HEARD_BY_ANOTHER_THREAD,
            "-" if source == "standard input" else pipe,
            documents,
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "sent\n"
        assert process.wait(timeout=60) == 7
    finally:
        process.kill()
        process.communicate()
        if writing_end is not None:
            os.close(writing_end)


@pytest.mark.parametrize("after", [0.01, 0.2])
def test_while_a_pipe_waits_for_more(tmp_path: Path, after: float) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    statement = f"print('ready', flush=True); bytemill.train({str(pipe)!r}, 300)"
    with training(statement) as process, pipe.open("wb", buffering=0) as writer:
        time.sleep(0.15)
        # Just after something has arrived, as well as long after.
        writer.write(b"low lower " * 30_000)
        interrupted(process, after)


def distinct_bytes(n_bytes: int) -> bytes:
    """Text of few letters without repetition, so that nearly every merge is of a rare pair."""
    return bytes(random.Random(1).choices(b"abcdefghijklmnopqrstuvwxyz    ", k=n_bytes))


@pytest.mark.parametrize("after", [0.2, pytest.param(0.8, marks=pytest.mark.slow)])
def test_while_merges_are_learnt(tmp_path: Path, after: float) -> None:
    path = tmp_path / "one-pretoken.txt"
    path.write_bytes(distinct_bytes(2_000_000))
    statement = f"bytemill.train({str(path)!r}, 200_000, pattern=None, progress=progress)"
    with training(statement, phase="merge") as process:
        interrupted(process, after)


@pytest.mark.slow
def test_while_merges_of_many_words_are_learnt(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_bytes(distinct_bytes(12_000_000))
    statement = f"bytemill.train({str(path)!r}, 400_000, num_threads=2, progress=progress)"
    with training(statement, phase="merge") as process:
        interrupted(process, after=0.2)


@pytest.mark.slow
def test_merging_checks_for_an_interruption_all_along() -> None:
    counts = PretokenCounts.from_items([(distinct_bytes(16_000_000), 1)])
    seen: list[int] = []
    counts.learn_merges(12_000, "bytes", 1, None, seen.append)
    assert len(seen) >= 10
    assert seen == sorted(seen)
