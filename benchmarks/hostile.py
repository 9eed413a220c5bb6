"""Times texts that bring out the worst in an encoder, and checks that nothing grows faster than the text.

    uv run --group bench --with toktok-rs python benchmarks/hostile.py [--texts a,blanks] [--check]

A process for each tool and text encodes it in four sizes in turns, to an array where the tool has one, else to a list;
each size up to eleven times, another text each time. Times are CPU time of all threads, one thread being asked for.
A tool that takes longer than --limit for a text shows the sizes it finished. Of a text's row:

    ms          at each size, in its quickest turn
    growth      largest factor between two sizes of which one is twice the other (1 ms and more): the median of
                the factors of all turns, since what disturbs one size of a turn mostly disturbs the other
    × toktok    time by toktok's in the same run, at the largest size that both finished
    beyond MB   memory at its highest, less the text, the result, and what was there before the first text
    ids         "same" as tiktoken's, or toktok's where tiktoken finished no size; the bytes where there is no such tool

With --count, texts that attack the hash table of counting are counted instead; with --check as well, the time must grow
as the text does.

With --check, bytemill must keep to the limits: growth at most 2.3, toktok's time at most, 64 MB beyond, the same ids.
A text that breaks a limit of time is measured once more at the end, and then that run counts: on a shared machine each
whole run has another text among these, while what is slow is slow again.
"""

import argparse
import ctypes
import json
import statistics
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import harness
from encode import standing_texts
from encode_worker import fingerprint, keep_utf8
from encoders import ENCODERS
from harness import Outcome, UnavailableError
from hostile_texts import HOSTILE, HOSTILE_TO_COUNT
from vocabularies import PATTERN_OF_FILE, Vocabulary, vocabulary_of

TOOLS = ("bytemill", "toktok")
REFERENCES = ("tiktoken", "toktok")
SIZES = (1_250_000, 2_500_000, 5_000_000, 10_000_000)
COUNT_SIZES = (250_000, 500_000, 1_000_000)
MOST_GROWTH = 2.3
# Tables grow in steps, and short times vary more; quadratic time would be 4.
MOST_COUNT_GROWTH = 3.0
MOST_TIMES_TOKTOK = 1.0
MOST_BEYOND_MB = 64
TOO_SHORT_TO_COMPARE = 1e-3
SECONDS_A_SIZE = 3.0
REPEATS = 11


def work(request: dict[str, Any]) -> dict[str, Any]:
    """One process: a text in all sizes, one line of JSON after each so that a slow tool shows how far it came."""
    encoder = ENCODERS[request["tool"]](Vocabulary(Path(request["vocab"]), request["pattern"]), 1)
    encode = encoder.to_array or encoder.to_list
    if encode is None:
        raise UnavailableError("encodes batches only")
    encode("A few words.")
    take_memory_anew()
    make = HOSTILE[request["text"]]
    before = resident_bytes()
    sizes: list[dict[str, Any]] = []
    values: dict[str, Any] = {"version": encoder.version, "sizes": sizes}
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


def count_hostile_texts(*, check: bool) -> int:
    """Time counting of each text in all sizes. Returns 1 if `check` and the time grows faster than the text."""
    from bytemill import _core

    rows: list[list[str]] = []
    worst = 0.0
    for name, make in HOSTILE_TO_COUNT.items():
        times: list[float] = []
        for n_bytes in COUNT_SIZES:
            text = make(n_bytes, 0)
            turns: list[float] = []
            for _ in range(REPEATS):
                start = time.process_time()
                counter = _core.PretokenCounter("gpt2", [], 1, None)
                counter.add_texts([text])
                counter.finish()
                turns.append(time.process_time() - start)
                if sum(turns) > SECONDS_A_SIZE:
                    break
            times.append(min(turns))
        growth = max(after / before for before, after in pairwise(times))
        worst = max(worst, growth)
        rows.append([name, *(f"{1e3 * seconds:.1f}" for seconds in times), f"{growth:.2f}"])
    print(
        harness.format_table(
            ["text", *(f"{n_bytes / 1e6:g} MB, ms" for n_bytes in COUNT_SIZES), "growth"], rows
        )
    )
    return 1 if check and worst > MOST_COUNT_GROWTH else 0


def resident_bytes() -> int:
    """Memory of this process that is in RAM now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096


def take_memory_anew() -> None:
    """Has glibc ask the system for each large piece of memory, and give it back when it is freed.

    By itself it does so from a size on that grows with what was freed, up to 32 MB: then it depends on the sizes
    before whether a result has its pages already, and whether it is copied as it grows. Sizes could not be compared.
    """
    mmap_threshold = -3
    if hasattr(libc := ctypes.CDLL(None), "mallopt"):
        libc.mallopt(mmap_threshold, 1 << 17)


def forget_peak() -> None:
    """Gives freed memory back to the system and has Linux count the peak from here on."""
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
        statistics.median(
            double / single for single, double in zip(singles, turns[2 * n_bytes], strict=False)
        )
        for n_bytes, singles in turns.items()
        if 2 * n_bytes in turns and min(singles) >= TOO_SHORT_TO_COMPARE
    ]
    return max(factors, default=None)


def row_of(text: str, tool: str, outcomes: dict[str, Outcome]) -> dict[str, Any]:
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


def cells_of(row: dict[str, Any], sizes: list[int]) -> list[str]:
    """The row as the table shows it."""
    measured = {size["n_bytes"]: size["seconds"] for size in row["sizes"]}
    times = [_number(measured.get(n_bytes), 1e3) for n_bytes in sizes]
    same = {True: "same", False: "OTHER", None: ""}[row.get("same_ids")]
    numbers = [_number(row.get("growth")), _number(row.get("times_toktok")), _number(row.get("beyond_mb"))]
    note = "; ".join(broken_limits(row)) if row["tool"] == "bytemill" else row["reason"] or ""
    return [row["text"], row["tool"], *times, *numbers, same, note]


def summary(row: dict[str, Any]) -> str:
    """The largest size a tool came to, for those who watch."""
    if not row["sizes"]:
        return f"{row['tool']} {row['reason']}"
    last = row["sizes"][-1]
    return f"{row['tool']} {last['n_bytes'] / 1e6:g} MB in {last['seconds']:.3f} s"


def _number(value: float | None, factor: float = 1) -> str:
    return "" if value is None else f"{value * factor:.{2 if value * factor < 10 else 0}f}"


def names(value: str) -> list[str]:
    """A comma-separated list of texts."""
    chosen = value.split(",")
    for name in chosen:
        if name not in HOSTILE:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(HOSTILE)}")
    return chosen


def main() -> int:
    if sys.argv[1:2] == ["worker"]:
        return harness.worker_main(work, sys.argv[2])
    parser = argparse.ArgumentParser(description="Time texts that bring out the worst in an encoder.")
    parser.add_argument("--texts", type=names, default=list(HOSTILE), help="comma-separated (all)")
    parser.add_argument(
        "--tools", type=lambda value: value.split(","), default=list(TOOLS), help=f"default {','.join(TOOLS)}"
    )
    parser.add_argument("--vocab", help="rank file, or gpt2, cl100k, o200k, trained-N (cl100k where at hand)")
    parser.add_argument("--pattern", choices=sorted(set(PATTERN_OF_FILE.values())), help="pattern of --vocab")
    parser.add_argument(
        "--megabytes",
        type=lambda value: [int(float(size) * 1e6) for size in value.split(",")],
        default=list(SIZES),
        help="sizes in 10^6 bytes, comma-separated (1.25,2.5,5,10)",
    )
    parser.add_argument("--limit", type=float, default=30, help="seconds for a tool and a text (%(default)s)")
    parser.add_argument("--json", type=Path, help="file for the results (a new one in benchmarks/results)")
    parser.add_argument("--check", action="store_true", help="exit with 1 where bytemill breaks a limit")
    parser.add_argument(
        "--count", action="store_true", help="time counting of texts that attack it, instead of encoding"
    )
    arguments = parser.parse_args()
    if arguments.count:
        return count_hostile_texts(check=arguments.check)
    vocabulary = vocabulary_of(arguments.vocab, arguments.pattern, standing_texts())
    print(f"vocabulary {vocabulary.path.name}, pattern {vocabulary.pattern}; {harness.machine()}\n")
    request = {"vocab": str(vocabulary.path), "pattern": vocabulary.pattern, "sizes": arguments.megabytes}

    def measured(text: str) -> list[dict[str, Any]]:
        outcomes = {
            tool: harness.measure_in_process(
                __file__, request | {"tool": tool, "text": text}, threads=1, timeout=arguments.limit
            )
            for tool in arguments.tools
        }
        rows = [row_of(text, tool, outcomes) for tool in arguments.tools]
        print(f"{text}: {', '.join(summary(row) for row in rows)}", file=sys.stderr, flush=True)
        return rows

    rows = [row for text in arguments.texts for row in measured(text)]
    of_bytemill = {row["text"]: row for row in rows if row["tool"] == "bytemill"}
    if arguments.check:
        for text in [text for text, row in of_bytemill.items() if is_worth_another_run(row)]:
            again = measured(text)
            rows += again
            of_bytemill |= {row["text"]: row for row in again if row["tool"] == "bytemill"}
    header = ["text", "tool", *(f"{n_bytes / 1e6:g} MB, ms" for n_bytes in arguments.megabytes)]
    header += ["growth", "× toktok", "beyond MB", "ids", "note"]
    print(harness.format_table(header, [cells_of(row, arguments.megabytes) for row in rows]))
    saved = harness.save(arguments.json, "hostile", {"vocabulary": vocabulary.path.name, "rows": rows})
    print(f"\nSaved to {saved}")
    broken = [row for row in of_bytemill.values() if broken_limits(row)]
    for row in broken:
        print(f"{row['text']}: {'; '.join(broken_limits(row))}", file=sys.stderr)
    return 1 if broken and arguments.check else 0


if __name__ == "__main__":
    sys.exit(main())
