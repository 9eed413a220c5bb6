"""The reading thread: read-ahead, exceptions, and its end."""

import contextlib
import io
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

import pytest

from bytemill.corpus import Corpus, documents, resolve_inputs
from bytemill.corpus.blocks import read_text
from bytemill.corpus.compression import Decompressed
from bytemill.corpus.corpus import AHEAD, prefetched
from bytemill.corpus.options import CorpusOptions
from bytemill.corpus.streams import OpenFile, ReadingStoppedError, _BufferedStream

from .conftest import read, texts_of


def threads_named(name: str) -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == name}


def reading_threads() -> set[threading.Thread]:
    return threads_named("bytemill-reader")


def test_items_come_in_order_and_an_exception_after_those_before_it() -> None:
    def make(_: threading.Event) -> Iterator[int]:
        yield from range(5)
        raise LookupError("the sixth")

    found: list[int] = []
    with pytest.raises(LookupError, match="the sixth"):
        found.extend(prefetched(make))
    assert found == [0, 1, 2, 3, 4]
    assert not reading_threads()


def test_reading_ahead_is_bounded() -> None:
    drawn: list[int] = []

    def make(_: threading.Event) -> Iterator[int]:
        for number in range(100):
            drawn.append(number)
            yield number

    items = prefetched(make)
    assert next(items) == 0
    deadline = time.monotonic() + 60
    while len(drawn) < AHEAD + 2 and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(0.02)
    assert len(drawn) == AHEAD + 2  # one is given, AHEAD wait, and one is in the thread's hand
    items.close()
    assert not reading_threads()


def opened(folder: Path) -> int:
    """Return how many files in a folder this process has open; 0 where the system does not tell."""
    n_open = 0
    with contextlib.suppress(FileNotFoundError):
        for path in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # the listing itself
                n_open += str(path.readlink()).startswith(str(folder))
    return n_open


def test_closing_ends_the_thread_and_what_it_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "BATCH_BYTES", 100)
    (tmp_path / "a.jsonl").write_text('{"text": "some text"}\n' * 1000)
    batches = Corpus(tmp_path).read()
    next(batches)
    assert len(reading_threads()) == 1
    has_descriptors = Path("/proc/self/fd").is_dir()
    assert opened(tmp_path) == has_descriptors
    batches.close()
    assert not reading_threads()
    assert opened(tmp_path) == 0
    batches = Corpus(tmp_path).read()
    next(batches)
    del batches
    assert not reading_threads()  # a generator that nobody holds any more is closed


def test_a_silent_pipe_does_not_block_closing(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "a.txt").write_text("text")
    descriptor = os.open(pipe, os.O_RDWR)  # so that neither side waits for the other
    batches = Corpus([str(tmp_path / "a.txt"), str(tmp_path / "a.txt"), str(pipe)]).read()
    assert bytes(next(batches).data) == b"text"
    assert len(reading_threads()) == 1
    batches.close()
    assert not reading_threads()
    os.close(descriptor)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="platform: this system has no named pipes")
def test_a_pipe_without_a_writer_does_not_block_closing(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "a.txt").write_text("text")
    others = set(threading.enumerate())
    batches = Corpus([str(tmp_path / "a.txt"), str(tmp_path / "a.txt"), str(pipe)]).read()
    assert bytes(next(batches).data) == b"text"
    deadline = time.monotonic() + 60
    while not (waiting := threads_named("bytemill-pipe") - others) and time.monotonic() < deadline:
        time.sleep(0.001)
    batches.close()
    assert not reading_threads()
    # Who waits for the writer in the system goes on waiting, and leaves as soon as there is one.
    (opener,) = waiting
    descriptor = os.open(pipe, os.O_WRONLY)
    opener.join(10)
    assert not opener.is_alive()
    with pytest.raises(BrokenPipeError):
        os.write(descriptor, b"text")
    os.close(descriptor)


def test_an_iterable_is_drawn_in_the_callers_thread() -> None:
    threads = set()

    def texts() -> Iterator[str]:
        threads.add(threading.current_thread())
        yield "a"

    assert texts_of(read(Corpus.from_texts(texts()))) == ["a"]
    assert threads == {threading.current_thread()}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="platform: there is no fork")
def test_a_forked_child_is_told_to_start_reading_again(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text")
    program = """
import os, sys
from bytemill.corpus import Corpus
batches = Corpus([sys.argv[1]] * 20).read()
after = next(batches).after
if os.fork():
    print(len(list(batches)), os.waitstatus_to_exitcode(os.wait()[1]))
    sys.exit()
try:
    next(batches)
except RuntimeError:
    os._exit(len(list(Corpus([sys.argv[1]] * 20).read(after))))
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, str(tmp_path / "a.txt")],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "19 19\n"


def hear_ctrl_c() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.mark.parametrize("source", ["-", "endless"])
def test_ctrl_c_ends_reading_at_once(tmp_path: Path, source: str) -> None:
    program = """
import sys, time
from bytemill.corpus import Corpus
try:
    for batch in Corpus(sys.argv[1], format="jsonl").read():
        print("reading", flush=True)
        time.sleep(0.1)
except KeyboardInterrupt:
    import threading
    print("interrupted", [t.name for t in threading.enumerate()])
"""
    if source == "endless":
        source = str(tmp_path / "a.jsonl")
        Path(source).write_text('{"text": "%s"}\n' % ("x" * 1000) * 30_000)
    child = subprocess.Popen(
        [sys.executable, "-u", "-c", program, source],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        # Jobs in the background of a shell ignore the signal, and so do their children.
        preexec_fn=hear_ctrl_c,  # noqa: PLW1509  (no thread of this test runs)
    )
    assert child.stdin is not None
    assert child.stdout is not None
    if source == "-":
        # A batch is handed on when the next one is there; then nothing comes any more.
        for _ in range(3):
            child.stdin.write('{"text": "%s"}\n' % ("x" * 1000) * 4200)
        child.stdin.flush()
    select.select([child.stdout], [], [], 60)
    assert child.stdout.readline() == "reading\n"
    time.sleep(0.15)
    child.send_signal(signal.SIGINT)
    guard = threading.Timer(60, child.kill)
    guard.start()
    rest = child.stdout.read()
    guard.cancel()
    assert child.wait(60) == 0
    # The input has not ended: it is open still, or its 30 MB would take some fifty batches.
    assert rest.splitlines()[-1] == "interrupted ['MainThread']"
    assert rest.count("reading") < 40
    child.stdin.close()
    child.stdout.close()


class EndlessRun(io.RawIOBase):
    """Bytes without an end, of which `stop` is set after a few reads."""

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop
        self.n_reads = 0

    def read(self, n_bytes: int = -1, /) -> bytes:
        self.n_reads += 1
        if self.n_reads == 5:
            self._stop.set()
        return b"x" * n_bytes


@pytest.mark.parametrize("options", [{"max_document_bytes": 1 << 40}, {"on_error": "skip"}])
def test_an_endless_line_does_not_delay_the_end_of_reading(options: dict[str, Any]) -> None:
    stop = threading.Event()
    run = EndlessRun(stop)
    source = resolve_inputs(os.devnull)[0]
    stream = _BufferedStream(Decompressed(cast("BinaryIO", run), source.name), stop)
    corpus_options = CorpusOptions(**{"documents": "line", "max_document_bytes": 1000, **options})
    chunks = read_text(OpenFile(source, stop, stream), corpus_options, {})
    with contextlib.suppress(ReadingStoppedError):
        list(chunks)
    assert run.n_reads == 5


def test_skipping_a_large_document_does_not_copy_the_rest_at_every_step() -> None:
    data = bytes(1 << 20)
    stream = _BufferedStream(Decompressed(io.BytesIO(data), "data"), threading.Event())
    assert stream.block(1 << 20)[0] == data
    buffers = set[int]()
    for _ in range(1 << 10):
        block, _ = stream.block(1 << 10)
        stream.advance(len(block))
        buffers.add(len(stream._buffer))
    assert len(buffers) < 25
    assert stream.block(1) == (b"", True)
