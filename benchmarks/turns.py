"""Compares builds of bytemill, or numbers of threads, closely: many short turns in forked processes.

    uv run --group bench python benchmarks/turns.py 1 2                          # this build on one thread and two
    uv run --group bench python benchmarks/turns.py 2 2@../before/python         # and another's `python` folder

Between two runs of the other programs lie seconds in which the machine may become slower by half. Here a process
for each case loads vocabulary and text once, and then forks again and again: what is forked has encoded nothing yet,
encodes the text once and is gone. Cases take turns; after some turns all processes are started anew, since where a
process happens to have its memory makes some hundredths. Of a row:

    ms, CPU ms    of a call; the mean over the rounds of the median over a round's turns
    faults        pages that the system gave on the way, one by one
    × time        milliseconds by those of the first case, the mean over the rounds, and ± its standard error
    × CPU         the same of CPU time
"""

import argparse
import contextlib
import ctypes
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import harness
from encode import standing_texts
from encode_worker import call_of, given_to
from encoders import ENCODERS
from vocabularies import Vocabulary, vocabulary_of

INTERFACES = ("array", "list", "batch", "batch array", "files")
HERE = harness.REPOSITORY / "python"


@dataclass(frozen=True)
class Case:
    """A build and a number of threads."""

    threads: int
    build: Path

    @classmethod
    def parse(cls, word: str) -> "Case":
        """From `THREADS` or `THREADS@FOLDER`; argparse.ArgumentTypeError for anything else."""
        threads, _, folder = word.partition("@")
        if not threads.isdecimal() or int(threads) == 0:
            raise argparse.ArgumentTypeError(f"{word!r} does not begin with a number of threads")
        build = Path(folder).resolve() if folder else HERE
        # Else the installed package would be measured in its place.
        if not (build / "bytemill").is_dir():
            raise argparse.ArgumentTypeError(
                f"{folder} holds no bytemill: give the folder `python` of a build"
            )
        return cls(int(threads), build)

    def __str__(self) -> str:
        return f"{self.threads} @ {os.path.relpath(self.build)}"


class Server:
    """A process that has all loaded and encodes in forks of itself."""

    def __init__(self, case: Case, request: dict[str, Any]) -> None:
        request = request | {"threads": case.threads}
        self._process = subprocess.Popen(
            [sys.executable, __file__, "serve", json.dumps(request)],
            # The build goes before the installed package. numpy would begin its threads anew in every fork: 0.1 s.
            env=os.environ | {"PYTHONPATH": str(case.build), "OPENBLAS_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("error: a process that measures has ended; its message is above")
        return json.loads(line)

    def turn(self) -> dict[str, float]:
        """One call, in a process of its own."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        """Ends it."""
        self._process.communicate()


def own_pages(given: Any) -> None:
    """Keeps what a fork costs out of the measurement: a page that it shares is copied when it is first written to.

    That holds for the pages of texts, in which references are counted, and for free memory of the allocator, which
    is given back here.
    """
    if isinstance(given, list):
        for _ in given:
            pass
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def serve(request: dict[str, Any]) -> None:
    """Loads, says so, and encodes once for every line of stdin."""
    encoder = ENCODERS["bytemill"](Vocabulary(Path(request["vocab"]), request["pattern"]), request["threads"])
    encode = call_of(encoder, request["interface"], [])
    text = harness.read_text(request["text"], request["n_bytes"])
    with tempfile.TemporaryDirectory() as folder:
        given, few = given_to(request["interface"], text, Path(folder))
        # What the first call of a process imports and makes is not what is measured.
        encode(few)
        print("null", flush=True)
        for _ in sys.stdin:
            if os.fork() == 0:
                own_pages(given)
                before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
                with harness.Stopwatch() as watch:
                    ids = encode(given)
                faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
                print(json.dumps({"wall": watch.wall, "cpu": watch.cpu, "faults": faults}), flush=True)
                del ids
                # The parent's folder is not to be removed.
                os._exit(0)
            if os.wait()[1] != 0:
                raise SystemExit(1)


def measure(
    cases: list[Case], request: dict[str, Any], rounds: int, turns: int
) -> list[list[dict[str, float]]]:
    """For each round and case the medians over the turns."""
    results: list[list[dict[str, float]]] = []
    for number in range(rounds):
        servers = [Server(case, request) for case in cases]
        taken: list[list[dict[str, float]]] = [[] for _ in cases]
        # numpy's threads spin for a while before they sleep.
        time.sleep(0.2)
        for turn in range(turns):
            # Whoever comes first in a turn comes last in the next.
            for index in sorted(range(len(cases)), reverse=(number + turn) % 2 == 1):
                taken[index].append(servers[index].turn())
        for server in servers:
            server.close()
        results.append(
            [{key: statistics.median(one[key] for one in some) for key in some[0]} for some in taken]
        )
    return results


def with_error(values: list[float]) -> str:
    """Their mean and its standard error."""
    error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else float("nan")
    return f"{statistics.mean(values):.3f} ± {error:.3f}"


def main() -> int:
    if sys.argv[1:2] == ["serve"]:
        serve(json.loads(sys.argv[2]))
        return 0
    parser = argparse.ArgumentParser(
        description="Compare builds or numbers of threads in many short turns.",
        epilog="example: turns.py 1 2 2@../before/python --interface 'batch array'",
    )
    parser.add_argument("cases", type=Case.parse, nargs="+", help="THREADS or THREADS@FOLDER of the package")
    parser.add_argument("--text", type=Path, help="text (the first of corpus.py)")
    parser.add_argument(
        "--megabytes", type=float, default=0, help="first 10^6 bytes used, 0 for all (%(default)s)"
    )
    parser.add_argument("--vocab", help="rank file or name, as in encode.py (cl100k)")
    parser.add_argument(
        "--interface", choices=INTERFACES, default="array", help="as in encode.py (%(default)s)"
    )
    parser.add_argument("--rounds", type=int, default=8, help="times that all is started anew (%(default)s)")
    parser.add_argument("--turns", type=int, default=5, help="turns in each round (%(default)s)")
    parser.add_argument("--json", type=Path, help="file for the results (a new one in benchmarks/results)")
    arguments = parser.parse_args()
    cases: list[Case] = arguments.cases
    texts: list[Path] = [arguments.text] if arguments.text else standing_texts()[:1]
    if not texts:
        parser.error("there is no text: run benchmarks/corpus.py first, or give --text")
    print(harness.machine())
    vocabulary = vocabulary_of(arguments.vocab, None, texts)
    request = {
        "vocab": str(vocabulary.path),
        "pattern": vocabulary.pattern,
        "text": str(texts[0]),
        "n_bytes": int(arguments.megabytes * 1e6) or None,
        "interface": arguments.interface,
    }
    results = measure(cases, request, arguments.rounds, arguments.turns)
    lines: list[list[str]] = []
    for index, case in enumerate(cases):
        own = [row[index] for row in results]
        means = {key: statistics.mean(row[key] for row in own) for key in own[0]}
        lines.append(
            [str(case), f"{means['wall'] * 1e3:.1f}", f"{means['cpu'] * 1e3:.1f}", f"{means['faults']:.0f}"]
            + [with_error([row[index][key] / row[0][key] for row in results]) for key in ("wall", "cpu")]
        )
    print(f"{texts[0].name}, {arguments.interface}, {vocabulary.path.name}\n")
    print(harness.format_table(["threads @ build", "ms", "CPU ms", "faults", "× time", "× CPU"], lines))
    saved = {"cases": [str(case) for case in cases], "request": request, "rounds": results}
    print(f"\nSaved to {harness.save(arguments.json, 'turns', saved)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
