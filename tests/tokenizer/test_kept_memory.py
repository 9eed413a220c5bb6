"""The memory that a tokenizer keeps between calls is bounded."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="platform: resident memory is read from /proc"
)

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
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, use, *options],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    n_held, n_bytes = map(int, done.stdout.split())
    assert n_held == N_TOKENIZERS, f"{n_held} tokenizers keep {n_bytes / 1e6:,.0f} MB"
    assert n_bytes < MAX_KEPT_BYTES
