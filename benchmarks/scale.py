"""What a corpus of 15 or 100 TB takes on 10, 100 and 1,000 nodes: a simulation of the scheduler with measured rates.

    python benchmarks/scale.py [--encode 90] [--count 110] [--cores 16] [--failures 0.05] [--price 0.04] [--markdown]

The rates are MB/s of text on one core, as `cluster.py` measures them. Nodes fail at random; the units in flight on them
are lost and start again elsewhere, and another node takes the place of the failed one. Tasks differ in speed. The rest
is arithmetic, stated in docs/concepts/scale.md.
"""

from __future__ import annotations

import argparse
import heapq
import math
import random
from dataclasses import dataclass

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


@dataclass(frozen=True)
class Cluster:
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


def simulate(n_units: int, unit_seconds: float, cluster: Cluster, seed: int = 0) -> Outcome:
    """Run a stage: every unit once, on nodes that fail.

    Args:
        n_units: Units of work.
        unit_seconds: Mean time of a unit on a core.
        cluster: The nodes.
        seed: Seed of the random numbers.
    """
    n_nodes, cores, failures_per_hour = cluster.n_nodes, cluster.cores, cluster.failures_per_hour
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


def row(size: int, n_nodes: int, arguments: argparse.Namespace) -> list[str]:
    """Return a row of the table."""
    cores = n_nodes * arguments.cores
    # So that the driver is no bottleneck, as far as every core has some units.
    unit = max(
        1 << 30, min(math.ceil(arguments.encode * 1e6 * cores / DRIVER_TASKS_PER_SECOND), size // (3 * cores))
    )
    n_units = math.ceil(size / unit)
    cluster = Cluster(n_nodes, arguments.cores, arguments.failures / 24)
    count = simulate(n_units, unit / (arguments.count * 1e6), cluster)
    encode = simulate(n_units, unit / (arguments.encode * 1e6), cluster, seed=1)
    ids = size / BYTES_PER_TOKEN * ID_BYTES
    shard = 400e6
    pack = simulate(math.ceil(ids / shard), shard / (COPY_RATE * 1e6), cluster, seed=2)
    shuffle = size * COUNTS_SHARE * (unit / 1e8) ** COUNTS_EXPONENT
    ideal = size / (arguments.encode * 1e6 * cores)
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
        f"{hours * cores * arguments.price:,.0f}",
    ]


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds / 60:.0f} min"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--encode", type=float, default=90.0, help="MB/s of text that one core encodes")
    parser.add_argument("--count", type=float, default=110.0, help="MB/s of text that one core counts")
    parser.add_argument("--cores", type=int, default=16, help="cores of a node")
    parser.add_argument("--failures", type=float, default=0.05, help="failures of a node per day")
    parser.add_argument("--price", type=float, default=0.04, help="price of a core for an hour")
    parser.add_argument("--markdown", action="store_true")
    arguments = parser.parse_args()
    head = [
        "corpus", "nodes", "unit", "units", "count", "encode", "of ideal", "pack", "units lost", "shuffle", "driver",
        "files", "price",
    ]  # fmt: skip
    rows = [head, *(row(size, n_nodes, arguments) for size in SIZES for n_nodes in NODES)]
    for number, cells in enumerate(rows):
        if arguments.markdown:
            print("| " + " | ".join(cells) + " |")
            if not number:
                print("|" + "---:|" * len(cells))
        else:
            print("".join(f"{cell:>12}" for cell in cells))


if __name__ == "__main__":
    main()
