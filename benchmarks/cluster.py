"""Counting and encoding by several processes: the case `cluster`."""

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.harness import option
from bytemill import Tokenizer, encode_corpus
from bytemill import cluster as executors
from bytemill.corpus import Corpus
from bytemill.shards import read_manifest
from bytemill.training.counting import CountingSettings, count_corpus
from bytemill.training.work_folder import WorkFolder

EXECUTORS = ("local", "ray")
Seconds = dict[tuple[str, str], list[float]]


@harness.case(
    option("tokenizer"),
    option("files", nargs="+", type=Path),
    option("--gigabytes", type=float, default=2.0),
    option("--workers", type=int, default=2),
    harness.ROUNDS,
    harness.MARKDOWN,
)
def cluster(options: argparse.Namespace) -> None:
    """Count and encode by several processes: local ones and Ray's, beside one process with as many threads.

        python -m benchmarks cluster TOKENIZER FILE... [--gigabytes 2] [--workers 2] [--rounds 3] [--markdown]

    The files are read again and again until there are `--gigabytes` of text, under separate names. Every result is
    compared with that of one process. Starting the executor is timed apart.
    """
    tokenizer = Tokenizer.load(options.tokenizer)
    whos = ("one process", *EXECUTORS)
    seconds = {(what, who): [] for what in ("start", "encode", "count") for who in whos}
    with tempfile.TemporaryDirectory(prefix="bytemill-cluster-") as name:
        folder = Path(name)
        corpus = _corpus(folder, options.files, int(options.gigabytes * 1e9))
        for _ in range(options.rounds):
            expected = _one_process(tokenizer, corpus, folder, options.workers, seconds)
            for who in EXECUTORS:
                start = time.perf_counter()
                with executors.open_executor(who, num_workers=options.workers) as executor:
                    # The first task starts the workers.
                    executor.set_context(None)
                    for _ in range(options.workers):
                        executor.submit(_nothing, None)
                    n_done = 0
                    while n_done < options.workers:
                        n_done += len(executor.wait(1.0))
                    seconds["start", who].append(time.perf_counter() - start)
                    if _several(executor, who, tokenizer, corpus, folder=folder, seconds=seconds) != expected:
                        raise SystemExit(f"the shards or the counts of {who} differ")
        n_bytes = corpus.total_bytes or 0
    rows: list[tuple[str, ...]] = []
    for who in whos:
        encode, count = (statistics.median(seconds[what, who]) for what in ("encode", "count"))
        start = f"{statistics.median(seconds['start', who]):.1f}" if seconds["start", who] else "–"
        rates = [f"{n_bytes / time / 1e6:.0f}" for time in (encode, count)]
        rows.append((who, start, f"{encode:.1f}", rates[0], f"{count:.1f}", rates[1]))
    header = ("", "start, s", "encode, s", "MB/s", "count, s", "MB/s")
    print(harness.format_table(header, rows, markdown=options.markdown))
    for what in ("encode", "count"):
        both = zip(seconds[what, "ray"], seconds[what, "local"], strict=True)
        ratio = statistics.median(ray / local for ray, local in both)
        print(f"\n{what}: Ray takes {ratio:.2f} of the time of local processes")


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
    tokenizer: Tokenizer, corpus: Corpus, folder: Path, n_threads: int, seconds: Seconds
) -> tuple[Any, int]:
    """Encode and count in this process; return the hashes of the shards and the number of pre-tokens."""
    out, who = folder / "one", "one process"
    _timed(
        seconds["encode", who],
        lambda: encode_corpus(tokenizer, corpus, out, num_threads=n_threads, overwrite=True),
    )
    hashes = read_manifest(out).shards
    shutil.rmtree(out)
    settings = CountingSettings(["<|endoftext|>"], num_threads=n_threads)
    with WorkFolder(None) as work:
        counted = _timed(seconds["count", who], lambda: count_corpus(corpus, settings, work))
    return hashes, counted.n_unique


def _several(
    executor: executors.Executor,
    who: str,
    tokenizer: Tokenizer,
    corpus: Corpus,
    *,
    folder: Path,
    seconds: Seconds,
) -> tuple[Any, int]:
    """The same by the workers of an executor."""
    out, work = folder / who, folder / "work"
    _timed(
        seconds["encode", who],
        lambda: executors.encode_corpus(executor, tokenizer, corpus, out, overwrite=True),
    )
    hashes = read_manifest(out).shards
    shutil.rmtree(out)
    settings = CountingSettings(["<|endoftext|>"], num_threads=1)
    counted = _timed(seconds["count", who], lambda: executors.count_corpus(executor, corpus, settings, work))
    n_unique = counted.n_unique
    shutil.rmtree(work)
    return hashes, n_unique
