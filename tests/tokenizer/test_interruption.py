"""Ctrl-C interrupts encoding of any text."""

import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="platform: sends a POSIX signal")

PREPARE = """
import random, sys
import numpy  # so that no import waits behind the interruption
import bytemill
chance = random.Random(0)
words = ["".join(chance.choices("abcdefghijklmnop", k=n % 9 + 1)) for n in range(3000)]
tok = bytemill.train_from_iterator(iter([" ".join(words)]), vocab_size=1500, special_tokens=["<|endoftext|>"])
# Words that no table remembers, some 20 MB of them for each second that encoding is to take.
letters = bytes(97 + byte % 16 if byte > 40 else 32 for byte in range(256))
million = chance.randbytes(1 << 20).translate(letters).decode()
"""

FILES = (
    "import pathlib, tempfile; folder = tempfile.TemporaryDirectory(); "
    "path, short = (pathlib.Path(folder.name, name) for name in ('long', 'short')); "
    "path.write_text(million * 20); short.write_text(million[:1000]); paths = [short] * 20_000 + [path] * 10"
)

CASES = {
    "one text": ("text = million * 200", "tok.encode_to_numpy(text, num_threads=1)"),
    "one text on threads": ("text = million * 200", "tok.encode_to_numpy(text, num_threads=2)"),
    "a list of ids": ("text = million * 200", "tok.encode(text)"),
    "short documents": (
        "text = (million[:100_000] + '<|endoftext|>') * 1000",
        "tok.encode_to_numpy(text, num_threads=1)",
    ),
    "counting": ("text = (million[:100_000] + '<|endoftext|>') * 2000", "tok.count(text)"),
    "a batch on one thread": ("texts = [million[:1000]] * 150_000", "tok.encode_batch(texts, num_threads=1)"),
    "a batch on threads": ("texts = [million[:1000]] * 300_000", "tok.encode_batch(texts, num_threads=2)"),
    "a batch to an array": (
        "texts = [million[:1000]] * 300_000",
        "tok.encode_batch_to_numpy(texts, num_threads=2)",
    ),
    "files": (FILES, "tok.encode_files(paths, num_threads=1)"),
    "files on threads": (FILES, "tok.encode_files(paths * 2, num_threads=2)"),
    "a file that is not cut and has no end to speak of": (
        "import os, pathlib, tempfile; folder = tempfile.TemporaryDirectory(); "
        "path = pathlib.Path(folder.name, 'holes'); path.touch(); os.truncate(path, 1 << 40)",
        "tok.encode_files([path], num_threads=2)",
    ),
    "one word": ("text = million.replace(' ', '') * 30", "tok.encode_to_numpy(text, num_threads=1)"),
    "one letter": ("text = 'a' * 600_000_000", "tok.encode_to_numpy(text, num_threads=1)"),
    "bytes that are no text": (
        "data = (million[:1000].encode() + b'\\xff') * 200_000",
        "tok.core.encode_bytes(data)",
    ),
    "malformed bytes alone": ("data = b'\\xff' * 100_000_000", "tok.core.encode_bytes(data)"),
    "special tokens alone": (
        "text = '<|endoftext|>' * 20_000_000",
        "tok.encode_to_numpy(text, num_threads=1)",
    ),
    "iterating": (
        "import itertools; pieces = itertools.repeat(million[:1000], 600_000)",
        "list(tok.encode_iterable(pieces))",
    ),
    "a stream": (
        "stream = tok.core.stream('all', 'strict', 2); data = million.encode()",
        "[stream.feed(data) for _ in range(1000)]",
    ),
    "a stream's one piece": (
        "stream = tok.core.stream('all', 'strict', 1); data = million.encode() * 300",
        "stream.feed(data)",
    ),
}


N_SIGNALS = 3
"""So many SIGINTs are received one after another while the work goes on. The last one ends it."""

RECEIVE = f"""
import os, signal
n_received = 0
def receive(*_):
    global n_received
    n_received += 1
    os.write(1, b"received\\n")
    if n_received == {N_SIGNALS}:
        raise KeyboardInterrupt
signal.signal(signal.SIGINT, receive)
"""


QUICK = ("short documents", "files on threads")


@pytest.mark.parametrize(
    "case", [*QUICK, *(pytest.param(case, marks=pytest.mark.slow) for case in CASES if case not in QUICK)]
)
def test_an_interruption_ends_the_work(case: str) -> None:
    prepare, work = CASES[case]
    script = (
        PREPARE
        + RECEIVE
        + textwrap.dedent(f"""
        {prepare}
        try:
            print("ready", flush=True)
            {work}
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        else:
            print("finished", flush=True)
        if "folder" in globals():
            folder.cleanup()
        os._exit(0)  # without freeing what was prepared
    """)
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        guard = threading.Timer(120, child.kill)
        guard.start()
        try:
            assert child.stdout.readline() == b"ready\n", child.stderr.read().decode()
            for _ in range(N_SIGNALS):
                time.sleep(0.05)  # so that the work has begun, and goes on between signals
                child.send_signal(signal.SIGINT)
                assert child.stdout.readline() == b"received\n", "the work was finished first"
            assert child.stdout.readline() == b"interrupted\n"
        finally:
            guard.cancel()
            child.kill()


def test_an_interruption_before_the_first_array_is_no_panic() -> None:
    # Chained without a step of Python's own between them, so that the interruption is still to come in the call.
    script = """
import collections, ctypes, functools, operator, os, sys
import bytemill
tok = bytemill.Tokenizer({byte: bytes([byte]) for byte in range(256)}, [])
stream = tok.core.stream("all", "strict", 1)
assert "numpy" not in sys.modules
interrupt = ctypes.pythonapi.PyErr_SetInterrupt
for call in ((tok.core.encode_to_numpy, "text", "all", 1), (stream.feed, "text"), (stream.finish,)):
    if os.fork():
        os.wait()
        continue
    try:
        collections.deque(map(operator.call, [interrupt, functools.partial(*call)]))
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    os._exit(0)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "interrupted\n" * 3, done.stderr[-1000:]
