"""Times encoding on one thread and on two, beside what the machine gives two processes of arithmetic alone.

    uv run --group bench python benchmarks/scaling.py [--text FILE]... [--repeat 9]

Two threads are twice as fast as one only where two cores are to be had: on virtual machines they are often two halves
of one, or shared with others. So every turn measures, one after the other, one process of plain Python arithmetic, two
at once, and bytemill's encoding of new text, then of the same again, on one thread and on two, each in a process of
its own, and at last two such processes of one thread each, each with the whole text, that begin together and share
nothing: what threads could give that neither wait for each other nor do anything twice. Before each of these another
process takes much memory and gives it back, so that all find the same: what has just been given back comes ten times
as fast as what the host of a virtual machine has to look for, and who comes behind whom would decide who gets it.
Interfaces as in `encode.py`. Of a row:

    1 thread, 2 threads   milliseconds for the new text, medians over the turns
    ratio                 median over the turns of one thread's time by two threads'
    least                 the least time of one thread by the least of two
    again                 as the ratio, where the text was encoded once before: each thread then knows what it met,
                          and some of what the other did
    apart                 2 × one process by the slower of two at once, for the new text
    machine               the same of arithmetic
"""

import argparse
import json
import mmap
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import harness
from encode import THREADED, standing_texts
from encode_worker import work
from vocabularies import Vocabulary, vocabulary_of

INTERFACES = ("array", *THREADED)
N_ADDITIONS = 10_000_000
N_BYTES_TAKEN = 3 << 29


def arithmetic(n_processes: int) -> float:
    """Seconds of the slowest of so many processes that count at the same time."""
    command = [sys.executable, __file__, "arithmetic"]
    at_once = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(n_processes)]
    return max(float(process.communicate()[0]) for process in at_once)


def count() -> float:
    """Seconds for ten million additions."""
    start = time.perf_counter()
    total = 0
    for number in range(N_ADDITIONS):
        total += number
    return time.perf_counter() - start


def turn_over_memory() -> None:
    """Has another process take more memory than any that is measured, and give it back."""
    subprocess.run([sys.executable, __file__, "memory"], check=True)


def take_memory() -> None:
    """Takes memory, in large pages where there are some."""
    memory = mmap.mmap(-1, N_BYTES_TAKEN, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    memory[:: mmap.PAGESIZE] = b"." * (N_BYTES_TAKEN // mmap.PAGESIZE)


def seconds(
    vocabulary: Vocabulary, text: Path, interface: str, threads: int, start_at: float | None = None
) -> tuple[float, float]:
    """Seconds for one text that this process sees for the first time, and for the same again."""
    request = {
        "tool": "bytemill",
        "vocab": str(vocabulary.path),
        "pattern": vocabulary.pattern,
        "text": str(text),
        "start_at": start_at,
    }
    request |= {"interface": interface, "threads": threads, "again": True, "n_bytes": text.stat().st_size}
    outcome = harness.measure_in_process(__file__, request, threads=threads)
    if outcome.reason is not None:
        raise SystemExit(f"error: {outcome.reason}")
    return outcome.values["new_seconds"], outcome.values["again_seconds"]


def apart(vocabulary: Vocabulary, text: Path, interface: str, setting_out: float) -> float:
    """Seconds of the slower of two processes that begin together, `setting_out` seconds from now."""
    start_at = time.time() + setting_out
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(seconds, vocabulary, text, interface, 1, start_at) for _ in range(2)]
        return max(one.result()[0] for one in both)


def measure(vocabulary: Vocabulary, text: Path, interface: str, repeat: int) -> dict[str, Any]:
    """One row: all turns of a text and an interface."""
    turns: list[dict[str, float]] = []
    for _ in range(repeat):
        turn = {"one_process": arithmetic(1), "two_processes": arithmetic(2)}
        turn_over_memory()
        begun = time.time()
        turn["one"], turn["one_again"] = seconds(vocabulary, text, interface, 1)
        whole = time.time() - begun
        turn_over_memory()
        turn["two"], turn["two_again"] = seconds(vocabulary, text, interface, 2)
        # As long as a whole process has taken, twice over, is more than two need to be ready.
        turn_over_memory()
        turn["apart"] = apart(vocabulary, text, interface, 2 * whole)
        turns.append(turn)
    return {
        "text": text.name,
        "interface": interface,
        "one_ms": statistics.median(turn["one"] for turn in turns) * 1e3,
        "two_ms": statistics.median(turn["two"] for turn in turns) * 1e3,
        "ratio": statistics.median(turn["one"] / turn["two"] for turn in turns),
        "least": min(turn["one"] for turn in turns) / min(turn["two"] for turn in turns),
        "again": statistics.median(turn["one_again"] / turn["two_again"] for turn in turns),
        "apart": statistics.median(2 * turn["one"] / turn["apart"] for turn in turns),
        "machine": statistics.median(2 * turn["one_process"] / turn["two_processes"] for turn in turns),
        "turns": turns,
    }


def main() -> int:
    if sys.argv[1:2] == ["worker"]:
        return harness.worker_main(work, sys.argv[2])
    if sys.argv[1:2] == ["arithmetic"]:
        print(json.dumps(count()))
        return 0
    if sys.argv[1:2] == ["memory"]:
        take_memory()
        return 0
    parser = argparse.ArgumentParser(
        description="Time encoding on one thread and on two, beside plain arithmetic."
    )
    parser.add_argument(
        "--text", type=Path, action="append", help="text, repeatable (the first of corpus.py)"
    )
    parser.add_argument("--interfaces", default=",".join(INTERFACES), help="comma-separated (%(default)s)")
    parser.add_argument("--repeat", type=int, default=9, help="turns (%(default)s)")
    parser.add_argument("--json", type=Path, help="file for the results (a new one in benchmarks/results)")
    arguments = parser.parse_args()
    interfaces: list[str] = arguments.interfaces.split(",")
    if unknown := [name for name in interfaces if name not in INTERFACES]:
        parser.error(f"{unknown[0]!r} is none of {', '.join(INTERFACES)}")
    texts: list[Path] = arguments.text or standing_texts()[:1]
    if not texts:
        parser.error("there is no text: run benchmarks/corpus.py first, or give --text")
    print(harness.machine())
    vocabulary = vocabulary_of(None, None, texts)
    rows = [measure(vocabulary, text, name, arguments.repeat) for text in texts for name in interfaces]
    header = ["text", "interface", "1 thread", "2 threads", "ratio", "least", "again", "apart", "machine"]
    keys = ("ratio", "least", "again", "apart", "machine")
    lines = [
        [row["text"], row["interface"], f"{row['one_ms']:.0f}", f"{row['two_ms']:.0f}"]
        + [f"{row[key]:.2f}" for key in keys]
        for row in rows
    ]
    print(harness.format_table(header, lines))
    print(f"\nSaved to {harness.save(arguments.json, 'scaling', {'rows': rows})}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
