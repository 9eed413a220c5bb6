"""What the cases share: declared options, processes that measure, turns, medians, peak memory, tables, results.

A case is a function of its options, declared with `case`; its docstring explains its figures and is its `--help`.
`measure_in_process` calls a function in a fresh interpreter. It prints or returns one JSON object; a tool that
is not installed, or cannot do what was asked, raises `UnavailableError` there, and the caller gets that line instead of
a time. This module needs nothing but the standard library, so that what it imports is not measured.
"""

import argparse
import codecs
import importlib
import inspect
import json
import os
import platform
import re
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

RESULTS = Path(__file__).parent / "results"
REPOSITORY = Path(__file__).parent.parent
TEXT_MEGABYTES = {"english": 100.0, "code": 75.0, "multilingual": 100.0}
"""Text that `corpus` builds -> its size in 10^6 bytes."""


Name = TypeVar("Name", bound=Hashable)
Option = tuple[tuple[str, ...], dict[str, Any]]
"""The arguments of `ArgumentParser.add_argument`."""


class UnavailableError(Exception):
    """This tool cannot be measured here; the message is the reason in a few words."""


class UsageError(Exception):
    """The options cannot be followed; the message says why."""


@dataclass(frozen=True)
class Outcome:
    """What a worker reported, or why it did not."""

    values: dict[str, Any]
    reason: str | None = None


def shared_data() -> Path | None:
    """The folder of real texts and vocabularies: $BYTEMILL_TEST_DATA, else ../shared/data; None if absent."""
    folder = Path(os.environ.get("BYTEMILL_TEST_DATA", REPOSITORY.parent / "shared" / "data"))
    return folder if folder.is_dir() else None


def cache_folder() -> Path:
    """Where texts and packages are kept: $BYTEMILL_BENCH_CACHE, else ~/.cache/bytemill/bench."""
    return Path(os.environ.get("BYTEMILL_BENCH_CACHE", "~/.cache/bytemill/bench")).expanduser()


def text_path(cache: Path, name: str, megabytes: float) -> Path:
    """The file of a text of this size."""
    return cache / f"{name}-{megabytes:g}MB.txt"


def standing_texts() -> list[Path]:
    """The texts that have been built in their usual sizes."""
    found = [text_path(cache_folder(), name, size) for name, size in TEXT_MEGABYTES.items()]
    return [path for path in found if path.is_file()]


def chosen_texts(given: list[Path] | Path | None, *, first: bool = False) -> list[Path]:
    """The texts of an option, or those that have been built; UsageError if there are none."""
    texts = [given] if isinstance(given, Path) else given or standing_texts()[: 1 if first else None]
    if not texts:
        raise UsageError("there is no text: run `python -m benchmarks corpus` first, or give --text")
    return texts


def option(*flags: str, **settings: Any) -> Option:
    """An option of a case, as `ArgumentParser.add_argument` takes it."""
    return flags, settings


def case(*options: Option) -> Callable[[Callable[[argparse.Namespace], int | None]], Any]:
    """Declare the options of a case."""

    def declare(function: Any) -> Any:
        function.options = options
        return function

    return declare


def run_case(name: str, function: Any, words: Sequence[str]) -> int:
    """Run a case with the words of the command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        f"python -m benchmarks {name}",
        description=inspect.cleandoc(function.__doc__),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for flags, settings in function.options:
        parser.add_argument(*flags, **settings)
    options = parser.parse_args(words)
    try:
        return function(options) or 0
    except UsageError as error:
        parser.error(str(error))


def listed(convert: Callable[[str], Any] = str, allowed: Iterable[str] = ()) -> Callable[[str], list[Any]]:
    """The type of an option that takes several values with commas between them."""
    names = list(allowed)

    def parse(value: str) -> list[Any]:
        words = value.split(",")
        for word in words:
            if names and word not in names:
                raise argparse.ArgumentTypeError(f"{word!r} is none of {', '.join(names)}")
        return [convert(word) for word in words]

    return parse


TEXTS = option("--text", type=Path, action="append", help="text, repeatable (those of `corpus`)")
TEXT = option("--text", type=Path, help="text (the first of `corpus`)")
JSON = option("--json", type=Path, help="file for the results (a new one in benchmarks/results)")
MARKDOWN = option("--markdown", action="store_true", help="print the table for the documentation")
ROUNDS = option("--rounds", type=int, default=3, help="turns, of which medians are shown (%(default)s)")


def megabytes(default: float) -> Option:
    """How much of a text is used."""
    help_ = "first 10^6 bytes used, 0 for all (%(default)s)"
    return option("--megabytes", type=float, default=default, help=help_)


def several(flag: str, allowed: Iterable[str], default: Iterable[str] | None = None) -> Option:
    """Names with commas between them, all those that are allowed by default."""
    names, chosen = list(allowed), list(allowed if default is None else default)
    return option(flag, type=listed(str, names), default=chosen, help=f"comma-separated ({','.join(chosen)})")


def measure_in_process(
    work: Callable[[Any], Any],
    request: Any,
    *,
    threads: int | None = None,
    timeout: float = 3600,
    environment: dict[str, str] | None = None,
) -> Outcome:
    """Call a function of a module in a fresh interpreter.

    Tools whose pools have no argument for it are told the number of threads by their environment variables.

    Args:
        work: A function that prints or returns a JSON object; what it printed last counts if it does not end in time.
        request: Its argument, as JSON.
        threads: Number of threads, None for what each tool takes by itself.
        timeout: Seconds after which the process is ended.
        environment: Further environment variables.
    """
    pools: dict[str, str] = {}
    if threads is not None:
        pools["RAYON_NUM_THREADS"] = str(threads)
        pools["TOKENIZERS_PARALLELISM"] = "true" if threads > 1 else "false"
    try:
        answer = subprocess.run(
            worker_command(work, request),
            env=worker_environment(PYTHONHASHSEED="0", **pools, **environment or {}),
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as error:
        # The line that the worker was about to print may be there in part.
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


def worker_command(work: Callable[[Any], Any], request: Any) -> list[str]:
    """The command that calls a function in another process."""
    name = f"{work.__module__}:{work.__name__}"
    return [sys.executable, "-m", "benchmarks", "worker", name, json.dumps(request)]


def worker_environment(*folders: Path, **variables: str) -> dict[str, str]:
    """The environment of another process: `folders` come first in what Python imports, the benchmarks after them."""
    # Installed modules are compiled once, so a process that measures should find them so.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    paths = [*map(str, folders), str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])]
    return environment | {"PYTHONPATH": os.pathsep.join(paths)} | variables


def worker_main(name: str, request: str) -> int:
    """The whole of a worker process: call a function, and print what it returns."""
    module, _, function = name.partition(":")
    try:
        values = getattr(importlib.import_module(module), function)(json.loads(request))
    except UnavailableError as reason:
        values = {"unavailable": str(reason)}
    print(json.dumps(values))
    return 0


def in_turns(
    names: Sequence[Name],
    n_turns: int,
    measure: Callable[[Name], Outcome],
    *,
    to_and_fro: bool = False,
    needed: bool = False,
) -> tuple[dict[Name, list[Outcome]], dict[Name, str]]:
    """Measure each name once a turn, so that a slow minute of the machine hits all of them.

    Args:
        names: Tools. One that gives a reason instead of figures is not asked again.
        n_turns: Turns.
        measure: Measures one of them once.
        to_and_fro: Let every other turn go the other way round: on a virtual machine the second of two processes
            took 5 to 10 % longer, whichever it was.
        needed: Exit if one of them gives a reason.

    Returns:
        What was measured by name, and the reasons of those that gave one.
    """
    runs: dict[Name, list[Outcome]] = {name: [] for name in names}
    reasons: dict[Name, str] = {}
    for turn in range(n_turns):
        for name in names[:: -1 if to_and_fro and turn % 2 else 1]:
            if name in reasons:
                continue
            outcome = measure(name)
            if outcome.reason is None:
                runs[name].append(outcome)
            elif needed:
                raise SystemExit(f"error: {name}: {outcome.reason}")
            else:
                reasons[name] = outcome.reason
    return runs, reasons


def require(module: str) -> Any:
    """The module, or UnavailableError where it is not installed."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = error.name or module
        if missing == module or missing.startswith(f"{module}."):
            raise UnavailableError(
                "not installed" if missing == module else f"not built: {missing} is missing"
            ) from error
        raise


def preload() -> None:
    """Import what tools import of the standard library, so that it counts for none of them."""
    for module in ("html.parser", "importlib.metadata", "unittest.mock"):
        importlib.import_module(module)


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


def format_table(header: Sequence[str], rows: Iterable[Sequence[str]], *, markdown: bool = False) -> str:
    """Rows under a header: columns of words to the left, columns of numbers to the right.

    >>> print(format_table(["tool", "MB/s"], [["a", "9.5"], ["bcd", "120"]]))
    tool  MB/s
    ----  ----
    a      9.5
    bcd    120
    >>> print(format_table(["tool", "MB/s"], [["a", "9.5"]], markdown=True))
    | tool | MB/s |
    |---|---:|
    | a | 9.5 |
    """
    body = [list(row) for row in rows]
    table = [list(header), *body]
    numeric = [
        all(not cell or cell[0] in "0123456789–-+×" for cell in column) for column in zip(*body, strict=True)
    ] or [False] * len(header)
    if markdown:
        lines = ["| " + " | ".join(row) + " |" for row in table]
        return "\n".join(
            [lines[0], "|" + "".join("---:|" if right else "---|" for right in numeric), *lines[1:]]
        )
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    ruler = ["-" * min(width, 24) for width in widths]
    lines = [
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        ).rstrip()
        for row in [table[0], *body]
    ]
    return "\n".join([lines[0], "  ".join(ruler), *lines[1:]])


def format_tools(rows: Iterable[dict[str, Any]], columns: Sequence[tuple[str, ...]]) -> str:
    """A row for each tool, with the reason of one that has no figures.

    Args:
        rows: What each tool gave, with its `tool`, `version`, `reason` and, if any, `note`.
        columns: Header, key and format, and the tools by whose figures those of the column are divided.

    >>> rows = [{"tool": "bytemill", "version": "1", "reason": None, "seconds": 2.0, "note": ""}]
    >>> rows += [{"tool": "a", "version": "3", "reason": None, "seconds": 3.0, "note": "other ids"}]
    >>> rows += [{"tool": "b", "reason": "not installed"}]
    >>> print(format_tools(rows, [("s", "seconds", ".1f", "bytemill")]))
    tool      version    s  × ours  note
    --------  -------  ---  ------  -------------
    bytemill        1  2.0    1.00
    a               3  3.0    1.50  other ids
    b                               not installed
    """
    rows = list(rows)
    by_tool = {row["tool"]: row for row in rows if row["reason"] is None}
    header = ["tool", "version"]
    for name, _, _, *others in columns:
        header += [name, *("× ours" if other == "bytemill" else f"× {other}" for other in others)]
    cells: list[list[str]] = []
    for row in rows:
        if row["reason"] is not None:
            cells.append([row["tool"], *[""] * (len(header) - 1), row["reason"]])
            continue
        line = [row["tool"], row["version"]]
        for _, key, form, *others in columns:
            line.append(format(row[key], form) if key in row else "")
            for other in others:
                base = by_tool.get(other, {}).get(key)
                line.append(f"{row[key] / base:.2f}" if base is not None and key in row else "")
        cells.append([*line, row.get("note", "")])
    return format_table([*header, "note"], cells)


def machine() -> dict[str, str | int]:
    """What the times were taken on."""
    about = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*: (.*)", about.read_text(encoding="utf-8")) if about.exists() else None
    return {
        "processor": found[1] if found else platform.processor() or platform.machine(),
        "cores": os.cpu_count() or 0,
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def save(place: Path | None, name: str, results: dict[str, Any]) -> Path:
    """Write results, with machine and time, to a file ending in .json, or to a new one in a folder; return its path.

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
