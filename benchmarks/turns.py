"""Small differences in encoding with bytemill: the case `turns`."""

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

from benchmarks import harness
from benchmarks.encode import INTERFACES, call_of, given_to
from benchmarks.harness import option
from benchmarks.peers.encoders import VOCAB, Vocabulary, encoder_of, vocabulary_of


@dataclass(frozen=True)
class Build:
    """A build and a number of threads."""

    threads: int
    folder: Path

    @classmethod
    def parse(cls, word: str) -> "Build":
        """From `THREADS` or `THREADS@FOLDER`; argparse.ArgumentTypeError for anything else."""
        threads, _, name = word.partition("@")
        if not threads.isdecimal() or int(threads) == 0:
            raise argparse.ArgumentTypeError(f"{word!r} does not begin with a number of threads")
        folder = Path(name).resolve() if name else harness.REPOSITORY / "python"
        # Else the installed package would be measured in its place.
        if not (folder / "bytemill").is_dir():
            raise argparse.ArgumentTypeError(f"{name} holds no bytemill: give the folder `python` of a build")
        return cls(int(threads), folder)

    def __str__(self) -> str:
        return f"{self.threads} @ {os.path.relpath(self.folder)}"


@harness.case(
    option("cases", type=Build.parse, nargs="+", help="THREADS or THREADS@FOLDER of the package"),
    harness.TEXT,
    harness.megabytes(0),
    VOCAB,
    option("--interface", choices=INTERFACES, default="array", help="as in `encode` (%(default)s)"),
    option("--rounds", type=int, default=8, help="times that all is started anew (%(default)s)"),
    option("--turns", type=int, default=5, help="turns in each round (%(default)s)"),
    harness.JSON,
)
def turns(options: argparse.Namespace) -> None:
    """Compare builds of bytemill, or numbers of threads, closely: many short turns in forked processes.

        python -m benchmarks turns 1 2                        # this build on one thread and two
        python -m benchmarks turns 2 2@../before/python       # and another's `python` folder

    Between two runs of the other cases lie seconds in which the machine may become slower by half. Here a process for
    each build loads vocabulary and text once, and then forks again and again: what is forked has encoded nothing yet,
    encodes the text once and is gone. Builds take turns; after some turns all processes are started anew, since where a
    process happens to have its memory makes some hundredths. Of a row:

        ms, CPU ms    of a call; the mean over the rounds of the median over a round's turns
        faults        pages that the system gave on the way, one by one
        × time        milliseconds by those of the first build, the mean over the rounds, and ± its standard error
        × CPU         the same of CPU time
    """
    builds: list[Build] = options.cases
    text = harness.chosen_texts(options.text, first=True)[0]
    print(harness.machine())
    vocabulary = vocabulary_of(options.vocab, None, [text])
    request = vocabulary.request() | {
        "text": str(text),
        "n_bytes": int(options.megabytes * 1e6) or None,
        "interface": options.interface,
    }
    results = _rounds(builds, request, options.rounds, options.turns)
    lines: list[list[str]] = []
    for index, build in enumerate(builds):
        own = [row[index] for row in results]
        means = {key: statistics.mean(row[key] for row in own) for key in own[0]}
        lines.append(
            [str(build), f"{means['wall'] * 1e3:.1f}", f"{means['cpu'] * 1e3:.1f}", f"{means['faults']:.0f}"]
            + [_with_error([row[index][key] / row[0][key] for row in results]) for key in ("wall", "cpu")]
        )
    print(f"{text.name}, {options.interface}, {vocabulary.path.name}\n")
    print(harness.format_table(["threads @ build", "ms", "CPU ms", "faults", "× time", "× CPU"], lines))
    saved = {"cases": [str(build) for build in builds], "request": request, "rounds": results}
    print(f"\nSaved to {harness.save(options.json, 'turns', saved)}")


class Server:
    """A process that has all loaded and encodes in forks of itself."""

    def __init__(self, build: Build, request: dict[str, Any]) -> None:
        self._process = subprocess.Popen(
            harness.worker_command(serve, request | {"threads": build.threads}),
            # The build goes before the installed package. numpy would begin its threads anew in every fork: 0.1 s.
            env=harness.worker_environment(build.folder, OPENBLAS_NUM_THREADS="1"),
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
        """End the process."""
        self._process.communicate()


def own_pages(given: Any) -> None:
    """Keep what a fork costs out of the measurement: a page that it shares is copied when it is first written to.

    That holds for the pages of texts, in which references are counted, and for free memory of the allocator, which
    is given back here.
    """
    if isinstance(given, list):
        for _ in given:
            pass
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def serve(request: dict[str, Any]) -> None:
    """Load, say so, and encode once for every line of stdin."""
    encoder = encoder_of("bytemill", Vocabulary.of(request), request["threads"])
    encode = call_of(encoder, request["interface"])
    text = harness.read_text(request["text"], request["n_bytes"])
    with tempfile.TemporaryDirectory() as folder:
        given, few = given_to(request["interface"], text, Path(folder), Vocabulary.of(request))
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


def _rounds(
    builds: list[Build], request: dict[str, Any], rounds: int, turns: int
) -> list[list[dict[str, float]]]:
    """For each round and build the medians over the turns."""
    results: list[list[dict[str, float]]] = []
    for number in range(rounds):
        servers = [Server(build, request) for build in builds]
        taken: list[list[dict[str, float]]] = [[] for _ in builds]
        # numpy's threads spin for a while before they sleep.
        time.sleep(0.2)
        for turn in range(turns):
            # Whoever comes first in a turn comes last in the next.
            for index in sorted(range(len(builds)), reverse=(number + turn) % 2 == 1):
                taken[index].append(servers[index].turn())
        for server in servers:
            server.close()
        results.append(
            [{key: statistics.median(one[key] for one in some) for key in some[0]} for some in taken]
        )
    return results


def _with_error(values: list[float]) -> str:
    """Their mean and its standard error."""
    error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else float("nan")
    return f"{statistics.mean(values):.3f} ± {error:.3f}"
