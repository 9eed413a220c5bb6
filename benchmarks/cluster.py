"""Counting and encoding by several processes: local ones and Ray's, beside one process with as many threads.

    python benchmarks/cluster.py TOKENIZER FILE... [--gigabytes 2] [--workers 2] [--rounds 3] [--markdown]

The files are read again and again until there are `--gigabytes` of text, under separate names. Every result is
compared with that of one process. Starting the executor is timed apart.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bytemill import Tokenizer, cluster, encode_corpus
from bytemill.corpus import Corpus
from bytemill.shards import read_manifest
from bytemill.training.counting import CountingSettings, count_corpus
from bytemill.training.work_folder import WorkFolder

if TYPE_CHECKING:
    from collections.abc import Callable

_EXECUTORS = ("local", "ray")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tokenizer")
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--markdown", action="store_true")
    arguments = parser.parse_args()
    tokenizer = Tokenizer.load(arguments.tokenizer)
    with tempfile.TemporaryDirectory(prefix="bytemill-cluster-") as name:
        folder = Path(name)
        corpus = _corpus(folder, arguments.files, int(arguments.gigabytes * 1e9))
        seconds = {(what, who): [] for what in ("encode", "count") for who in ("one process", *_EXECUTORS)}
        started: dict[str, list[float]] = {who: [] for who in _EXECUTORS}
        for _ in range(arguments.rounds):
            hashes, counts = _one_process(tokenizer, corpus, folder, arguments.workers, seconds)
            for who in _EXECUTORS:
                start = time.perf_counter()
                with cluster.open_executor(who, num_workers=arguments.workers) as executor:
                    # The first task starts the workers.
                    executor.set_context(None)
                    for _ in range(arguments.workers):
                        executor.submit(_nothing, None)
                    n_done = 0
                    while n_done < arguments.workers:
                        n_done += len(executor.wait(1.0))
                    started[who].append(time.perf_counter() - start)
                    job = _Job(tokenizer, corpus, folder, seconds)
                    _several(executor, who, job, (hashes, counts))
        _print(seconds, started, corpus.total_bytes or 0, markdown=arguments.markdown)


def _nothing(context: object, item: object) -> None:
    pass


def _corpus(folder: Path, files: list[Path], n_bytes: int) -> Corpus:
    names: list[Path] = []
    total = 0
    while total < n_bytes:
        source = files[len(names) % len(files)].resolve()
        names.append(folder / f"{len(names):04}.txt")
        names[-1].symlink_to(source)
        total += source.stat().st_size
    return Corpus(names)


def _timed(times: list[float], work: Callable[[], Any]) -> Any:
    start = time.perf_counter()
    result = work()
    times.append(time.perf_counter() - start)
    return result


def _one_process(
    tokenizer: Tokenizer,
    corpus: Corpus,
    folder: Path,
    n_threads: int,
    seconds: dict[tuple[str, str], list[float]],
) -> tuple[Any, int]:
    out = folder / "one"
    _timed(
        seconds["encode", "one process"],
        lambda: encode_corpus(tokenizer, corpus, out, num_threads=n_threads, overwrite=True),
    )
    hashes = read_manifest(out).shards
    shutil.rmtree(out)
    settings = CountingSettings(["<|endoftext|>"], num_threads=n_threads)
    with WorkFolder(None) as work:
        counted = _timed(seconds["count", "one process"], lambda: count_corpus(corpus, settings, work))
    return hashes, counted.n_unique


@dataclass(frozen=True)
class _Job:
    tokenizer: Tokenizer
    corpus: Corpus
    folder: Path
    seconds: dict[tuple[str, str], list[float]]


def _several(executor: cluster.Executor, who: str, job: _Job, expected: tuple[Any, int]) -> None:
    out = job.folder / who
    _timed(
        job.seconds["encode", who],
        lambda: cluster.encode_corpus(executor, job.tokenizer, job.corpus, out, overwrite=True),
    )
    if read_manifest(out).shards != expected[0]:
        sys.exit(f"the shards of {who} differ")
    shutil.rmtree(out)
    settings, work = CountingSettings(["<|endoftext|>"], num_threads=1), job.folder / "work"
    counted = _timed(
        job.seconds["count", who], lambda: cluster.count_corpus(executor, job.corpus, settings, work)
    )
    if counted.n_unique != expected[1]:
        sys.exit(f"the counts of {who} differ")
    shutil.rmtree(work)


def _print(
    seconds: dict[tuple[str, str], list[float]],
    started: dict[str, list[float]],
    n_bytes: int,
    *,
    markdown: bool,
) -> None:
    rows = [("", "start, s", "encode, s", "MB/s", "count, s", "MB/s")]
    for who in ("one process", *_EXECUTORS):
        encode, count = (statistics.median(seconds[what, who]) for what in ("encode", "count"))
        start = f"{statistics.median(started[who]):.1f}" if who in started else "–"
        rates = [f"{n_bytes / time / 1e6:.0f}" for time in (encode, count)]
        rows.append((who, start, f"{encode:.1f}", rates[0], f"{count:.1f}", rates[1]))
    for number, row in enumerate(rows):
        if markdown:
            print("| " + " | ".join(row) + " |")
            if not number:
                print("|---|" + "---:|" * (len(row) - 1))
        else:
            print("".join(f"{cell:>14}" for cell in row))
    for what in ("encode", "count"):
        ratios = [
            ray / local for ray, local in zip(seconds[what, "ray"], seconds[what, "local"], strict=True)
        ]
        print(f"\n{what}: Ray takes {statistics.median(ratios):.2f} of the time of local processes")


if __name__ == "__main__":
    main()
