"""Training within a bound on memory against training without: merges, peak memory, time.

    python benchmarks/memory.py --text corpus.txt [--max-memory 300MB] [--vocab-size 10000 32000] [--repeat 3]

Each training is a process of its own. Its peak is the high-water mark of its resident memory, as the system keeps it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from bytemill.training.memory_budget import parse_max_memory


def train_once(text: str, vocab_size: int, max_memory: str | None) -> dict[str, Any]:
    """Trains in this process and says what it took."""
    import time

    import bytemill
    from bytemill.system import memory

    # To measure phase by phase the peak is reset; where it cannot be, it is that of the whole process.
    memory._CLEAR_REFS = Path("/nowhere/at/all")  # pyright: ignore[reportPrivateUsage]
    started = time.perf_counter()
    tokenizer = bytemill.train(text, vocab_size, ["<|endoftext|>"], max_memory=max_memory)
    seconds = time.perf_counter() - started
    report = tokenizer.training_report
    assert report is not None
    return {
        "seconds": seconds,
        "peak": memory.peak_bytes(),
        "merges": hashlib.sha256(repr(tokenizer.merges).encode()).hexdigest(),
        "spilled": report.spilled_bytes,
        "runs": report.spilled_runs,
        "phases": {phase.name: phase.seconds for phase in report.phases},
    }


def measure(text: str, vocab_size: int, max_memory: str | None) -> dict[str, Any]:
    """Trains in a process of its own."""
    job = json.dumps([text, vocab_size, max_memory])
    outcome = subprocess.run([sys.executable, __file__, "--job", job], capture_output=True, check=True)
    return json.loads(outcome.stdout)


def main() -> None:
    """Prints the table; fails where merges differ or the bound is not kept."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--text", default=str(Path.home() / ".cache/bytemill/bench/english-100MB.txt"))
    parser.add_argument("--max-memory", default="300MB")
    parser.add_argument("--vocab-size", type=int, nargs="+", default=[10_000, 32_000])
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--job", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        print(json.dumps(train_once(*json.loads(options.job))))
        return
    bound = parse_max_memory(options.max_memory)
    print(f"{options.text}: {Path(options.text).stat().st_size / 1e6:,.0f} MB, bound {bound / 1e6:,.0f} MB")
    print("  tokens    bound  seconds  ratio  count  learn  peak MB  on disk MB  runs")
    is_good = True
    for vocab_size in options.vocab_size:
        rows: list[list[dict[str, Any]]] = [[], []]
        for _ in range(options.repeat):
            for row, max_memory in zip(rows, (None, options.max_memory), strict=True):
                row.append(measure(options.text, vocab_size, max_memory))
        plain = statistics.median(run["seconds"] for run in rows[0])
        for row, name in zip(rows, ("none", options.max_memory), strict=True):
            middle = sorted(row, key=lambda run: run["seconds"])[len(row) // 2]
            peak = max(run["peak"] for run in row)
            print(
                f"{vocab_size:>8,} {name:>8} {middle['seconds']:>8.2f} {middle['seconds'] / plain:>6.2f} "
                f"{middle['phases']['count']:>6.2f} {middle['phases']['merge']:>6.2f} {peak / 1e6:>8.0f} "
                f"{middle['spilled'] / 1e6:>11.0f} {middle['runs']:>5}"
            )
        is_same = len({run["merges"] for row in rows for run in row}) == 1
        is_within = max(run["peak"] for run in rows[1]) <= bound
        print(
            f"{'':>8} merges {'the same' if is_same else 'DIFFER'}, bound {'kept' if is_within else 'BROKEN'}"
        )
        is_good = is_good and is_same and is_within
    sys.exit(0 if is_good else 1)


if __name__ == "__main__":
    main()
