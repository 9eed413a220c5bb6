"""Work that exceeds a limit on the address space raises MemoryError, and the process continues.

The limit is set in a separate process, to its current usage plus some megabytes, as in Stanford's CS336. A failed
allocation aborts a Rust program unless it uses a fallible call.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="platform: limits of memory are those of Linux"
)

MB = 1_000_000

NOTHING_LEFT_OVER = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": "131072",
    "MALLOC_TRIM_THRESHOLD_": "131072",
}
"""For glibc: what is freed goes back to the system, so that it is not chance how much of it there is to use again."""

PROGRAM = """
import io, itertools, os, random, resource, sys, tempfile
from pathlib import Path
import numpy
import bytemill
from bytemill.compat.tiktoken import Encoding
from bytemill._core import PretokenCounter, pretoken_spans

case, n_bytes, *limits = sys.argv[1], *map(int, sys.argv[2:])
chance = random.Random(1)
words = ["".join(chance.choices("abcdefghijklmnop", k=n % 9 + 1)) for n in range(3000)]
tok = bytemill.train_from_iterator(iter([" ".join(words)]), vocab_size=1500, special_tokens=["<|endoftext|>"])
view = Encoding.from_tokenizer(tok)
spec = tok.to_spec()

def text_of(n_bytes):
    # Many words are new, and some are longer than 64 bytes. Lines have 256 bytes on average.
    letters = bytes(97 + byte % 16 if byte > 40 else 32 if byte else 10 for byte in range(256))
    return (random.Random(2).randbytes(100_000).translate(letters).decode() + "x" * 300 + " é今日 <|endoftext|>") * (
        n_bytes // 100_000
    )

folder = tempfile.TemporaryDirectory()

class Input:
    def __init__(self, n_bytes):
        self.text = text_of(n_bytes)
        self.texts = [self.text[start : start + 1000] for start in range(0, len(self.text), 1000)]
        self.path = Path(folder.name, f"{n_bytes}.txt")
        self.path.write_text(self.text, encoding="utf-8")
        self.ids = numpy.tile(numpy.arange(1500, dtype="u2"), n_bytes // 5000)

def lines_of(path):
    with path.open(encoding="utf-8") as lines:
        for id in tok.encode_iterable(lines):
            yield id

def counted(given, threads):
    counter = PretokenCounter("gpt2", [], threads, None)
    counter.add_texts(given.texts)
    return counter.finish().n_pretokens

CASES = {
    "encode": lambda given: tok.encode(given.text, num_threads=1),
    "encode on 2 threads": lambda given: tok.encode(given.text, num_threads=2),
    "encode to an array": lambda given: tok.encode_to_numpy(given.text, num_threads=1),
    "encode to an array on 2 threads": lambda given: tok.encode_to_numpy(given.text, num_threads=2),
    "one pre-token": lambda given: tok.encode_to_numpy("x" * len(given.text), num_threads=1),
    "one pre-token without repetition": lambda given: tok.encode_to_numpy("".join(given.text.split()), num_threads=1),
    "a batch": lambda given: tok.encode_batch(given.texts, num_threads=1),
    "a batch on 2 threads": lambda given: tok.encode_batch(given.texts, num_threads=2),
    "a batch to an array": lambda given: tok.encode_batch_to_numpy(given.texts, num_threads=1),
    "a batch to an array on 2 threads": lambda given: tok.encode_batch_to_numpy(given.texts, num_threads=2),
    "files": lambda given: tok.encode_files([given.path] * 3, num_threads=1),
    "files on 2 threads": lambda given: tok.encode_files([given.path] * 3, num_threads=2),
    "offsets": lambda given: tok.core.encode_with_spans(given.text, "all", 1),
    "offsets on 2 threads": lambda given: tok.core.encode_with_spans(given.text, "all", 2),
    "bytes": lambda given: tok.core.encode_bytes(given.text.encode()),
    "unstable tokens": lambda given: view.encode_with_unstable(given.text, allowed_special="all"),
    "count tokens": lambda given: tok.count(given.text),
    "iterate over pieces": lambda given: sum(1 for _ in tok.encode_iterable(given.texts)),
    "iterate over one piece": lambda given: sum(1 for _ in tok.encode_iterable([given.text])),
    "iterate over lines of a file": lambda given: sum(1 for _ in lines_of(given.path)),
    "a stream": lambda given: tok.core.stream("all", "strict", 2).feed(given.text.encode()),
    "decode": lambda given: tok.decode(given.ids),
    "decode bytes": lambda given: tok.decode_bytes(given.ids),
    "decode a list": lambda given: tok.decode(given.ids.tolist()),
    "decode a batch": lambda given: tok.decode_batch([given.ids] * 3),
    "pre-token boundaries": lambda given: pretoken_spans(given.text, "gpt2"),
    "load": lambda given: bytemill.Tokenizer.from_spec(spec),
    "fingerprint": lambda given: bytemill.Tokenizer.from_spec(spec).fingerprint,
    "count pre-tokens": lambda given: counted(given, 1),
    "count pre-tokens on 2 threads": lambda given: counted(given, 2),
    "train": lambda given: bytemill.train_from_iterator(given.texts, 2000, num_threads=1),
    "train on 2 threads": lambda given: bytemill.train_from_iterator(given.texts, 2000, num_threads=2),
    "train on a file": lambda given: bytemill.train(given.path, 2000, num_threads=2),
    "train without pre-tokens": lambda given: bytemill.train_from_iterator(
        [given.text], 2000, pattern=None, num_threads=1
    ),
}
work, hard = CASES[case], resource.getrlimit(resource.RLIMIT_AS)[1]
given, little = Input(n_bytes), Input(200_000)
# What is imported and made with the first call is there.
work(little)
for n_more in limits:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + n_more, hard))
    try:
        work(given)
    except (MemoryError, OSError, bytemill.errors.BytemillError) as error:
        outcome = f"{type(error).__name__}: {error}"
    else:
        outcome = "done"
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    print(outcome, flush=True)
# Neither the tokenizer nor the interpreter has been left in between.
work(little)
assert tok.decode(tok.encode(given.text)) == given.text
folder.cleanup()
"""


def outcomes(case: str, *limits: int) -> list[str]:
    """What became of the work of a case within each limit, in one process: "done", or the error."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, case, str(5 * MB), *map(str, limits)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=os.environ | NOTHING_LEFT_OVER,
    )
    assert (done.returncode, done.stderr) == (0, ""), f"{done.stdout}{done.stderr[-2000:]}"
    return done.stdout.splitlines()


def is_allowed(outcome: str) -> bool:
    """Whether it is done or names an error of the kind that too little memory is."""
    return outcome == "done" or outcome.startswith(
        ("MemoryError", "NotEnoughMemoryError", "OSError", "OutputError")
    )


CASES = re.findall(r'^    "(.+)": lambda', PROGRAM, re.MULTILINE)
IN_CONSTANT_MEMORY = ("iterate over pieces", "iterate over lines of a file")


@pytest.mark.parametrize("case", CASES)
def test_running_out_of_address_space_raises_and_the_process_continues(case: str) -> None:
    found = outcomes(case, 1 * MB, 5 * MB, 12 * MB, 24 * MB)
    assert len(found) == 4
    assert all(map(is_allowed, found)), found


@pytest.mark.parametrize("case", IN_CONSTANT_MEMORY)
def test_iterating_over_five_megabytes_takes_less_than_one(case: str) -> None:
    assert outcomes(case, 1 * MB) == ["done"]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_no_address_space_limit_crashes_the_process(case: str) -> None:
    for megabytes in (0, 1, 2, 3, 5, 8, 12, 16, 20, 24, 32, 40, 50, 64, 80, 100):
        found = outcomes(case, megabytes * MB)
        assert all(map(is_allowed, found)), (megabytes, found)


HUGE_FILE = """
import resource, sys
from pathlib import Path
import numpy
import bytemill
from bytemill._core import PretokenCounter

case, path = sys.argv[1], Path(sys.argv[2])
tok = bytemill.Tokenizer({byte: bytes([byte]) for byte in range(256)}, [])

def counted():
    counter = PretokenCounter("gpt2", [], 2, None)
    counter.add_file(str(path), "strict", None)
    return counter.finish()

def iterated():
    with path.open(encoding="utf-8") as lines:
        return sum(1 for _ in tok.encode_iterable(lines))

CASES = {
    "files": lambda: tok.encode_files([path], num_threads=1),
    "files on 2 threads": lambda: tok.encode_files([path], num_threads=2),
    "count pre-tokens": counted,
    "train": lambda: bytemill.train(bytemill.Corpus([path], format="text"), 300, num_threads=2),
    "iterate over lines of a file": iterated,
}
pages = int(Path("/proc/self/statm").read_text().split()[0])
hard = resource.getrlimit(resource.RLIMIT_AS)[1]
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 64_000_000, hard))
try:
    CASES[case]()
except (MemoryError, OSError, bytemill.errors.BytemillError) as error:
    print(f"{type(error).__name__}: {error}")
resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
assert tok.encode("abc") == [97, 98, 99]
"""


@pytest.mark.parametrize(
    "case", ["files", "files on 2 threads", "count pre-tokens", "train", "iterate over lines of a file"]
)
def test_an_eight_gibibyte_pretoken_that_does_not_fit_is_an_error(case: str, tmp_path: Path) -> None:
    """A sparse file, one run of zeros, which is one pre-token and takes no room on disk."""
    path = tmp_path / "zeros.txt"
    with path.open("wb") as file:
        file.truncate((8 << 30) + 5)
    done = subprocess.run(
        [sys.executable, "-c", HUGE_FILE, case, path],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr[-2000:]
    assert done.stdout.startswith(("MemoryError", "NotEnoughMemoryError", "OSError", "TokenizerError"))
