"""A process forked while other threads encode can use the tokenizer and gets the same ids.

The child has only the thread that forked: locks that other threads of the parent held stay locked, and tables that they
were building are never finished.
"""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="platform: there is no fork")

PREPARE = """
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
        [sys.executable, "-c", PREPARE + script, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


@pytest.mark.parametrize(
    ("threads", "threads_of_child"),
    [(2, 2), *(pytest.param(*each, marks=pytest.mark.slow) for each in ((1, 1), (1, 2), (2, 1)))],
)
def test_a_child_forked_while_a_text_is_encoded_gets_the_same_ids(
    threads: int, threads_of_child: int
) -> None:
    assert outcomes(WHILE_ENCODING, 5, threads, threads_of_child) == ["0"] * 5


def test_children_forked_while_many_short_texts_are_encoded_get_the_same_ids() -> None:
    assert outcomes(WHILE_SHORT_TEXTS_ARE_ENCODED, 60) == ["0"] * 60


@pytest.mark.parametrize("n_forks", [3, pytest.param(30, marks=pytest.mark.slow)])
def test_a_child_forked_while_tables_are_built_gets_the_same_ids(n_forks: int) -> None:
    assert outcomes(WHILE_BUILDING, n_forks) == ["0"] * (7 * n_forks)


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
def test_a_thousand_children_forked_while_a_text_is_encoded_get_the_same_ids(threads: int) -> None:
    assert outcomes(WHILE_ENCODING, 1000, threads, 2) == ["0"] * 1000
