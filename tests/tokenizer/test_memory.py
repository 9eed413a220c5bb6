"""Encoding takes constant memory, no more than is available, and keeps little between calls."""

import os
import re
import subprocess
import sys
import textwrap
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


def run(script: str, *arguments: str, environment: dict[str, str] | None = None) -> str:
    """What the script prints, run in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=os.environ | (environment or {}),
    )
    assert "PanicException" not in done.stderr, done.stderr
    assert done.returncode == 0, f"{done.stdout}{done.stderr[-2000:]}"
    return done.stdout


# A limit on the address space, set to the current usage plus some megabytes, as in Stanford's CS336

ADDRESS_SPACE = """
import io, itertools, os, random, resource, sys, tempfile
from pathlib import Path
import numpy
import bytemill
from bytemill.compat.tiktoken import Encoding
from bytemill._core import PretokenCounter, pretoken_spans

cases, n_bytes, *limits = sys.argv[1].split("|"), *map(int, sys.argv[2:])
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
hard = resource.getrlimit(resource.RLIMIT_AS)[1]
given, little = Input(n_bytes), Input(200_000)
for case in cases:
    # What is imported and made with the first call is there.
    CASES[case](little)
    for n_more in limits:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + n_more, hard))
        try:
            CASES[case](given)
        except (MemoryError, OSError, bytemill.errors.BytemillError) as error:
            outcome = f"{type(error).__name__}: {error}"
        else:
            outcome = "done"
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
        print(f"{case}: {outcome}", flush=True)
    # Neither the tokenizer nor the interpreter has been left in between.
    CASES[case](little)
assert tok.decode(tok.encode(given.text)) == given.text
folder.cleanup()
"""

ALL_CASES = re.findall(r'^    "(.+)": lambda', ADDRESS_SPACE, re.MULTILINE)
ALLOWED = ("done", "MemoryError", "NotEnoughMemoryError", "OSError", "OutputError")


def outcomes(cases: list[str], n_bytes: int, *limits: int) -> list[str]:
    """What became of the work of some cases within each limit, in one process: "done", or the error."""
    arguments = "|".join(cases), *map(str, (n_bytes, *limits))
    return run(ADDRESS_SPACE, *arguments, environment=NOTHING_LEFT_OVER).splitlines()


def test_running_out_of_address_space_raises_and_the_process_continues() -> None:
    """A failed allocation aborts a Rust program unless it uses a fallible call."""
    found = outcomes(ALL_CASES, 3 * MB, 1 * MB, 8 * MB)
    assert len(found) == 2 * len(ALL_CASES)
    assert [line for line in found if not line.partition(": ")[2].startswith(ALLOWED)] == []
    assert sum(line.endswith(": done") for line in found) < 1.3 * len(ALL_CASES)


def test_iterating_over_five_megabytes_takes_less_than_one() -> None:
    cases = ["iterate over pieces", "iterate over lines of a file"]
    assert outcomes(cases, 5 * MB, 1 * MB) == [f"{case}: done" for case in cases]


@pytest.mark.slow
@pytest.mark.parametrize("case", ALL_CASES)
def test_no_address_space_limit_crashes_the_process(case: str) -> None:
    """With less than half a megabyte left, small collections of Rust's standard library end the process."""
    for megabytes in (1, 2, 3, 5, 8, 12, 16, 20, 24, 32, 40, 50, 64, 80, 100):
        (found,) = outcomes([case], 5 * MB, megabytes * MB)
        assert found.partition(": ")[2].startswith(ALLOWED), (megabytes, found)


HUGE_FILE = """
import resource, sys
from pathlib import Path
import numpy
import bytemill
from bytemill._core import PretokenCounter

path = Path(sys.argv[1])
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
hard = resource.getrlimit(resource.RLIMIT_AS)[1]
for case, work in CASES.items():
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 64_000_000, hard))
    try:
        work()
    except (MemoryError, OSError, bytemill.errors.BytemillError) as error:
        print(f"{type(error).__name__}: {error}")
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    assert tok.encode("abc") == [97, 98, 99], case
"""


def test_an_eight_gibibyte_pretoken_that_does_not_fit_is_an_error(tmp_path: Path) -> None:
    """A sparse file, one run of zeros, which is one pre-token and takes no room on disk."""
    path = tmp_path / "zeros.txt"
    with path.open("wb") as file:
        file.truncate((8 << 30) + 5)
    errors = run(HUGE_FILE, str(path)).splitlines()
    assert len(errors) == 5
    for error in errors:
        assert error.startswith(("MemoryError", "NotEnoughMemoryError", "OSError", "TokenizerError"))


# Streams in constant memory

MADE_HERE = """
import bytemill, random
words = ["".join(random.Random(n).choices("abcdefghij", k=n % 9 + 1)) for n in range(2000)]
tok = bytemill.train_from_iterator(iter([" ".join(words)]), vocab_size=800, special_tokens=["<|endoftext|>"])
"""
WITHIN = """
import resource, sys
from pathlib import Path
import psutil
import bytemill
with open(sys.argv[1], encoding="utf-8") as lines:
    in_use = psutil.Process().memory_info().vms
    resource.setrlimit(resource.RLIMIT_AS, (in_use + int(sys.argv[2]), -1))
    n_ids = 0
    for _ in tok.encode_iterable(lines):
        n_ids += 1
print(n_ids)
"""
LETTERS = "abcdefghijklmnopqrst"
WORDS = [f"{a}{b}{c}{d}" for a in LETTERS for b in LETTERS for c in LETTERS for d in LETTERS]
"""More words than the first large page of the table of known ones holds."""
OF_MANY_SCRIPTS = "the quick fox Жизнь 今日は、世界 é e\u0301 😀 " * 20 + "x" * 3000 + "<|endoftext|>\n"


@pytest.mark.parametrize(
    ("load", "text", "n_more", "least"),
    [
        ('tok = bytemill.Tokenizer.load("o200k_base.tiktoken")', None, 1 * MB, 500_000),
        (MADE_HERE, OF_MANY_SCRIPTS * 300, 1 * MB, 300 * 3000 // 10),
        (
            MADE_HERE,
            "\n".join(" ".join(WORDS[at : at + 10]) for at in range(0, len(WORDS), 10)),
            300_000,
            160_000,
        ),
    ],
    ids=["published", "scripts", "new words"],
)
def test_a_file_is_encoded_line_by_line_within_a_limit(
    shared_data: Path, tmp_path: Path, load: str, text: str | None, n_more: int, least: int
) -> None:
    text = text or (shared_data / "tinystories.txt").read_text(encoding="utf-8") * 4
    path = tmp_path / "lines.txt"
    path.write_text(text[:2_500_000], encoding="utf-8")
    program = f"import bytemill, os\nos.chdir({str(shared_data)!r})\n{load}{WITHIN}"
    assert int(run(program, str(path), str(n_more), environment=NOTHING_LEFT_OVER)) >= least


@pytest.mark.parametrize(
    ("use", "n_before", "n_times", "most"),
    [
        # 16 MB go through.
        (
            """
            def use(n):
                pieces = itertools.repeat("abc def ghij. <|endoftext|>", n)
                collections.deque(tok.encode_iterable(pieces), maxlen=0)
            """,
            *(10_000, 600_000, 2 * MB),
        ),
        (
            """
            piece = b"abc def ghij. <|endoftext|>" * 2500
            def use(n):
                stream = tok.core.stream("all", "strict", 2)
                for _ in range(n):
                    stream.feed(piece)
                stream.finish()
            """,
            *(100, 240, 4 * MB),
        ),
        (
            """
            text = "abc def ghij. <|endoftext|>" * 8_000
            def use(n):
                for _ in range(n):
                    tok.encode_to_numpy(text, num_threads=1)
                    tok.encode_to_numpy(text * 5, num_threads=2)
                    tok.encode_batch([text[:100]] * 100)
                    tok.decode(tok.encode(text[:10_000]))
                    next(tok.encode_iterable([text]))
            """,
            *(10, 40, 6 * MB),
        ),
    ],
    ids=["iterating", "a stream", "again and again"],
)
def test_the_peak_does_not_grow_with_the_text(use: str, n_before: int, n_times: int, most: int) -> None:
    program = f"""{MADE_HERE}
import collections, itertools, resource
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
{textwrap.dedent(use)}
use({n_before})
before = peak()
use({n_times})
print(peak() - before)
"""
    assert int(run(program)) < most


# Memory kept between calls

MAX_KEPT_BYTES = 600_000_000

IDLE = """
import random, resource, sys
from pathlib import Path
import bytemill

n_tokenizers, max_bytes, text_bytes, num_threads = map(int, sys.argv[2:])
use = sys.argv[1]

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

# Words of random letters, nearly all of them new.
letters = bytes(97 + byte % 16 if byte > 40 else 32 for byte in range(256))
text = random.Random(1).randbytes(text_bytes).translate(letters).decode()
sample = random.Random(2).randbytes(500_000).translate(letters).decode()
spec = bytemill.train_from_iterator([sample], vocab_size=10_000, special_tokens=[]).to_spec()
assert len(spec.merges) == 10_000 - 256
texts = [text[start : start + 1000] for start in range(0, len(text), 1000)]
USES = {
    "an array": lambda own: own.encode_to_numpy(text, num_threads=num_threads),
    "a batch": lambda own: own.encode_batch(texts, num_threads=num_threads),
    "a list and decoding": lambda own: own.decode(own.encode(text, num_threads=num_threads)),
}
before = resident()
held = []
for _ in range(n_tokenizers):
    held.append(bytemill.Tokenizer.from_spec(spec))
    USES[use](held[-1])
    if resident() - before > max_bytes:
        break
print(len(held), resident() - before)
"""


@pytest.mark.parametrize(
    ("use", "n_tokenizers", "text_bytes", "num_threads"),
    [
        pytest.param("an array", 100, 2 * MB, 1, marks=pytest.mark.slow),
        pytest.param("an array", 100, 2 * MB, 2, marks=pytest.mark.slow),
        pytest.param("a batch", 100, 2 * MB, 2, marks=pytest.mark.slow),
        ("an array", 100, 1_000, 1),
        ("an array", 20, 2 * MB, 2),  # 40 workspaces of 21 MB
        pytest.param("a list and decoding", 100, 500_000, 1, marks=pytest.mark.slow),
    ],
)
def test_idle_tokenizers_keep_less_than_600_megabytes(
    use: str, n_tokenizers: int, text_bytes: int, num_threads: int
) -> None:
    options = map(str, (n_tokenizers, MAX_KEPT_BYTES, text_bytes, num_threads))
    n_held, n_bytes = map(int, run(IDLE, use, *options).split())
    assert n_held == n_tokenizers, f"{n_held} tokenizers keep {n_bytes / 1e6:,.0f} MB"
    assert n_bytes < MAX_KEPT_BYTES
