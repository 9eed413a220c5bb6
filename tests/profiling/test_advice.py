"""Advice from the numbers of a profile."""

import pytest

from bytemill.profiling import PhaseUse, ProfileResult, ThreadUse
from bytemill.profiling.advice import advice


def use(name: str, seconds: float, **more: object) -> PhaseUse:
    standard: dict[str, object] = {
        "parent": None,
        "n_entries": 1,
        "n_threads": 1.0,
        "own_busy": 0.0,
        "cores": 1.0,
        "peak_memory_bytes": 1000,
        "n_bytes": 0,
        "n_tokens": 0,
        "threads": [],
    }
    return PhaseUse(name=name, seconds=seconds, **{**standard, **more})  # type: ignore[arg-type]


def threads(
    name: str, busy: float, n: int = 1, *, busiest: float = 0.0, disk: float = 0.0, runnable: float = 0.0
) -> ThreadUse:
    return ThreadUse(name, n, busy * 9, runnable, busy, busiest or busy / n, disk)


def found(*phases: PhaseUse, seconds: float = 10.0, n_cores: int = 4) -> ProfileResult:
    return ProfileResult(seconds, seconds, 0.0, n_cores, 1000, list(phases), 0.0, [], 0.0, True, [])


@pytest.mark.parametrize(
    ("result", "beginning"),
    [
        (found(), "this work has no phases"),
        (found(use("count", 8.0, cores=3.8)), "80 % of the time is spent in `count`: all 4 cores are busy"),
        (
            found(use("count", 8.0, cores=0.95), n_cores=1),
            "80 % of the time is spent in `count`: the only core",
        ),
        (
            found(use("read", 9.0, own_busy=0.97), use("encode", 9.5, cores=1.9)),
            "95 % of the time is spent in `encode`: `read` runs in one thread, which computes 97 % of the "
            "time, while 1.9 of 4 cores are busy; it is the bottleneck; uncompressed files",
        ),
        (
            found(use("merge", 9.0, threads=[threads("main", 0.99), threads("bytemill-count", 0.1, 4)])),
            "90 % of the time is spent in `merge`: the thread main computes 99 % of the time",
        ),
        (
            found(
                use("count", 9.0, cores=0.7, threads=[threads("worker", 0.7, 2, busiest=0.9, runnable=1.8)])
            ),
            "90 % of the time is spent in `count`: one of 2 threads worker computes 90 % of the time "
            "while the others mostly wait; it is the bottleneck; named patterns are faster",
        ),
        (
            found(use("read", 9.0, cores=0.3, threads=[threads("main", 0.3, disk=0.6)])),
            "90 % of the time is spent in `read`: its threads wait for the disk",
        ),
        (
            found(use("read", 9.0, cores=0.1, threads=[threads("main", 0.1)])),
            "90 % of the time is spent in `read`: the cores are mostly idle",
        ),
        (
            found(use("count", 9.0, cores=2.0, threads=[threads("worker", 2.0, 4, runnable=9.0)])),
            "90 % of the time is spent in `count`: its threads waited 9 s for a free core",
        ),
        (
            found(use("count", 9.0, cores=2.0, threads=[threads("worker", 2.0, 4)])),
            "90 % of the time is spent in `count`: 2.0 of 4 cores are busy: the threads wait for one another",
        ),
        (
            found(use("all", 10.0, cores=2.0), use("count", 9.0, parent="all", cores=4.0)),
            "90 % of the time is spent in `count`: all 4 cores are busy",
        ),
    ],
)
def test_advice_follows_from_the_numbers(result: ProfileResult, beginning: str):
    assert advice(result)[0].startswith(beginning)


def test_advice_names_the_phase_of_the_memory_peak():
    result = found(
        use("all", 10.0, peak_memory_bytes=9000), use("count", 2.0, parent="all", peak_memory_bytes=9000)
    )
    assert advice(result)[1] == "memory peaked in `count`: 9.00 kB"


def test_a_peak_that_is_never_reset_belongs_to_the_first_phase_with_it():
    result = found(*(use(name, 2.0, peak_memory_bytes=9000) for name in ("count", "learn", "build")))
    assert advice(result)[1] == "memory peaked in `count`: 9.00 kB"
