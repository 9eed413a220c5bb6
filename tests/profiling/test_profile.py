"""Profiles: phases, threads and memory, on simulated clocks and on real threads."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bytemill.cli.profile import profiled
from bytemill.errors import OutputError
from bytemill.profiling import PhaseUse, Profile, ProfileResult, add, phase
from bytemill.profiling.system import System
from bytemill.profiling.threads import ThreadKey, ThreadReading, read_threads

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="platform: only Linux tells what threads do")


@dataclass
class FakeThread:
    name: str
    cpu: float = 0.0
    runnable: float = 0.0
    state: str = "S"


@dataclass
class FakeSystem(System):
    """Clocks that the test moves."""

    now: float = 100.0
    cpu_now: float = 0.0
    thread_cpu_now: float = 0.0
    peak: int = 0
    running: dict[ThreadKey, FakeThread] | None = field(default_factory=dict[ThreadKey, FakeThread])

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

    def threads(self) -> dict[ThreadKey, ThreadReading] | None:
        if self.running is None:
            return None
        return {
            key: ThreadReading(thread.name, thread.cpu, thread.runnable, thread.state)
            for key, thread in self.running.items()
        }

    def take_peak(self) -> int:
        peak, self.peak = self.peak, 0
        return peak

    def close(self) -> None:
        pass

    def pass_time(self, seconds: float, own: float = 0.0, **busy: float) -> None:
        """Let time pass, in which the calling thread computes for `own` seconds and other threads for theirs."""
        self.now += seconds
        self.thread_cpu_now += own
        self.cpu_now += own + sum(busy.values())
        for thread in (self.running or {}).values():
            thread.cpu += busy.get(thread.name, own if thread.name == "main" else 0.0)


@pytest.fixture
def system() -> FakeSystem:
    return FakeSystem(running={(1, 0): FakeThread("main")})


@pytest.fixture
def profile(system: FakeSystem) -> Profile:
    return Profile(interval=None, system=system)


def by_name(result: ProfileResult) -> dict[str, PhaseUse]:
    return {use.name: use for use in result.phases}


def test_without_a_profile_a_phase_does_nothing():
    assert phase("count") is phase("merge")
    with phase("count"), phase("count"):
        add("count", n_bytes=1)


def test_phases_of_the_same_name_are_added_up(profile: Profile, system: FakeSystem):
    with profile:
        for seconds in (1.0, 2.0):
            with phase("count"):
                system.pass_time(seconds, own=seconds / 2)
            system.pass_time(0.25)
        with phase("merge"):
            system.pass_time(4.0, own=4.0)
        add("count", n_bytes=300)
        add("count", n_bytes=100, n_tokens=7)
    result = profile.result
    count, merge = result.phases
    assert (count.name, count.n_entries, count.seconds, count.own_busy) == ("count", 2, 3.0, 0.5)
    assert (count.n_bytes, count.n_tokens) == (400, 7)
    assert (merge.name, merge.seconds, merge.own_busy, merge.cores) == ("merge", 4.0, 1.0, 1.0)
    assert (result.seconds, result.outside_seconds, result.cpu_seconds) == (7.5, 0.5, 5.5)
    assert result.n_cores == 4


def test_a_phase_within_another_is_part_of_its_time(profile: Profile, system: FakeSystem):
    with profile, phase("encode"):
        system.pass_time(1.0)
        with phase("write"):
            system.pass_time(2.0)
    uses = by_name(profile.result)
    assert (uses["encode"].seconds, uses["encode"].parent) == (3.0, None)
    assert (uses["write"].seconds, uses["write"].parent) == (2.0, "encode")


def test_a_phase_of_several_threads_counts_the_time_once(profile: Profile, system: FakeSystem):
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
        system.pass_time(5.0)
        leave.wait()
        for thread in threads:
            thread.join()
    [read] = profile.result.phases
    assert (read.n_entries, read.seconds, read.n_threads) == (2, 5.0, 2.0)
    assert profile.result.outside_seconds == 0


def test_phases_of_different_threads_overlap(profile: Profile, system: FakeSystem):
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
            system.pass_time(2.0)
            stop.set()
            thread.join()
        system.pass_time(1.0)
    uses = by_name(profile.result)
    assert (uses["read"].seconds, uses["encode"].seconds) == (2.0, 2.0)
    assert uses["read"].parent is None
    assert profile.result.outside_seconds == 1.0


def test_thread_times_belong_to_the_active_phase(profile: Profile, system: FakeSystem):
    assert system.running is not None
    with profile:
        with phase("count"):
            for number in (7, 8):
                system.running[number, 1] = FakeThread("worker-1")
            system.pass_time(10.0, own=1.0, **{"worker-1": 9.0})
            system.cpu_now += 9.0  # there are two of them
            del system.running[7, 1], system.running[8, 1]
            # They are seen at the end of the phase, or by the sampler before they end.
        with phase("merge"):
            system.pass_time(10.0, own=10.0)
    uses = by_name(profile.result)
    assert [use.name for use in uses["merge"].threads] == ["main"]
    assert uses["merge"].threads[0].busy == pytest.approx(1.0)
    assert profile.result.unseen_cpu_seconds == pytest.approx(18.0), "they ended unseen"


def test_threads_of_one_kind_are_grouped(profile: Profile, system: FakeSystem):
    assert system.running is not None
    with profile, phase("count"):
        for number in (7, 8):
            system.running[number, 1] = FakeThread(f"worker-{number}")
        system.pass_time(10.0, **{"worker-7": 9.0, "worker-8": 6.0})
        system.running[7, 1].runnable = 3.0
        system.running[7, 1].state = "D"
        profile.sample()
    [count] = profile.result.phases
    workers = count.threads[0]
    assert (workers.name, workers.n_threads) == ("worker", 2)
    assert (workers.cpu_seconds, workers.busy, workers.runnable_seconds) == (15.0, 1.5, 3.0)
    assert workers.disk_wait == 0.5
    assert workers.busiest == 1.0, "nine seconds of work and, before or after, more that found no processor"
    assert profile.result.unseen_cpu_seconds == 0


def test_a_reused_thread_id_is_another_thread(profile: Profile, system: FakeSystem):
    assert system.running is not None
    with profile:
        system.running[7, 1] = FakeThread("worker", cpu=5.0)
        system.pass_time(1.0)
        profile.sample()
        del system.running[7, 1]
        system.running[7, 2] = FakeThread("worker", cpu=1.0)
        profile.sample()
    workers = next(use for use in profile.result.threads if use.name == "worker")
    assert (workers.n_threads, workers.cpu_seconds) == (2, 6.0)


def test_a_phase_gets_its_share_of_the_time_between_two_samples(profile: Profile, system: FakeSystem):
    with profile, phase("long"):
        # Too short for a sample of its own.
        for _ in range(1000):
            with phase("short"):
                system.pass_time(0.001, own=0.001)
            system.pass_time(0.003, own=0.003)
    uses = by_name(profile.result)
    assert uses["short"].seconds == pytest.approx(1.0)
    assert uses["short"].threads[0].cpu_seconds == pytest.approx(1.0, rel=0.05)
    assert uses["long"].threads[0].cpu_seconds == pytest.approx(4.0)


def test_memory_belongs_to_the_phases_during_which_it_was_used(profile: Profile, system: FakeSystem):
    with profile:
        with phase("count"):
            system.pass_time(1.0)
            system.peak = 500
        with phase("merge"):
            system.pass_time(1.0)
            system.peak = 300
        system.pass_time(1.0)
        system.peak = 700
    uses = by_name(profile.result)
    assert (uses["count"].peak_memory_bytes, uses["merge"].peak_memory_bytes) == (500, 300)
    assert profile.result.peak_memory_bytes == 700


def test_a_phase_still_active_counts_up_to_the_end(profile: Profile, system: FakeSystem):
    def generate() -> Iterator[int]:
        with phase("read"):
            yield 1
            yield 2

    with profile:
        numbers = generate()
        next(numbers)
        system.pass_time(3.0)
    [read] = profile.result.phases
    assert (read.seconds, read.n_entries) == (3.0, 1)
    numbers.close()  # type: ignore[attr-defined]


def test_generators_may_end_in_another_order_than_they_began(profile: Profile, system: FakeSystem):
    def generate(name: str) -> Iterator[None]:
        with phase(name):
            yield

    with profile:
        first, second = generate("first"), generate("second")
        next(first)
        next(second)
        system.pass_time(1.0)
        assert next(first, "end") == "end"
        system.pass_time(1.0)
        assert next(second, "end") == "end"
    assert {use.name: use.seconds for use in profile.result.phases} == {"first": 1.0, "second": 2.0}


def test_a_phase_that_fails_is_measured_too(profile: Profile, system: FakeSystem):
    def work() -> None:
        with phase("count"):
            system.pass_time(1.0)
            raise ZeroDivisionError

    with profile, pytest.raises(ZeroDivisionError):
        work()
    assert profile.result.phases[0].seconds == 1.0


def test_there_is_one_profile_at_a_time_and_it_ends(profile: Profile, system: FakeSystem):
    with profile:
        with pytest.raises(RuntimeError, match="another profile is active"), Profile():
            pass
        with pytest.raises(RuntimeError, match="has not ended"):
            _ = profile.result
    with Profile(interval=None, system=FakeSystem()):
        pass


def test_a_system_without_thread_times_has_none(system: FakeSystem):
    system.running = None
    profile = Profile(interval=None, system=system)
    with profile, phase("count"):
        system.pass_time(2.0, own=1.0)
    result = profile.result
    assert not result.has_threads
    assert (result.threads, result.phases[0].threads, result.unseen_cpu_seconds) == ([], [], 0.0)
    assert (result.phases[0].own_busy, result.cpu_seconds) == (0.5, 1.0)


def test_the_result_is_json(profile: Profile, system: FakeSystem):
    with profile, phase("count"):
        system.pass_time(2.0, own=1.0)
    document = json.loads(json.dumps(profile.result.to_dict()))
    assert document["cores"] == 0.5
    assert document["phases"][0]["threads"][0]["name"] == "main"


@LINUX
def test_real_threads_are_told_apart_by_what_they_do():
    stop = threading.Event()

    def compute() -> None:
        while not stop.is_set():
            sum(range(1000))

    with Profile(interval=0.01) as profile, phase("work"):
        busy = threading.Thread(target=compute, name="computes-1")
        idle = threading.Thread(target=stop.wait, name="waits-1")
        busy.start()
        idle.start()
        deadline = time.process_time() + 0.3
        while time.process_time() < deadline:
            time.sleep(0.01)
        profile.sample()
        stop.set()
        busy.join()
        idle.join()
    [work] = profile.result.phases
    threads = {use.name: use for use in work.threads}
    assert threads["computes"].cpu_seconds > 0.15
    assert threads["waits"].cpu_seconds < 0.1
    assert "bytemill-profile" not in threads
    assert work.cores > 0


@LINUX
def test_the_names_and_times_of_linux_are_read():
    def spin() -> None:
        deadline = time.thread_time() + 0.05
        while time.thread_time() < deadline:
            pass
        done.set()
        leave.wait()

    done, leave = threading.Event(), threading.Event()
    thread = threading.Thread(target=spin, name="spins")
    thread.start()
    done.wait()
    readings = read_threads()
    leave.set()
    thread.join()
    assert readings is not None
    [reading] = [reading for reading in readings.values() if reading.name == "spins"]
    assert reading.cpu_seconds >= 0.04
    assert reading.state in "RSD"
    assert "main" in {reading.name for reading in readings.values()}


@LINUX
def test_the_threads_of_counting_are_seen_by_name(tmp_path: Path):
    program = """
import sys
from bytemill import train
from bytemill.profiling import Profile, phase
for _ in range(50):  # the machine may be so busy that no sample is taken in the middle
    with Profile(interval=0.002) as profile, phase("train"):
        train([sys.argv[1]], 300, num_threads=2)
    if "bytemill-count" in [use.name for use in profile.result.phases[0].threads]:
        print("seen")
        break
"""
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("".join(f"word{number} and more " for number in range(400_000)))
    answer = subprocess.run(
        [sys.executable, "-c", program, str(corpus)], capture_output=True, text=True, check=True
    )
    assert answer.stdout == "seen\n"


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
