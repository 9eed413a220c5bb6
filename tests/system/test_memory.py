"""Peak memory, as far as the system tells."""

import contextlib
import mmap
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from bytemill.system import memory

LINUX = pytest.mark.skipif(
    sys.platform != "linux", reason="platform: only Linux lets a process reset its peak"
)
SIZE = 100_000_000


@contextlib.contextmanager
def resident_block() -> Iterator[None]:
    """Take memory from the system: the allocator may have as much left from other tests."""
    with mmap.mmap(-1, SIZE) as block:
        for start in range(0, SIZE, 4096):  # only pages that are written are resident
            block[start] = 1
        yield


@LINUX
def test_the_peak_follows_what_was_allocated_and_freed_since_the_reset() -> None:
    assert memory.reset_peak()
    before = memory.peak_bytes()
    with resident_block():
        during = memory.peak_bytes()
    after = memory.peak_bytes()
    assert 0.9 * SIZE < during - before < 1.5 * SIZE
    # Linux adds up its counters of pages only now and then, so readings differ by some hundred kilobytes.
    assert after > during - 0.05 * SIZE, "the peak fell although nothing reset it"
    assert memory.reset_peak()
    assert memory.peak_bytes() < after - 0.5 * SIZE


def test_the_peak_is_at_least_what_python_itself_takes_and_at_most_what_the_machine_has() -> None:
    memory.reset_peak()
    assert 5_000_000 < memory.peak_bytes() <= psutil.virtual_memory().total
    assert memory.peak_bytes() >= 0.5 * psutil.Process().memory_info().rss


def test_a_system_that_cannot_reset_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_CLEAR_REFS", tmp_path / "no" / "such" / "file")
    assert memory.reset_peak() is False


@pytest.mark.parametrize("status", [None, "", "Name:\tpython\nVmRSS:\t  1000 kB\n"])
def test_without_the_peak_of_linux_that_of_all_time_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: str | None
) -> None:
    resource = pytest.importorskip("resource", reason="platform: no limits on resources")
    path = tmp_path / "status"
    if status is not None:
        path.write_text(status)
    monkeypatch.setattr(memory, "_STATUS", path)
    monkeypatch.setattr(memory, "_process_watch", memory.PeakWatch())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for platform, unit in (("linux", 1024), ("freebsd14", 1024), ("darwin", 1)):
        monkeypatch.setattr(sys, "platform", platform)
        assert memory.peak_bytes() == pytest.approx(peak * unit, rel=0.5)


def test_the_line_of_linux_is_read_as_kibibytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "status"
    path.write_text("VmPeak:\t  900000 kB\nVmHWM:\t   12345 kB\nVmRSS:\t   10000 kB\n")
    monkeypatch.setattr(memory, "_STATUS", path)
    monkeypatch.setattr(memory, "_process_watch", memory.PeakWatch())
    assert memory.peak_bytes() == 12345 * 1024


@LINUX
def test_two_measurements_at_once_do_not_take_each_others_peak() -> None:
    outer, inner = memory.PeakWatch(), memory.PeakWatch()
    try:
        assert outer.restart()
        before = outer.peak_bytes()
        with resident_block():
            pass
        assert inner.restart()
        assert outer.peak_bytes() - before > 0.9 * SIZE
        assert outer.peak_bytes() - inner.peak_bytes() > 0.5 * SIZE
    finally:
        outer.close()
        inner.close()
