"""Encoding a stream takes constant memory, no more than is available, and keeps little between calls."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="platform: limits of memory are those of Linux"
)

HOME_MADE = """
import bytemill, random
words = ["".join(random.Random(n).choices("abcdefghij", k=n % 9 + 1)) for n in range(2000)]
tok = bytemill.train_from_iterator(iter([" ".join(words)]), vocab_size=800, special_tokens=["<|endoftext|>"])
"""
PUBLISHED = {
    "gpt2": 'tok = bytemill.Tokenizer.from_files(data / "gpt2_vocab.json", data / "gpt2_merges.txt")',
    "cl100k": 'tok = bytemill.Tokenizer.load(data / "cl100k_base.tiktoken")',
    "o200k": 'tok = bytemill.Tokenizer.load(data / "o200k_base.tiktoken")',
}


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
    assert done.returncode == 0, done.stderr
    return done.stdout


def encoded_within(n_more: int, load: str, data: str, path: Path) -> int:
    """How many ids the lines of a file have, counted where no more than so many bytes of addresses may be added."""
    script = f"""
import resource, sys
from pathlib import Path
import psutil
import bytemill
data = Path({data!r})
{load}
with open(sys.argv[1], encoding="utf-8") as lines:
    in_use = psutil.Process().memory_info().vms
    resource.setrlimit(resource.RLIMIT_AS, (in_use + {n_more}, -1))
    n_ids = 0
    for _ in tok.encode_iterable(lines):
        n_ids += 1
print(n_ids)
"""
    return int(run(script, str(path), environment=NOTHING_LEFT_OVER))


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_file_is_encoded_line_by_line_within_a_megabyte(
    name: str, shared_data: Path, tmp_path: Path, peer_of: object
) -> None:
    text = (shared_data / "tinystories.txt").read_text(encoding="utf-8") * 8
    path = tmp_path / "five_megabytes.txt"
    path.write_text(text[:5_000_000], encoding="utf-8")
    n_ids = encoded_within(1_000_000, PUBLISHED[name], str(shared_data), path)
    # Loaded without naming special tokens, `<|endoftext|>` may be text; the order of size is what is certain.
    assert 1_000_000 < n_ids < 1_500_000


def test_lines_of_many_scripts_are_encoded_within_a_megabyte(tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    line = "the quick fox Жизнь 今日は、世界 é e\u0301 😀 " * 20 + "x" * 3000 + "<|endoftext|>\n"
    path.write_text(line * 600, encoding="utf-8")
    assert encoded_within(1_000_000, HOME_MADE, "", path) > 600 * 3000 / 10


def test_new_pretokens_do_not_grow_the_cache(tmp_path: Path) -> None:
    """More words than the first large page of the table of known ones holds."""
    path = tmp_path / "words.txt"
    letters = "abcdefghijklmnopqrst"
    words = [f"{a}{b}{c}{d}" for a in letters for b in letters for c in letters for d in letters]
    path.write_text("\n".join(" ".join(words[start : start + 10]) for start in range(0, len(words), 10)))
    assert encoded_within(300_000, HOME_MADE, "", path) >= len(words)


def growth(script: str) -> int:
    """Bytes that the peak of resident memory has grown by, as the script prints it."""
    peak = "import resource, bytemill, collections, itertools\n"
    peak += "def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024\n"
    return int(run(peak + HOME_MADE + textwrap.dedent(script)))


def test_iterating_takes_the_same_memory_however_long_the_text_is() -> None:
    grown = growth("""
        def use(n_pieces):
            pieces = itertools.repeat("abc def ghij. <|endoftext|>", n_pieces)
            collections.deque(tok.encode_iterable(pieces), maxlen=0)
        use(10_000)
        before = peak()
        use(2_000_000)
        print(peak() - before)
    """)
    assert grown < 2_000_000, "54 MB went through"


def test_a_stream_takes_the_same_memory_however_long_the_text_is() -> None:
    grown = growth("""
        piece = b"abc def ghij. <|endoftext|>" * 2500
        def use(n_pieces):
            stream = tok.core.stream("all", "strict", 2)
            for _ in range(n_pieces):
                stream.feed(piece)
            stream.finish()
        use(100)
        before = peak()
        use(800)
        print(peak() - before)
    """)
    assert grown < 4_000_000, "54 MB went through"


def test_encoding_again_and_again_takes_no_more_memory() -> None:
    grown = growth("""
        text = "abc def ghij. <|endoftext|>" * 20_000
        def use(n_times):
            for _ in range(n_times):
                tok.encode_to_numpy(text, num_threads=1)
                tok.encode_to_numpy(text, num_threads=2)
                tok.encode_batch([text[:100]] * 100)
                tok.decode(tok.encode(text[:10_000]))
                next(tok.encode_iterable([text]))
        use(10)
        before = peak()
        use(80)
        print(peak() - before)
    """)
    assert grown < 6_000_000


# Memory kept between calls

N_TOKENIZERS = 100
MAX_KEPT_BYTES = 600_000_000

PROGRAM = """
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
    ("use", "text_bytes", "num_threads"),
    [
        ("an array", 1_000, 1),
        pytest.param("an array", 2_000_000, 1, marks=pytest.mark.slow),
        ("an array", 2_000_000, 2),
        pytest.param("a batch", 2_000_000, 2, marks=pytest.mark.slow),
        ("a list and decoding", 500_000, 1),
    ],
)
def test_a_hundred_idle_tokenizers_keep_less_than_600_megabytes(
    use: str, text_bytes: int, num_threads: int
) -> None:
    options = map(str, (N_TOKENIZERS, MAX_KEPT_BYTES, text_bytes, num_threads))
    n_held, n_bytes = map(int, run(PROGRAM, use, *options).split())
    assert n_held == N_TOKENIZERS, f"{n_held} tokenizers keep {n_bytes / 1e6:,.0f} MB"
    assert n_bytes < MAX_KEPT_BYTES
