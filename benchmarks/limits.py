"""What is held to limits: the cases `hostile` (worst cases of encoding) and `instructions`."""

import argparse
import ctypes
import json
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.encode import fingerprint, keep_utf8
from benchmarks.harness import Outcome, UnavailableError, listed, option
from benchmarks.peers.encoders import ENCODERS, PATTERN, VOCAB, Vocabulary, encoder_of, vocabulary_of
from benchmarks.texts.generated import HOSTILE

REFERENCES = ("tiktoken", "toktok")
HOSTILE_BYTES = (1_250_000, 2_500_000, 5_000_000, 10_000_000)
MOST_GROWTH = 2.3
MOST_TIMES_TOKTOK = 1.0
MOST_BEYOND_MB = 64
TOO_SHORT_TO_COMPARE = 1e-3
SECONDS_A_SIZE = 3.0
REPEATS = 11

BASELINE = harness.RESULTS / "instructions.json"
INSTRUCTION_BYTES = 1_000_000
KINDS = ("english", "code", "multilingual")
PATTERNS = ("gpt2", "cl100k", "o200k", "llama3")
INSTRUCTION_PARTS = {
    **{f"split-{name}": KINDS for name in PATTERNS},
    "new": KINDS,
    "again": KINDS,
    "decode": KINDS,
    "count": KINDS,
    "learn": KINDS,
    "merge-short": ("english",),
    "merge-long": ("english",),
}
"""Part -> kinds of text that it is run on; what is merged are letters drawn at random."""

_COLLECTED = re.compile(r"Collected : (\d+)")


@harness.case(
    option("--texts", type=listed(str, HOSTILE), default=list(HOSTILE), help="comma-separated (all)"),
    harness.several("--tools", ENCODERS, ("bytemill", "toktok")),
    VOCAB,
    PATTERN,
    option(
        "--megabytes",
        type=listed(lambda size: int(float(size) * 1e6)),
        default=list(HOSTILE_BYTES),
        help="sizes in 10^6 bytes, comma-separated (1.25,2.5,5,10)",
    ),
    option("--limit", type=float, default=30, help="seconds for a tool and a text (%(default)s)"),
    harness.JSON,
    option("--check", action="store_true", help="exit with 1 where bytemill breaks a limit"),
)
def hostile(options: argparse.Namespace) -> int:
    """Time texts that bring out the worst in an encoder, and check that nothing grows faster than the text.

        python -m benchmarks hostile [--texts a,blanks] [--check]

    A process for each tool and text encodes it in four sizes in turns, to an array where the tool has one, else to
    a list; each size up to eleven times, another text each time. Times are CPU time of all threads, one thread
    being asked for. A tool that takes longer than --limit for a text shows the sizes it finished. Of a text's row:

        ms          at each size, in its quickest turn
        growth      largest factor between two sizes of which one is twice the other (1 ms and more): the median of
                    the factors of all turns, since what disturbs one size of a turn mostly disturbs the other
        × toktok    time by toktok's in the same run, at the largest size that both finished
        beyond MB   memory at its highest, less the text, the result, and what was there before the first text
        ids         "same" as tiktoken's, or toktok's where tiktoken finished no size; the bytes if neither did

    With --check, bytemill must keep to the limits: growth at most 2.3, toktok's time at most, 64 MB beyond, the
    same ids. A text that breaks a limit of time is measured once more at the end, and then that run counts: on a
    shared machine each whole run has another text among these, while what is slow is slow again.
    """
    vocabulary = vocabulary_of(options.vocab, options.pattern, harness.standing_texts())
    print(f"vocabulary {vocabulary.path.name}, pattern {vocabulary.pattern}; {harness.machine()}\n")
    request = vocabulary.request() | {"sizes": options.megabytes}

    def measured(text: str) -> list[dict[str, Any]]:
        outcomes = {
            tool: harness.measure_in_process(
                encode_hostile, request | {"tool": tool, "text": text}, threads=1, timeout=options.limit
            )
            for tool in options.tools
        }
        rows = [_hostile_row(text, tool, outcomes) for tool in options.tools]
        print(f"{text}: {', '.join(_summary(row) for row in rows)}", file=sys.stderr, flush=True)
        return rows

    rows = [row for text in options.texts for row in measured(text)]
    of_bytemill = {row["text"]: row for row in rows if row["tool"] == "bytemill"}
    if options.check:
        for text in [text for text, row in of_bytemill.items() if is_worth_another_run(row)]:
            again = measured(text)
            rows += again
            of_bytemill |= {row["text"]: row for row in again if row["tool"] == "bytemill"}
    header = ["text", "tool", *(f"{n_bytes / 1e6:g} MB, ms" for n_bytes in options.megabytes)]
    header += ["growth", "× toktok", "beyond MB", "ids", "note"]
    print(harness.format_table(header, [_hostile_cells(row, options.megabytes) for row in rows]))
    saved = harness.save(options.json, "hostile", {"vocabulary": vocabulary.path.name, "rows": rows})
    print(f"\nSaved to {saved}")
    broken = [row for row in of_bytemill.values() if broken_limits(row)]
    for row in broken:
        print(f"{row['text']}: {'; '.join(broken_limits(row))}", file=sys.stderr)
    return 1 if broken and options.check else 0


def encode_hostile(request: dict[str, Any]) -> dict[str, Any]:
    """One process: a text in all sizes, one line of JSON after each so that a slow tool shows how far it came."""
    encoder = encoder_of(request["tool"], Vocabulary.of(request), 1)
    encode = encoder.to_array or encoder.to_list
    if encode is None:
        raise UnavailableError("encodes batches only")
    encode("A few words.")
    take_memory_anew()
    make = HOSTILE[request["text"]]
    sizes: list[dict[str, Any]] = []
    values: dict[str, Any] = {"version": encoder.version, "sizes": sizes}
    before = resident_bytes()
    # In turns, so that a slow second of the machine hits all sizes and not one.
    for turn in range(REPEATS):
        for place, n_bytes in enumerate(request["sizes"]):
            if turn > 0 and sum(sizes[place]["turns"]) >= SECONDS_A_SIZE:
                continue
            # Never the same text: there are tools that remember a pre-token of ten megabytes.
            text = make(n_bytes - 64 * turn, turn)
            keep_utf8(text)
            forget_peak()
            start = time.process_time()
            ids = encode(text)
            seconds = time.process_time() - start
            beyond = harness.peak_memory_bytes() - before - sys.getsizeof(text) - size_of(ids)
            if turn == 0:
                n_tokens, digest = fingerprint(ids, batch=False)
                size = {"n_bytes": n_bytes, "seconds": seconds, "turns": [], "beyond_bytes": beyond}
                sizes.append(size | {"n_tokens": n_tokens, "ids": digest})
            size = sizes[place]
            size["seconds"] = min(size["seconds"], seconds)
            size["turns"].append(seconds)
            size["beyond_bytes"] = max(size["beyond_bytes"], beyond)
            del ids
            print(json.dumps(values), flush=True)
    return values


def resident_bytes() -> int:
    """Memory of this process that is in RAM now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096


def take_memory_anew() -> None:
    """Let glibc ask the system for each large piece of memory, and give it back when it is freed.

    By itself it does so from a size on that grows with what was freed, up to 32 MB: then it depends on the sizes
    before whether a result has its pages already, and whether it is copied as it grows. Sizes could not be compared.
    """
    mmap_threshold = -3
    if hasattr(libc := ctypes.CDLL(None), "mallopt"):
        libc.mallopt(mmap_threshold, 1 << 17)


def forget_peak() -> None:
    """Give freed memory back to the system, and let Linux count the peak from here on."""
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def size_of(ids: Any) -> int:
    """Bytes of an array, or of a list with the ints that are not shared by all."""
    return ids.nbytes if hasattr(ids, "nbytes") else sys.getsizeof(ids) + 28 * len(ids)


def growth(sizes: list[dict[str, Any]]) -> float | None:
    """The largest factor in time between a size and its double; None where no pair takes long enough."""
    turns = {size["n_bytes"]: size["turns"] for size in sizes}
    factors = [
        # Of a size that takes long there are fewer turns.
        statistics.median(after / before for before, after in zip(singles, turns[2 * n_bytes], strict=False))
        for n_bytes, singles in turns.items()
        if 2 * n_bytes in turns and min(singles) >= TOO_SHORT_TO_COMPARE
    ]
    return max(factors, default=None)


def _hostile_row(text: str, tool: str, outcomes: dict[str, Outcome]) -> dict[str, Any]:
    """What one tool did with one text, beside what the others did."""
    outcome = outcomes[tool]
    sizes: list[dict[str, Any]] = outcome.values.get("sizes", [])
    row: dict[str, Any] = {"text": text, "tool": tool, "reason": outcome.reason, "sizes": sizes}
    if not sizes:
        return row
    row["growth"] = growth(sizes)
    row["beyond_mb"] = max(size["beyond_bytes"] for size in sizes) / 1e6
    by_toktok = {size["n_bytes"]: size["seconds"] for size in _sizes(outcomes, "toktok")}
    common = [size for size in sizes if size["n_bytes"] in by_toktok]
    if common and tool != "toktok":
        row["times_toktok"] = common[-1]["seconds"] / by_toktok[common[-1]["n_bytes"]]
    for reference in REFERENCES:
        theirs = {size["n_bytes"]: size["ids"] for size in _sizes(outcomes, reference)}
        if theirs:
            row["reference"] = reference
            row["same_ids"] = all(theirs.get(size["n_bytes"], size["ids"]) == size["ids"] for size in sizes)
            break
    return row


def _sizes(outcomes: dict[str, Outcome], tool: str) -> list[dict[str, Any]]:
    return outcomes[tool].values.get("sizes", []) if tool in outcomes else []


def broken_limits(row: dict[str, Any]) -> list[str]:
    """The limits that bytemill's row breaks, in words."""
    broken: list[str] = [] if row["reason"] is None else [row["reason"]]
    if not row["sizes"]:
        return broken
    if (row["growth"] or 0) > MOST_GROWTH:
        broken.append(f"grows by {row['growth']:.2f} when the text doubles (at most {MOST_GROWTH})")
    if row.get("times_toktok", 0) > MOST_TIMES_TOKTOK:
        broken.append(f"{row['times_toktok']:.2f} × toktok's time (at most {MOST_TIMES_TOKTOK:g})")
    if row["beyond_mb"] > MOST_BEYOND_MB:
        broken.append(f"{row['beyond_mb']:.0f} MB beyond text and result (at most {MOST_BEYOND_MB})")
    if row.get("same_ids") is False:
        broken.append(f"other ids than {row['reference']}")
    return broken


def is_worth_another_run(row: dict[str, Any]) -> bool:
    """Whether what is wrong with a row is only how long something took."""
    return bool(broken_limits(row)) and not broken_limits(row | {"growth": None, "times_toktok": 0.0})


def _hostile_cells(row: dict[str, Any], sizes: list[int]) -> list[str]:
    """The row as the table shows it."""
    measured = {size["n_bytes"]: size["seconds"] for size in row["sizes"]}
    times = [_number(measured.get(n_bytes), 1e3) for n_bytes in sizes]
    same = {True: "same", False: "OTHER", None: ""}[row.get("same_ids")]
    numbers = [_number(row.get("growth")), _number(row.get("times_toktok")), _number(row.get("beyond_mb"))]
    note = "; ".join(broken_limits(row)) if row["tool"] == "bytemill" else row["reason"] or ""
    return [row["text"], row["tool"], *times, *numbers, same, note]


def _summary(row: dict[str, Any]) -> str:
    """The largest size a tool came to, for those who watch."""
    if not row["sizes"]:
        return f"{row['tool']} {row['reason']}"
    last = row["sizes"][-1]
    return f"{row['tool']} {last['n_bytes'] / 1e6:g} MB in {last['seconds']:.3f} s"


def _number(value: float | None, factor: float = 1) -> str:
    return "" if value is None else f"{value * factor:.{2 if value * factor < 10 else 0}f}"


@harness.case(
    harness.several("--parts", INSTRUCTION_PARTS),
    option("--check", action="store_true", help="exit with 1 where a part takes more than the baseline"),
    option("--keep", action="store_true", help="make this the baseline"),
    option("--tolerance", type=float, default=0.03, help="share that is let pass (%(default)s)"),
    option("--json", type=Path, help="file for the results"),
)
def instructions(options: argparse.Namespace) -> int:
    """Count the instructions that the parts of the core take, and compare them with what they took before.

        python -m benchmarks instructions [--check | --keep]

    Times on a shared machine vary by a tenth and more; the number of instructions does not, so it shows what a
    change has cost before a stopwatch could. It says nothing of waiting for memory and of branches foretold
    wrongly: an encoder may take more instructions and less time. Counted by `valgrind --tool=callgrind` (which
    knows no AVX-512: the parts run as on a processor with AVX2) over `crates/bytemill/examples/instructions.rs`,
    on generated text that is the same everywhere.

    The baseline is `results/instructions.json` and holds for one compiler release and architecture: --keep writes
    it anew, --check exits with 1 where a part takes more than --tolerance beyond it.
    """
    for program in ("valgrind", "cargo"):
        if shutil.which(program) is None:
            print(f"skipped: {program} is not installed")
            return 0
    counted = _counted(built_example(), options.parts)
    found: dict[str, Any] = surroundings() | {"n_bytes": INSTRUCTION_BYTES, "instructions_per_byte": counted}
    before: dict[str, Any] = json.loads(BASELINE.read_text(encoding="utf-8")) if BASELINE.is_file() else {}
    comparable = all(before.get(key) == found[key] for key in ("compiler", "architecture", "n_bytes"))
    baseline: dict[str, float] = before["instructions_per_byte"] if comparable else {}
    rows = [
        [*name.split(), f"{count:.2f}", f"{count / baseline[name] - 1:+.1%}" if name in baseline else ""]
        for name, count in counted.items()
    ]
    print(harness.format_table(["part", "text", "instructions/byte", "since baseline"], rows))
    if before and not comparable:
        theirs = ", ".join(str(before.get(key)) for key in ("compiler", "architecture"))
        print(f"\nThe baseline is of {theirs}: not compared.")
    if options.json is not None:
        print(f"\nSaved to {harness.save(options.json, 'instructions', found)}")
    if options.keep:
        kept = found | {"instructions_per_byte": baseline | counted}
        BASELINE.parent.mkdir(exist_ok=True)
        BASELINE.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
        print(f"\nThe baseline is now {BASELINE}")
        return 0
    more = grown(counted, baseline, options.tolerance)
    for line in more:
        print(line, file=sys.stderr)
    return 1 if more and options.check else 0


def built_example() -> Path:
    """Build the example; return its path."""
    command = ["cargo", "build", "--release", "--quiet", "--locked", "--package", "bytemill"]
    command += ["--example", "instructions", "--message-format", "json-render-diagnostics"]
    answer = subprocess.run(command, cwd=harness.REPOSITORY, stdout=subprocess.PIPE, text=True, check=False)
    if answer.returncode != 0:
        raise SystemExit("error: the example could not be built: see above")
    artifacts = [json.loads(line) for line in answer.stdout.splitlines()]
    (executable,) = [made["executable"] for made in artifacts if made.get("executable")]
    return Path(executable)


def instructions_of(example: Path, part: str, kind: str) -> int:
    """Instructions of one part on INSTRUCTION_BYTES of text."""
    if part == "count":
        # It works in a thread of its own, so all is counted, less what making the text takes.
        return _callgrind(example, part, kind, everything=True) - _callgrind(
            example, "nothing", kind, everything=True
        )
    return _callgrind(example, part, kind, everything=False)


def _callgrind(example: Path, part: str, kind: str, *, everything: bool) -> int:
    only = [] if everything else ["--collect-atstart=no", "--toggle-collect=*measured_part*"]
    with tempfile.TemporaryDirectory() as folder:
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out", *only]
        command += [str(example), part, kind, str(INSTRUCTION_BYTES)]
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
    found = _COLLECTED.search(answer.stderr)
    if answer.returncode != 0 or found is None:
        raise SystemExit(f"error: {' '.join(command)} failed:\n{answer.stderr.strip()}")
    return int(found[1])


def _counted(example: Path, parts: list[str]) -> dict[str, float]:
    """Part and kind -> instructions per byte."""
    return {
        f"{part} {kind}": round(instructions_of(example, part, kind) / INSTRUCTION_BYTES, 3)
        for part in parts
        for kind in INSTRUCTION_PARTS[part]
    }


def grown(counted: dict[str, float], baseline: dict[str, float], tolerance: float) -> list[str]:
    """Parts that take more than they did, in words.

    >>> grown({"new english": 104, "again english": 90}, {"new english": 100, "again english": 95}, 0.03)
    ['new english: 104 instructions a byte, 4.0 % more than 100']
    """
    return [
        f"{name}: {count:g} instructions a byte, {count / baseline[name] - 1:.1%}".replace("%", " %")
        + f" more than {baseline[name]:g}"
        for name, count in counted.items()
        if name in baseline and count > baseline[name] * (1 + tolerance)
    ]


def surroundings() -> dict[str, str]:
    """What the number of instructions depends on beside the code."""
    compiler = subprocess.run(["rustc", "--version"], capture_output=True, text=True, check=False).stdout
    return {"compiler": compiler.split("(")[0].strip(), "architecture": platform.machine()}
