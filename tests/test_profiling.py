"""Profiles: phases and memory on simulated clocks, the advice, and `--profile`."""

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bytemill.cli.profile import profiled
from bytemill.errors import OutputError
from bytemill.profiling import Clocks, PhaseUse, Profile, ProfileResult, add, phase


@dataclass
class FakeClocks(Clocks):
    """Clocks that the test moves."""

    now: float = 100.0
    cpu_now: float = 0.0
    thread_cpu_now: float = 0.0
    peak: int = 0

    def __post_init__(self) -> None:
        self.n_cores = 4

    def wall(self) -> float:
        return self.now

    def cpu(self) -> float:
        return self.cpu_now

    def thread_cpu(self) -> float:
        return self.thread_cpu_now

    def children_cpu(self) -> float:
        return 0.0

    def take_peak(self) -> int:
        peak, self.peak = self.peak, 0
        return peak

    def close(self) -> None:
        pass

    def pass_time(self, seconds: float, own: float = 0.0) -> None:
        """Let time pass, in which the calling thread computes for `own` seconds."""
        self.now += seconds
        self.thread_cpu_now += own
        self.cpu_now += own


@pytest.fixture
def clocks() -> FakeClocks:
    return FakeClocks()


@pytest.fixture
def profile(clocks: FakeClocks) -> Profile:
    return Profile(clocks=clocks)


def by_name(result: ProfileResult) -> dict[str, PhaseUse]:
    return {use.name: use for use in result.phases}


def test_without_a_profile_a_phase_does_nothing():
    assert phase("count") is phase("merge")
    with phase("count"), phase("count"):
        add("count", n_bytes=1)


def test_phases_of_the_same_name_are_added_up(profile: Profile, clocks: FakeClocks):
    with profile:
        for seconds in (1.0, 2.0):
            with phase("count"):
                clocks.pass_time(seconds, own=seconds / 2)
            clocks.pass_time(0.25)
        with phase("merge"):
            clocks.pass_time(4.0, own=4.0)
        add("count", n_bytes=300)
        add("count", n_bytes=100, n_tokens=7)
    result = profile.result
    count, merge = result.phases
    assert (count.name, count.n_entries, count.seconds, count.own_busy) == ("count", 2, 3.0, 0.5)
    assert (count.n_bytes, count.n_tokens) == (400, 7)
    assert (merge.name, merge.seconds, merge.own_busy, merge.cores) == ("merge", 4.0, 1.0, 1.0)
    assert (result.seconds, result.outside_seconds, result.cpu_seconds) == (7.5, 0.5, 5.5)
    assert result.n_cores == 4


def test_a_phase_within_another_is_part_of_its_time(profile: Profile, clocks: FakeClocks):
    with profile, phase("encode"):
        clocks.pass_time(1.0)
        with phase("write"):
            clocks.pass_time(2.0)
    uses = by_name(profile.result)
    assert (uses["encode"].seconds, uses["encode"].parent) == (3.0, None)
    assert (uses["write"].seconds, uses["write"].parent) == (2.0, "encode")


def test_a_phase_of_several_threads_counts_the_time_once(profile: Profile, clocks: FakeClocks):
    inside, leave = threading.Barrier(3), threading.Barrier(3)

    def work() -> None:
        with phase("read"):
            inside.wait()
            leave.wait()

    with profile:
        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        inside.wait()
        clocks.pass_time(5.0)
        leave.wait()
        for thread in threads:
            thread.join()
    [read] = profile.result.phases
    assert (read.n_entries, read.seconds, read.n_threads) == (2, 5.0, 2.0)
    assert profile.result.outside_seconds == 0


def test_phases_of_different_threads_overlap(profile: Profile, clocks: FakeClocks):
    reading, stop = threading.Event(), threading.Event()

    def read() -> None:
        with phase("read"):
            reading.set()
            stop.wait()

    with profile:
        with phase("encode"):
            thread = threading.Thread(target=read)
            thread.start()
            reading.wait()
            clocks.pass_time(2.0)
            stop.set()
            thread.join()
        clocks.pass_time(1.0)
    uses = by_name(profile.result)
    assert (uses["read"].seconds, uses["encode"].seconds) == (2.0, 2.0)
    assert uses["read"].parent is None
    assert profile.result.outside_seconds == 1.0


def test_memory_belongs_to_the_phases_during_which_it_was_used(profile: Profile, clocks: FakeClocks):
    with profile:
        with phase("count"):
            clocks.pass_time(1.0)
            clocks.peak = 500
        with phase("merge"):
            clocks.pass_time(1.0)
            clocks.peak = 300
        clocks.pass_time(1.0)
        clocks.peak = 700
    uses = by_name(profile.result)
    assert (uses["count"].peak_memory_bytes, uses["merge"].peak_memory_bytes) == (500, 300)
    assert profile.result.peak_memory_bytes == 700


def test_a_phase_still_active_counts_up_to_the_end(profile: Profile, clocks: FakeClocks):
    def generate() -> Iterator[int]:
        with phase("read"):
            yield 1
            yield 2

    with profile:
        numbers = generate()
        next(numbers)
        clocks.pass_time(3.0)
    [read] = profile.result.phases
    assert (read.seconds, read.n_entries) == (3.0, 1)
    numbers.close()  # type: ignore[attr-defined]


def test_generators_may_end_in_another_order_than_they_began(profile: Profile, clocks: FakeClocks):
    def generate(name: str) -> Iterator[None]:
        with phase(name):
            yield

    with profile:
        first, second = generate("first"), generate("second")
        next(first)
        next(second)
        clocks.pass_time(1.0)
        assert next(first, "end") == "end"
        clocks.pass_time(1.0)
        assert next(second, "end") == "end"
    assert {use.name: use.seconds for use in profile.result.phases} == {"first": 1.0, "second": 2.0}


def test_a_phase_that_fails_is_measured_too(profile: Profile, clocks: FakeClocks):
    def work() -> None:
        with phase("count"):
            clocks.pass_time(1.0)
            raise ZeroDivisionError

    with profile, pytest.raises(ZeroDivisionError):
        work()
    assert profile.result.phases[0].seconds == 1.0


def test_there_is_one_profile_at_a_time_and_it_ends(profile: Profile, clocks: FakeClocks):
    with profile:
        with pytest.raises(RuntimeError, match="another profile is active"), Profile():
            pass
        with pytest.raises(RuntimeError, match="has not ended"):
            _ = profile.result
    with Profile(clocks=FakeClocks()):
        pass


def test_the_result_is_json(profile: Profile, clocks: FakeClocks):
    with profile, phase("count"):
        clocks.pass_time(2.0, own=1.0)
    document = json.loads(json.dumps(profile.result.to_dict()))
    assert document["cores"] == 0.5
    assert document["phases"][0]["name"] == "count"
    assert document["advice"] == profile.result.advice


def test_profiled_writes_a_table_and_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    file = tmp_path / "profile.json"
    with profiled(True, file) as measured, phase("count"), phase("read"):
        add("count", n_bytes=1000)
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert lines[0].startswith("profile: ")
    assert lines[2].split("  ")[1] == "phase"
    assert lines[3].startswith("  count ")
    assert lines[3].endswith(("B/s", "bytes/s"))
    assert lines[4].startswith("    read ")
    assert lines[-1].startswith("  - ")
    assert measured.result is not None
    assert json.loads(file.read_text()) == measured.to_json()["profile"]


def test_a_file_that_cannot_be_written_is_known_before_the_work(tmp_path: Path):
    with pytest.raises(OutputError, match="does not exist"), profiled(True, tmp_path / "no" / "profile.json"):
        raise AssertionError("the work has begun")


def test_profiled_writes_nothing_unless_asked(capsys: pytest.CaptureFixture[str]):
    with profiled(False) as measured, phase("count"):
        pass
    assert capsys.readouterr() == ("", "")
    assert measured.to_json() == {}
    assert phase("count") is phase("merge"), "nobody measures"


def test_profiled_shows_what_was_done_before_an_error(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(KeyboardInterrupt), profiled(True), phase("count"):
        raise KeyboardInterrupt
    assert "  count " in capsys.readouterr().err


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
    }
    return PhaseUse(name=name, seconds=seconds, **{**standard, **more})  # type: ignore[arg-type]


def found(*phases: PhaseUse, seconds: float = 10.0, n_cores: int = 4) -> ProfileResult:
    return ProfileResult(seconds, seconds, 0.0, n_cores, 1000, list(phases), 0.0)


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
            found(use("read", 9.0, cores=0.1)),
            "90 % of the time is spent in `read`: it is mostly idle: it waits for input or output",
        ),
        (
            found(use("count", 9.0, cores=2.0)),
            "90 % of the time is spent in `count`: 2.0 of 4 cores are busy: one thread has most of the work, or other "
            "programs take the cores; `top -H` shows which; named patterns are faster",
        ),
        (
            found(use("all", 10.0, cores=2.0), use("count", 9.0, parent="all", cores=4.0)),
            "90 % of the time is spent in `count`: all 4 cores are busy",
        ),
    ],
)
def test_advice_follows_from_the_numbers(result: ProfileResult, beginning: str):
    assert result.advice[0].startswith(beginning)


def test_advice_names_the_phase_of_the_memory_peak():
    result = found(
        use("all", 10.0, peak_memory_bytes=9000), use("count", 2.0, parent="all", peak_memory_bytes=9000)
    )
    assert result.advice[1] == "memory peaked in `count`: 9.00 kB"


def test_a_peak_that_is_never_reset_belongs_to_the_first_phase_with_it():
    result = found(*(use(name, 2.0, peak_memory_bytes=9000) for name in ("count", "learn", "build")))
    assert result.advice[1] == "memory peaked in `count`: 9.00 kB"
