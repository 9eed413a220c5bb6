"""Threads, forks and Ctrl-C: tokenizers are shared without blocking, and long work can be interrupted."""

import copy
import os
import pickle
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import bytemill

END = "<|endoftext|>"
PARAGRAPH = (
    "The quick brown fox, 123 foxes; 今日は、世界。 naïve café's indented\n    code(that) {calls}\r\n\r\n"
)


MANY = 8_000_000 // len(PARAGRAPH.encode())
"""Paragraphs in 8 MB."""


@pytest.fixture
def ticks() -> Iterator[list[int]]:
    """A thread that counts the milliseconds in which it was let in.

    Nobody is made to hand the interpreter over meanwhile: the thread gets it only while another gives it up by itself.
    """
    counted, stop = [0], threading.Event()

    def tick() -> None:
        while not stop.is_set():
            counted[0] += 1
            time.sleep(0.001)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1000.0)
    thread = threading.Thread(target=tick)
    thread.start()
    try:
        yield counted
    finally:
        stop.set()
        thread.join()
        sys.setswitchinterval(before)


LONG_WORK: dict[str, Callable[[bytemill.Tokenizer, str], Any]] = {
    "encode": lambda ours, text: ours.encode(text, num_threads=1),
    "encode on threads": lambda ours, text: ours.encode(text, num_threads=2),
    "encode_to_numpy": lambda ours, text: ours.encode_to_numpy(text, num_threads=1),
    "encode_with_offsets": lambda ours, text: ours.core.encode_with_spans(text, "all", 1),
    "encode_batch": lambda ours, text: ours.encode_batch([text], num_threads=1),
    "count": lambda ours, text: ours.count(text),
    "encode_iterable": lambda ours, text: next(ours.encode_iterable([text])),
    "a stream": lambda ours, text: ours.core.stream("all", "strict", 1).feed(text),
}


@pytest.mark.parametrize("name", LONG_WORK)
def test_other_threads_run_while_one_encodes(small: bytemill.Tokenizer, ticks: list[int], name: str) -> None:
    text = PARAGRAPH * MANY
    assert other_thread_runs_while(lambda: LONG_WORK[name](small, text), ticks)


def test_other_threads_run_while_one_decodes(small: bytemill.Tokenizer, ticks: list[int]) -> None:
    ids = np.tile(small.encode_to_numpy(PARAGRAPH), MANY)
    assert other_thread_runs_while(lambda: small.decode_bytes(ids), ticks)


def other_thread_runs_while(work: Callable[[], object], ticks: list[int]) -> bool:
    """Check for ticks within the work, which is repeated: the system may have no processor left for them.

    Between two repetitions this thread keeps the interpreter to itself.
    """
    before = ticks[0]
    for _ in range(100):
        work()
        if ticks[0] - before >= 2:
            return True
    return False


def test_the_other_thread_is_blocked_if_the_gil_is_held(ticks: list[int]) -> None:
    before = ticks[0]
    sum(number * number for number in range(300_000))
    assert ticks[0] == before


def everything(ours: bytemill.Tokenizer, text: str) -> list[Any]:
    """What each method gives for a text."""
    ids = ours.encode(text)
    encoded = ours.encode_with_offsets(text)
    decoder = ours.stream_decoder()
    again = pickle.loads(pickle.dumps(ours))  # noqa: S301
    return [
        ids,
        ours.encode_ordinary(text),
        ours.encode_to_numpy(text).tolist(),
        ours.encode_batch([text, text[:20]]),
        list(ours.encode_iterable(text.splitlines(keepends=True))),
        encoded.ids.tolist(),
        encoded.char_offsets.tolist(),
        ours.count(text),
        ours.decode(ids),
        ours.decode_bytes(ids),
        ours.decode_batch([ids, ids[:3]], errors="ignore"),
        "".join(decoder.feed(token_id) for token_id in ids) + decoder.finish(),
        ours.explain(text[:60]),
        [ours.token(token_id) for token_id in sorted(set(ids))],
        ours.fingerprint,
        again.fingerprint,
        again.encode(text),
        copy.copy(ours).encode(text[:100]),
        ours.truncate(270).encode(text),
    ]


def test_eight_threads_get_the_same_ids_as_one() -> None:
    chance = random.Random(11)
    words = [*PARAGRAPH.split(" "), END, "x" * 300, "一" * 100, "é" * 70, "\n"]
    texts = [" ".join(chance.choices(words, k=chance.randint(1, 300))) for _ in range(8)]
    specs = bytemill.train_from_iterator([PARAGRAPH * 2], vocab_size=320, special_tokens=[END]).to_spec()
    expected = [everything(bytemill.Tokenizer.from_spec(specs), text) for text in texts]
    # All tables that are made on first use are made by whoever comes first.
    shared = bytemill.Tokenizer.from_spec(specs)
    start = threading.Barrier(8)

    def work(number: int) -> list[list[Any]]:
        start.wait()
        return [everything(shared, texts[(number + turn) % 8]) for turn in range(2)]

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(8) as pool:
            for number, results in enumerate(pool.map(work, range(8))):
                for turn, result in enumerate(results):
                    assert result == expected[(number + turn) % 8]
    finally:
        sys.setswitchinterval(before)


# A process forked while other threads encode can use the tokenizer and gets the same ids. The child has only the
# thread that forked: locks that others held stay locked, and tables that they were building are never finished.

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="platform: there is no fork")

FORKING = """
import itertools, os, random, signal, sys, threading, time, traceback, warnings
import numpy
import bytemill
from bytemill.compat.tiktoken import Encoding

# Python 3.12 and later warn about a fork while threads run, which is what these programs are about.
warnings.simplefilter("ignore", DeprecationWarning)
LETTERS = "abcdefghijklmnopqrstuvwxyz"
GREEK = "αβγδεζηθικλμνξοπρστυφχψω"
N_QUADRUPLES = 20_000

def large_vocabulary():
    "40,000 tokens, whose tables take milliseconds to build: the bytes, and groups of two, three and four letters."
    merges = [(a, b) for a in LETTERS for b in LETTERS]
    merges += [(a + b, c) for a, b, c in itertools.product(LETTERS, repeat=3)]
    merges += [(a + b + c, d) for a, b, c, d in itertools.islice(itertools.product(LETTERS, repeat=4), N_QUADRUPLES)]
    merges = [(left.encode(), right.encode()) for left, right in merges]
    tokens = [bytes([byte]) for byte in range(256)] + [left + right for left, right in merges]
    return bytemill.Tokenizer(dict(enumerate(tokens)), merges)

def words(letters, n_words, n_letters):
    chance = random.Random(1)
    return " ".join("".join(chance.choices(letters, k=n_letters)) for _ in range(n_words))

def child_of(work, expected):
    "Fork. The child exits with 0 if `work` returns what is expected, with 1 if not, with 2 after an exception."
    process = os.fork()
    if process == 0:
        status = 2
        try:
            status = 0 if numpy.array_equal(work(), expected) else 1
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    return process

def outcome_of(process, seconds=60):
    "The exit status of a child; 'hangs' for one that had to be killed."
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return "hangs"

def report(outcomes):
    "Print how the children ended, and end at once, whatever the threads are doing."
    print(*outcomes, flush=True)
    os._exit(0)
"""

WHILE_ENCODING = """
n_forks, threads, threads_of_child = map(int, sys.argv[1:])
unit = words(LETTERS[:20], 100_000, 6) + " " + words(LETTERS, 500, 90) + " " + words(GREEK, 500, 40)
unit_bytes = len(unit.encode())
text = unit * (30_000_000 // unit_bytes)
short = unit * (1_500_000 // unit_bytes)
tokenizer = bytemill.train_from_iterator([unit], vocab_size=2_000)
expected = tokenizer.encode_to_numpy(short, num_threads=1)

def encode():
    while True:
        tokenizer.encode_to_numpy(text, num_threads=threads)

threading.Thread(target=encode, daemon=True).start()
outcomes = []
for _ in range(n_forks):
    time.sleep(0.01)
    outcomes.append(outcome_of(child_of(
        lambda: tokenizer.encode_to_numpy(short, num_threads=threads_of_child), expected
    )))
    if outcomes[-1] != 0:
        break
report(outcomes)
"""

WHILE_SHORT_TEXTS_ARE_ENCODED = """
n_forks = int(sys.argv[1])
tokenizer = bytemill.train_from_iterator(iter([words(LETTERS, 2000, 6)]), vocab_size=500)
texts = [words(LETTERS, 5, 6)] * 2000
expected = tokenizer.encode(texts[0] * 100)

def encode():
    while True:
        tokenizer.encode_batch(texts, num_threads=2)
        tokenizer.encode_batch_to_numpy(texts, num_threads=2)
        tokenizer.decode_batch([expected] * 100)

for _ in range(3):
    threading.Thread(target=encode, daemon=True).start()
children = []
for _ in range(n_forks):
    time.sleep(0.002)
    children.append(child_of(lambda: tokenizer.encode(texts[0] * 100), expected))
report([outcome_of(child) for child in children])
"""

WHILE_BUILDING = """
n_forks = int(sys.argv[1])
spec = large_vocabulary().to_spec()
# More than 128 KB of pre-tokens of 64 bytes and more: their backtracking tables are built on the way.
long = words(LETTERS, 2500, 90)
long_outside_ascii = words(GREEK, 40, 60)
ids = bytemill.Tokenizer.from_spec(spec).encode_to_numpy(words(LETTERS, 10_000, 8))
WORK = {
    "backtracking": lambda own: own.encode_to_numpy(long, num_threads=1),
    "backtracking on 2 threads": lambda own: own.encode_to_numpy(long, num_threads=2),
    "one pre-token": lambda own: own.encode_to_numpy(long.replace(" ", ""), num_threads=1),
    "outside ASCII": lambda own: own.encode_to_numpy(long_outside_ascii * 500, num_threads=1),
    "decoding": lambda own: numpy.frombuffer(own.decode_bytes(ids), "u1"),
    "a list": lambda own: own.encode(long, num_threads=1),
    "tokens by their beginnings": lambda own: Encoding.from_tokenizer(own, "own").encode_with_unstable(long[:1000])[0],
}

def fork_after(delay, work, expected):
    tokenizer = bytemill.Tokenizer.from_spec(spec)
    begin, done = threading.Event(), threading.Event()

    def first_use():
        begin.set()
        work(tokenizer)
        done.set()

    threading.Thread(target=first_use, daemon=True).start()
    begin.wait()
    time.sleep(delay)
    outcome = outcome_of(child_of(lambda: work(tokenizer), expected))
    done.wait()
    return outcome

outcomes = []
for case, work in WORK.items():
    started = time.perf_counter()
    expected = work(bytemill.Tokenizer.from_spec(spec))
    seconds = time.perf_counter() - started
    outcomes += [fork_after(seconds * number / n_forks, work, expected) for number in range(n_forks)]
report(outcomes)
"""


def outcomes(script: str, *arguments: object) -> list[str]:
    """How the children of a program ended: "0" for ids that are right."""
    done = subprocess.run(
        [sys.executable, "-c", FORKING + script, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


@needs_fork
@pytest.mark.parametrize(
    ("threads", "threads_of_child"),
    [(2, 2), *(pytest.param(*each, marks=pytest.mark.slow) for each in ((1, 1), (1, 2), (2, 1)))],
)
def test_a_child_forked_while_a_text_is_encoded_gets_the_same_ids(
    threads: int, threads_of_child: int
) -> None:
    assert outcomes(WHILE_ENCODING, 5, threads, threads_of_child) == ["0"] * 5


@needs_fork
def test_children_forked_while_many_short_texts_are_encoded_get_the_same_ids() -> None:
    assert outcomes(WHILE_SHORT_TEXTS_ARE_ENCODED, 60) == ["0"] * 60


@needs_fork
@pytest.mark.parametrize("n_forks", [3, pytest.param(30, marks=pytest.mark.slow)])
def test_a_child_forked_while_tables_are_built_gets_the_same_ids(n_forks: int) -> None:
    assert outcomes(WHILE_BUILDING, n_forks) == ["0"] * (7 * n_forks)


@needs_fork
@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
def test_a_thousand_children_forked_while_a_text_is_encoded_get_the_same_ids(threads: int) -> None:
    assert outcomes(WHILE_ENCODING, 1000, threads, 2) == ["0"] * 1000


# Ctrl-C interrupts encoding of any text

needs_signals = pytest.mark.skipif(sys.platform == "win32", reason="platform: sends a POSIX signal")

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


@needs_signals
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


@needs_signals
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
