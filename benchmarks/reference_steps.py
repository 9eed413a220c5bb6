"""What each step of the optimisation gains: the readable trainers and the core, on one text.

    python benchmarks/reference_steps.py --bytes 200000 --vocab-size 500

Prints median seconds of whole trainings, pre-tokenization included, after checking that all merges are equal.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bytemill.reference import train, train_naive, train_unique

if TYPE_CHECKING:
    from collections.abc import Callable

    from bytemill.reference import Pair

PATTERN = "gpt2"


def main() -> int:
    options = parse_options()
    text = read_text(options.text, options.bytes)
    trainers: dict[str, Callable[[], list[Pair]]] = {
        "naive": lambda: train_naive(text, options.vocab_size, pattern=PATTERN)[1],
        "unique pre-tokens": lambda: train_unique(text, options.vocab_size, pattern=PATTERN)[1],
        "incremental counts": lambda: train(text, options.vocab_size, pattern=PATTERN)[1],
        **core_trainers(text, options.vocab_size),
    }
    seconds: dict[str, list[float]] = {name: [] for name in trainers}
    expected: list[Pair] | None = None
    for _ in range(options.rounds):
        for name, learn in trainers.items():
            start = time.perf_counter()
            merges = learn()
            seconds[name].append(time.perf_counter() - start)
            expected = merges if expected is None else expected
            if merges != expected:
                place = first_difference(merges, expected)
                print(f"error: the merges of {name!r} differ from merge {place} on", file=sys.stderr)
                return 1
    assert expected is not None
    print(
        f"{len(text.encode()):,} bytes of text, vocabulary of {256 + len(expected):,}, pattern {PATTERN}, "
        f"median of {options.rounds}, Python {platform.python_version()}\n"
    )
    print(table({name: statistics.median(times) for name, times in seconds.items()}))
    return 0


def core_trainers(text: str, vocab_size: int) -> dict[str, Callable[[], list[Pair]]]:
    """The core with one thread, and with as many as the machine has; empty where it is not built."""
    try:
        from bytemill._core import PretokenCounter
    except ImportError:
        print("the core is not built, so it is left out", file=sys.stderr)
        return {}

    def learn(num_threads: int | None) -> list[Pair]:
        counter = PretokenCounter(PATTERN, [], num_threads, None)
        counter.add_texts([text])
        merges, _ = counter.finish().learn_merges(vocab_size - 256, "bytes", 1, num_threads, None)
        return merges

    return {"core, one thread": lambda: learn(1), "core, all threads": lambda: learn(None)}


def first_difference(left: list[Pair], right: list[Pair]) -> int:
    """The number of merges that both lists begin with."""
    shorter = min(len(left), len(right))
    return next((n for n in range(shorter) if left[n] != right[n]), shorter)


def table(medians: dict[str, float]) -> str:
    """Seconds of each trainer, and how many times as fast as the first it is."""
    first = next(iter(medians.values()))
    width = max(len(name) for name in medians)
    rows = [f"{'trainer':<{width}}  {'seconds':>10}  {'times as fast':>13}"]
    rows += [f"{name:<{width}}  {median:>10.4f}  {first / median:>13.1f}" for name, median in medians.items()]
    return "\n".join(rows)


def read_text(path: Path | None, n_bytes: int) -> str:
    """The first `n_bytes` bytes of a file, or of the help texts that come with Python."""
    if path is None:
        from pydoc_data.topics import topics

        data = "\n".join(topics[name] for name in sorted(topics)).encode()
    else:
        data = path.read_bytes()
    return data[:n_bytes].decode("utf-8", errors="ignore")


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--text", type=Path, help="text file (default: the help texts of Python itself)")
    parser.add_argument(
        "--bytes", type=int, default=100_000, help="bytes to take of it (default: %(default)s)"
    )
    parser.add_argument(
        "--vocab-size", type=int, default=500, help="256 bytes and merges (default: %(default)s)"
    )
    parser.add_argument("--rounds", type=int, default=3, help="trainings of each kind (default: %(default)s)")
    options = parser.parse_args()
    if options.text is not None and not options.text.is_file():
        parser.error(f"--text {options.text}: no such file")
    if options.bytes < 1 or options.rounds < 1:
        parser.error("--bytes and --rounds must be at least 1")
    if options.vocab_size < 256:
        parser.error(f"--vocab-size {options.vocab_size} has no room for the 256 bytes")
    return options


if __name__ == "__main__":
    sys.exit(main())
