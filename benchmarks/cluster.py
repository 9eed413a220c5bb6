"""Several processes and nodes: the cases `cluster` (measured) and `scale` (simulated from the measured rates)."""

import argparse
import heapq
import math
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
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

TB = 10**12
NODES = (10, 100, 1000)
SIZES = (15 * TB, 100 * TB)
REPLACE_SECONDS = 120.0
"""Until another node is there."""
DRIVER_TASKS_PER_SECOND = 500.0
"""Tasks that one driver starts and ends: half of what was measured on one machine."""
PLAN_BYTES = 600
"""Memory of the driver for a unit: its range, its result and its place in the queue."""
COUNTS_SHARE = 0.034
"""Bytes of the counts of a unit of 100 MB by bytes of its text: measured on English."""
COUNTS_EXPONENT = -0.4
"""How that share falls with the size of the unit: Heaps' law with an exponent of 0.6."""
BYTES_PER_TOKEN = 4.4
ID_BYTES = 4
COPY_RATE = 250.0
"""MB/s of ids that one core copies, hashes and writes."""


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


@harness.case(
    option("--encode", type=float, default=90.0, help="MB/s of text that one core encodes"),
    option("--count", type=float, default=110.0, help="MB/s of text that one core counts"),
    option("--cores", type=int, default=16, help="cores of a node"),
    option("--failures", type=float, default=0.05, help="failures of a node per day"),
    option("--price", type=float, default=0.04, help="price of a core for an hour"),
    harness.MARKDOWN,
)
def scale(options: argparse.Namespace) -> None:
    """Simulate what a corpus of 15 or 100 TB takes on 10, 100 and 1,000 nodes: the scheduler with measured rates.

        python -m benchmarks scale [--encode 90] [--count 110] [--cores 16] [--failures 0.05] [--price 0.04]
        [--markdown]

    The rates are MB/s of text on one core, as `cluster` measures them. Nodes fail at random; the units in flight
    on them are lost and start again elsewhere, and another node takes the place of the failed one. Tasks differ in
    speed. The rest is arithmetic, stated in docs/concepts/scale.md.
    """
    header = [
        "corpus", "nodes", "unit", "units", "count", "encode", "of ideal", "pack", "units lost", "shuffle", "driver",
        "files", "price",
    ]  # fmt: skip
    rows = [_scale_row(size, n_nodes, options) for size in SIZES for n_nodes in NODES]
    print(harness.format_table(header, rows, markdown=options.markdown))


@dataclass(frozen=True)
class Nodes:
    """Nodes."""

    n_nodes: int
    cores: int
    """Tasks at the same time on a node."""
    failures_per_hour: float
    """Of a node."""


@dataclass(frozen=True)
class Outcome:
    """The end of a simulated stage."""

    seconds: float
    n_started: int
    n_lost: int
    n_failures: int


def simulate(n_units: int, unit_seconds: float, nodes: Nodes, seed: int = 0) -> Outcome:
    """Run a stage: every unit once, on nodes that fail.

    Args:
        n_units: Units of work.
        unit_seconds: Mean time of a unit on a core.
        nodes: The nodes.
        seed: Seed of the random numbers.
    """
    n_nodes, cores, failures_per_hour = nodes.n_nodes, nodes.cores, nodes.failures_per_hour
    rng = random.Random(seed)  # noqa: S311  (a simulation)
    waiting, n_started, n_lost, n_failures = n_units, 0, 0, 0
    running: list[dict[int, float]] = [{} for _ in range(n_nodes)]
    events: list[
        tuple[float, int, int, int]
    ] = []  # time, kind (0: end, 1: failure, 2: replacement), node, task
    free = [(node, cores) for node in range(n_nodes)]
    is_up = [True] * n_nodes
    driver_at = 0.0
    if failures_per_hour > 0:
        for node in range(n_nodes):
            heapq.heappush(events, (rng.expovariate(failures_per_hour / 3600), 1, node, 0))

    def start(node: int, now: float) -> None:
        nonlocal n_started, waiting, driver_at
        waiting -= 1
        n_started += 1
        driver_at = max(driver_at, now) + 1 / DRIVER_TASKS_PER_SECOND
        # Lognormal, with a standard deviation of a fifth.
        end = driver_at + unit_seconds * rng.lognormvariate(-0.02, 0.2)
        running[node][n_started] = end
        heapq.heappush(events, (end, 0, node, n_started))

    for node, n in free:
        for _ in range(min(n, waiting)):
            start(node, 0.0)
    now, n_done = 0.0, 0
    while n_done < n_units:
        now, kind, node, task = heapq.heappop(events)
        if kind == 0:
            if running[node].pop(task, None) is None:
                continue
            n_done += 1
            if waiting and is_up[node]:
                start(node, now)
        elif kind == 1:
            n_failures += 1
            lost = len(running[node])
            n_lost += lost
            waiting += lost
            running[node].clear()
            is_up[node] = False
            heapq.heappush(events, (now + REPLACE_SECONDS, 2, node, 0))
        else:
            is_up[node] = True
            heapq.heappush(events, (now + rng.expovariate(failures_per_hour / 3600), 1, node, 0))
            for _ in range(min(cores, waiting)):
                start(node, now)
        # Lost units go to the cores that are idle, towards the end.
        if waiting and kind == 1:
            for other in range(n_nodes):
                while waiting and is_up[other] and len(running[other]) < cores:
                    start(other, now)
    return Outcome(now, n_started, n_lost, n_failures)


def _scale_row(size: int, n_nodes: int, options: argparse.Namespace) -> list[str]:
    """Return a row of the table."""
    cores = n_nodes * options.cores
    # So that the driver is no bottleneck, as far as every core has some units.
    unit = max(
        1 << 30, min(math.ceil(options.encode * 1e6 * cores / DRIVER_TASKS_PER_SECOND), size // (3 * cores))
    )
    n_units = math.ceil(size / unit)
    nodes = Nodes(n_nodes, options.cores, options.failures / 24)
    count = simulate(n_units, unit / (options.count * 1e6), nodes)
    encode = simulate(n_units, unit / (options.encode * 1e6), nodes, seed=1)
    ids = size / BYTES_PER_TOKEN * ID_BYTES
    shard = 400e6
    pack = simulate(math.ceil(ids / shard), shard / (COPY_RATE * 1e6), nodes, seed=2)
    shuffle = size * COUNTS_SHARE * (unit / 1e8) ** COUNTS_EXPONENT
    ideal = size / (options.encode * 1e6 * cores)
    hours = (count.seconds + encode.seconds + pack.seconds) / 3600
    n_lost = count.n_lost + encode.n_lost + pack.n_lost
    return [
        f"{size // TB} TB",
        f"{n_nodes:,}",
        f"{unit / 2**30:.1f} GiB",
        f"{n_units:,}",
        _hours(count.seconds),
        _hours(encode.seconds),
        f"{ideal / encode.seconds:.0%}",
        _hours(pack.seconds),
        f"{n_lost:,}",
        f"{shuffle / TB:.2f} TB",
        f"{n_units * PLAN_BYTES / 1e6:.0f} MB",
        f"{3 * n_units + math.ceil(ids / shard):,}",
        f"{hours * cores * options.price:,.0f}",
    ]


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds / 60:.0f} min"
