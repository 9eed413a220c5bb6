"""What the benchmark programs share: one process a measurement, medians, peak memory, tables, saved results.

A program that measures calls `measure_in_process`, which starts the program again with the arguments `worker
JSON`. The worker prints one JSON object as its last line on stdout; a tool that is not installed, or cannot
do what was asked, raises `UnavailableError` there, and the caller gets that one line instead of a time.
"""

import codecs
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
REPOSITORY = Path(__file__).parent.parent


class UnavailableError(Exception):
    """This tool cannot be measured here; the message is the reason in a few words."""


@dataclass(frozen=True)
class Outcome:
    """What a worker reported, or why it did not."""

    values: dict[str, Any]
    reason: str | None = None


def shared_data() -> Path | None:
    """The folder of real texts and vocabularies: $BYTEMILL_TEST_DATA, else ../shared/data; None if absent."""
    folder = Path(os.environ.get("BYTEMILL_TEST_DATA", REPOSITORY.parent / "shared" / "data"))
    return folder if folder.is_dir() else None


def measure_in_process(
    program: str, request: dict[str, Any], *, threads: int, timeout: float = 3600
) -> Outcome:
    """Runs `program worker REQUEST` in a fresh interpreter and gives what it printed.

    The pools of the tools that have no argument for it are told the number of threads by their environment
    variables.
    """
    # Installed modules are compiled once, so a process that measures should find them so.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= {
        "RAYON_NUM_THREADS": str(threads),
        "TOKENIZERS_PARALLELISM": "true" if threads > 1 else "false",
        "PYTHONHASHSEED": "0",
    }
    command = [sys.executable, program, "worker", json.dumps(request)]
    try:
        answer = subprocess.run(
            command,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as error:
        # What a worker printed on the way stands; the line it was about to print may be there in part.
        written = error.stdout or b""
        whole = (
            (written if isinstance(written, bytes) else written.encode()).rpartition(b"\n")[0].splitlines()
        )
        return Outcome(json.loads(whole[-1]) if whole else {}, f"gave up after {timeout:.0f} s")
    lines = answer.stdout.strip().splitlines()
    if answer.returncode == 0 and lines:
        values: dict[str, Any] = json.loads(lines[-1])
        return Outcome(values, values.get("unavailable"))
    complaint = answer.stderr.strip().splitlines()
    return Outcome({}, f"failed ({answer.returncode}): {complaint[-1] if complaint else 'no message'}")


def worker_main(work: Callable[[dict[str, Any]], dict[str, Any]], request: str) -> int:
    """The whole of a worker process: does `work` and prints what it gives."""
    try:
        values = work(json.loads(request))
    except UnavailableError as reason:
        values = {"unavailable": str(reason)}
    print(json.dumps(values))
    return 0


def require(module: str) -> Any:
    """The module, or UnavailableError where it is not installed."""
    import importlib

    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = error.name or module
        if missing == module or missing.startswith(f"{module}."):
            raise UnavailableError(
                "not installed" if missing == module else f"not built: {missing} is missing"
            ) from error
        raise


def peak_memory_bytes() -> int:
    """The most memory this process has had in RAM.

    Linux counts `ru_maxrss` across exec, so a small program started by a large one shows the large one's;
    VmHWM does not.
    """
    try:
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


@dataclass
class Stopwatch:
    """Wall and CPU seconds (all threads) of a `with` block."""

    wall: float = 0.0
    cpu: float = 0.0

    def __enter__(self) -> "Stopwatch":
        self._start = (time.perf_counter(), time.process_time())
        return self

    def __exit__(self, *_exception: object) -> None:
        self.wall = time.perf_counter() - self._start[0]
        self.cpu = time.process_time() - self._start[1]


def median_of(outcomes: Sequence[Outcome], key: str) -> float:
    """The median over runs of one reported value."""
    return statistics.median(float(outcome.values[key]) for outcome in outcomes)


def spread_of(outcomes: Sequence[Outcome], key: str) -> float:
    """How far the runs lie apart: (largest - smallest) / median."""
    values = [float(outcome.values[key]) for outcome in outcomes]
    return (max(values) - min(values)) / statistics.median(values)


def read_text(path: str | Path, n_bytes: int | None) -> str:
    """The file's text, the first `n_bytes` of it cut back to whole characters."""
    with Path(path).open("rb") as file:
        data = file.read(n_bytes if n_bytes is not None else -1)
    # A character that is not there to its end stays in the decoder.
    return codecs.getincrementaldecoder("utf-8")().decode(data)


def format_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Rows under a header: columns of words to the left, columns of numbers to the right.

    >>> print(format_table(["tool", "MB/s"], [["a", "9.5"], ["bcd", "120"]]))
    tool  MB/s
    ----  ----
    a      9.5
    bcd    120
    """
    table = [list(header), *[list(row) for row in rows]]
    widths = [max(len(row[column]) for row in table) for column in range(len(header))]
    numeric = [
        all(not cell or cell[0] in "0123456789–-+×" for cell in (row[column] for row in rows))
        for column in range(len(header))
    ]

    def line(cells: Sequence[str]) -> str:
        padded = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(cells, widths, numeric, strict=True)
        ]
        return "  ".join(padded).rstrip()

    return "\n".join([line(header), "  ".join("-" * min(width, 24) for width in widths), *map(line, rows)])


def machine() -> dict[str, str | int]:
    """What the times were taken on."""
    model = platform.processor() or platform.machine()
    try:
        names = [
            line
            for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
            if "model name" in line
        ]
        model = names[0].split(":", 1)[1].strip() if names else model
    except OSError:
        pass
    return {
        "processor": model,
        "cores": os.cpu_count() or 0,
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def save(place: Path | None, name: str, results: dict[str, Any]) -> Path:
    """Writes results, with machine and time, to a file ending in .json, or to a new one in a folder; gives its path.

    None is the folder of results.
    """
    path = place or RESULTS
    if path.suffix != ".json":
        path = path / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        json.dumps({"machine": machine(), **results}, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    return path
